-- Merge the copies of each mail, in an order that does not depend on how they were read.
-- Every choice below is a minimum over the copies, so it comes out the same for any order of
-- reading and for any division over several runs. Copies have the same sender and recipients, and
-- the same owner if they were imported for one: mail outside an inbox doesn't change it.

-- Copies under any id join by content; others also need the same id, or the id of one of the former.
CREATE TEMP TABLE known_ids AS
SELECT DISTINCT copy_digest, message_id, owner FROM staging.mails WHERE any_id
UNION SELECT copy_digest, message_id, owner FROM staging.old_copies WHERE any_id;

CREATE TEMP TABLE copies AS
SELECT m.row, m.copy_digest, m.message_id, m.any_id, m.owner,
    CASE WHEN m.any_id OR k.message_id IS NOT NULL THEN '' ELSE m.message_id END AS id_group
FROM staging.mails AS m LEFT JOIN known_ids AS k USING (copy_digest, message_id, owner);

CREATE TEMP TABLE old_copies AS
SELECT c.*, CASE WHEN c.any_id OR k.message_id IS NOT NULL THEN '' ELSE c.message_id END AS id_group
FROM staging.old_copies AS c LEFT JOIN known_ids AS k USING (copy_digest, message_id, owner);

-- The kept copy: the earliest, then the smallest message id; the rest decides between equal ids.
CREATE TEMP TABLE members AS
WITH sized AS (
    SELECT *, count(*) OVER (PARTITION BY copy_digest, id_group, owner) AS size FROM copies
)
SELECT row, row AS kept FROM sized WHERE size = 1
UNION ALL
SELECT row, first_value(row) OVER (
        PARTITION BY s.copy_digest, s.id_group, s.owner
        ORDER BY m.sent_at NULLS LAST, m.message_id, length(m.from_name) DESC, m.from_name,
            md5(m.subject || chr(10) || m.body), m.source) AS kept
FROM sized AS s JOIN staging.mails AS m USING (row) WHERE size > 1;

CREATE TABLE staging.kept AS
SELECT row, message_id, owner, CAST(row_number() OVER (
        ORDER BY sent_at NULLS LAST, message_id, copy_digest, length(from_name) DESC, from_name, owner) - 1
    AS INTEGER) AS email_id
FROM staging.mails WHERE row IN (SELECT kept FROM members);

-- Copies of one mail that several owners imported, or that came both with and without an owner.
CREATE TEMP TABLE kept_copies AS
WITH grouped AS (
    SELECT email_id, copy_digest, c.owner,
        CASE WHEN any_id OR (copy_digest, c.message_id) IN (SELECT copy_digest, message_id FROM known_ids)
            THEN '' ELSE c.message_id END AS id_group
    FROM staging.kept JOIN copies AS c USING (row)
    WHERE (SELECT count(DISTINCT owner) > 1 FROM copies)
),
-- of one owner they are several mails
numbered AS (
    SELECT *, row_number() OVER (PARTITION BY copy_digest, id_group, owner ORDER BY email_id) AS number FROM grouped
)
SELECT email_id, owner, min(email_id) OVER same AS first_id FROM numbered
WINDOW same AS (PARTITION BY copy_digest, id_group, number) QUALIFY count(*) OVER same > 1;

-- Who sent, got and imported each mail.
CREATE TABLE staging.roles AS
SELECT email_id, from_address AS address, 'from' AS role FROM staging.mails JOIN staging.kept USING (row)
WHERE from_address <> ''
UNION ALL SELECT email_id, address, ['to', 'cc', 'bcc'][role + 1] FROM staging.recipients JOIN staging.kept USING (row) WHERE address <> ''
UNION ALL SELECT email_id, owner, 'owner' FROM staging.kept WHERE owner <> '';
