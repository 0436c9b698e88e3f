-- From all copies to one mail each, in an order that does not depend on how they were read.
-- Every choice below is a minimum over the copies, so it comes out the same for any order of
-- reading and for any division over several runs. Copies have the same sender and recipients:
-- what is outside an inbox changes nothing in it.

-- Copies under any id join by what they say; others need the same id as well, or the id of one of the former.
CREATE TEMP TABLE known_ids AS
SELECT DISTINCT copy_digest, message_id FROM staging.mails WHERE any_id
UNION SELECT copy_digest, message_id FROM staging.old_copies WHERE any_id;

CREATE TEMP TABLE copies AS
SELECT m.row, m.copy_digest, m.message_id, m.any_id,
    CASE WHEN m.any_id OR k.message_id IS NOT NULL THEN '' ELSE m.message_id END AS id_group
FROM staging.mails AS m LEFT JOIN known_ids AS k USING (copy_digest, message_id);

CREATE TEMP TABLE old_copies AS
SELECT c.*, CASE WHEN c.any_id OR k.message_id IS NOT NULL THEN '' ELSE c.message_id END AS id_group
FROM staging.old_copies AS c LEFT JOIN known_ids AS k USING (copy_digest, message_id);

-- The kept copy: the earliest, then the smallest message id; the rest decides between equal ids.
CREATE TEMP TABLE members AS
WITH sized AS (
    SELECT *, count(*) OVER (PARTITION BY copy_digest, id_group) AS size FROM copies
)
SELECT row, row AS kept FROM sized WHERE size = 1
UNION ALL
SELECT row, first_value(row) OVER (
        PARTITION BY s.copy_digest, s.id_group
        ORDER BY m.sent_at NULLS LAST, m.message_id, length(m.from_name) DESC, m.from_name,
            md5(m.subject || chr(10) || m.body), m.source) AS kept
FROM sized AS s JOIN staging.mails AS m USING (row) WHERE size > 1;

CREATE TEMP TABLE kept AS
SELECT row, message_id,
    CAST(row_number() OVER (ORDER BY sent_at NULLS LAST, message_id, copy_digest) - 1 AS INTEGER) AS email_id
FROM staging.mails WHERE row IN (SELECT kept FROM members);

CREATE TEMP TABLE owners AS
SELECT DISTINCT k.email_id, o.address
FROM staging.owners AS o JOIN members AS m USING (row) JOIN kept AS k ON k.row = m.kept;
