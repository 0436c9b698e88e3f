-- From all copies to one mail each, in an order that does not depend on how they were read.
-- Every choice below is a minimum or a union over the copies, so it comes out the same
-- for any order of reading and for any division over several runs.

-- Copies under any id join by content; others need the same id as well, or the id of one of the former.
CREATE TEMP TABLE known_ids AS
SELECT DISTINCT content_digest, message_id FROM staging.mails WHERE any_id
UNION SELECT content_digest, message_id FROM staging.old_copies WHERE any_id;

CREATE TEMP TABLE copies AS
SELECT m.row, m.content_digest, m.message_id, m.any_id,
    CASE WHEN m.any_id OR k.message_id IS NOT NULL THEN '' ELSE m.message_id END AS id_group
FROM staging.mails AS m LEFT JOIN known_ids AS k USING (content_digest, message_id);

CREATE TEMP TABLE old_copies AS
SELECT c.*, CASE WHEN c.any_id OR k.message_id IS NOT NULL THEN '' ELSE c.message_id END AS id_group
FROM staging.old_copies AS c LEFT JOIN known_ids AS k USING (content_digest, message_id);

-- The kept copy: the earliest, then the smallest message id; the rest decides between equal ids.
CREATE TEMP TABLE members AS
WITH sized AS (
    SELECT *, count(*) OVER (PARTITION BY content_digest, id_group) AS size FROM copies
)
SELECT row, row AS kept FROM sized WHERE size = 1
UNION ALL
SELECT row, first_value(row) OVER (
        PARTITION BY s.content_digest, s.id_group
        ORDER BY m.sent_at NULLS LAST, m.message_id, length(m.from_name) DESC, m.from_name,
            md5(m.subject || chr(10) || m.body), m.source) AS kept
FROM sized AS s JOIN staging.mails AS m USING (row) WHERE size > 1;

-- A message id belongs to one mail; other mails that claim it get an id of their own.
CREATE TEMP TABLE kept AS
WITH claims AS (
    SELECT row, message_id, sent_at, content_digest,
        row_number() OVER (PARTITION BY message_id ORDER BY sent_at NULLS LAST, content_digest) AS claim
    FROM staging.mails WHERE row IN (SELECT kept FROM members)
),
named AS (
    SELECT row, sent_at, CASE WHEN claim = 1 THEN message_id
        ELSE '<' || lower(hex(content_digest))[:12] || '+' || trim(message_id, '<>') || '>' END AS message_id
    FROM claims
)
SELECT row, message_id,
    CAST(row_number() OVER (ORDER BY sent_at NULLS LAST, message_id) - 1 AS INTEGER) AS email_id
FROM named;

-- Recipients of all copies: the strongest role, the longest name. They stay in the header's order
-- where all copies name the same ones in the same order; else they are sorted by address.
CREATE TEMP TABLE recipients AS
WITH multiple AS (SELECT kept FROM members GROUP BY kept HAVING count(*) > 1),
listed AS (
    SELECT m.row, m.kept, string_agg(r.role || r.address, ' ' ORDER BY r.role, r.position) AS list
    FROM members AS m JOIN multiple USING (kept) LEFT JOIN staging.recipients AS r USING (row)
    GROUP BY ALL
),
agreed AS (
    SELECT kept FROM listed GROUP BY kept HAVING count(DISTINCT coalesce(list, '')) = 1
),
merged AS (
    SELECT m.kept, r.address, min(r.role) AS role,
        first(r.name ORDER BY length(r.name) DESC, r.name) AS name, min(r.position) AS position
    FROM members AS m JOIN multiple USING (kept) JOIN staging.recipients AS r USING (row)
    GROUP BY m.kept, r.address
)
SELECT k.email_id, m.address, m.role, m.name,
    CASE WHEN m.kept IN (SELECT kept FROM agreed) THEN position
        ELSE row_number() OVER (PARTITION BY m.kept ORDER BY m.address) END AS position
FROM merged AS m JOIN kept AS k ON k.row = m.kept
UNION ALL
SELECT k.email_id, r.address, r.role, r.name, r.position
FROM staging.recipients AS r JOIN kept AS k USING (row)
WHERE r.row NOT IN (SELECT kept FROM multiple);

CREATE TEMP TABLE owners AS
SELECT DISTINCT k.email_id, o.address
FROM staging.owners AS o JOIN members AS m USING (row) JOIN kept AS k ON k.row = m.kept;
