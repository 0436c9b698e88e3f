-- Fill the inbox file from the merged copies, each table in the order in which it is searched.
INSERT INTO inbox.emails
WITH listed AS (
    SELECT email_id,
        list({'address': address, 'name': name} ORDER BY position) FILTER (role = 0) AS to_list,
        list({'address': address, 'name': name} ORDER BY position) FILTER (role = 1) AS cc_list,
        list({'address': address, 'name': name} ORDER BY position) FILTER (role = 2) AS bcc_list
    FROM staging.recipients JOIN staging.kept USING (row) GROUP BY email_id
),
labelled AS (
    -- of the copies of the same date: a later one is not known yet on an earlier day
    SELECT kept, list_sort(list_distinct(flatten(list(m.labels)))) AS labels, bool_and(m.junk) AS junk,
        max(m.gmail_thread) AS gmail_thread, max(m.mailing_list) AS mailing_list, bool_and(m.bulk) AS bulk,
        -- one copy that may stand under any id makes the mail one
        bool_or(m.any_id) AS any_id
    FROM members JOIN staging.mails AS m USING (row) JOIN staging.mails AS k ON k.row = kept
    WHERE m.sent_at IS NOT DISTINCT FROM k.sent_at GROUP BY kept
)
SELECT k.email_id, k.message_id, m.sent_at, m.utc_offset, m.subject, m.bare_subject, m.from_address, m.from_name,
    coalesce(to_list, []), coalesce(cc_list, []), coalesce(bcc_list, []),
    m.body, m.length, m.source, m.content_digest, m.copy_digest,
    row_number() OVER (PARTITION BY k.message_id ORDER BY k.email_id) > 1, l.any_id, l.junk, l.labels, m.reference_ids, l.gmail_thread,
    m.delivered_to, l.mailing_list, l.bulk, m.attached
FROM staging.kept AS k JOIN staging.mails AS m USING (row) JOIN labelled AS l ON l.kept = k.row
    LEFT JOIN listed USING (email_id)
ORDER BY k.email_id;

INSERT INTO inbox.files
SELECT email_id, number, part, name, kind, data, unread FROM staging.files JOIN staging.kept USING (row);

INSERT INTO inbox.aliases
SELECT c.message_id, k.email_id, copy.source, copy.sent_at
FROM copies AS c JOIN members AS m USING (row) JOIN staging.kept AS k ON k.row = m.kept
    JOIN staging.mails AS copy USING (row)
WHERE c.row <> m.kept
UNION ALL
SELECT o.message_id, k.email_id, o.source, o.sent_at
FROM old_copies AS o
    JOIN (SELECT DISTINCT copy_digest, id_group, owner, kept FROM copies JOIN members USING (row)) AS g
        USING (copy_digest, id_group, owner)
    JOIN staging.kept AS k ON k.row = g.kept
ORDER BY ALL;

INSERT INTO inbox.owners_copies SELECT email_id, first_id FROM kept_copies ORDER BY email_id;

CREATE TEMP TABLE not_own AS
WITH own AS (
    SELECT owner, message_id FROM copies UNION SELECT owner, message_id FROM old_copies
),
others AS (
    SELECT own.owner AS address, email_id, kept.owner FROM own JOIN staging.kept USING (message_id)
    UNION SELECT own.owner, other.email_id, other.owner
    FROM kept_copies AS own JOIN kept_copies AS other USING (first_id)
)
SELECT address, email_id, owner FROM others WHERE address <> owner AND address <> '';

CREATE TEMP TABLE junk AS SELECT email_id FROM inbox.emails WHERE junk;

INSERT INTO inbox.addresses
WITH named AS (
    SELECT from_address AS address, from_name AS name FROM inbox.emails
    UNION SELECT address, name FROM staging.recipients SEMI JOIN staging.kept USING (row)
),
names AS (SELECT address, string_agg(name, ' | ' ORDER BY name) AS names FROM named WHERE name <> '' GROUP BY address)
SELECT row_number() OVER (ORDER BY address) - 1, address, coalesce(names, ''), emails
FROM (
        SELECT address, count(DISTINCT coalesce(first_id, email_id)) FILTER (
            email_id NOT IN (FROM junk) AND (address, email_id) NOT IN (SELECT address, email_id FROM not_own)) AS emails
        FROM staging.roles LEFT JOIN kept_copies USING (email_id) GROUP BY address
    ) LEFT JOIN names USING (address)
ORDER BY address;

INSERT INTO inbox.others_copies
SELECT a.address_id, email_id, o.address_id FROM not_own
    JOIN inbox.addresses AS a USING (address) LEFT JOIN inbox.addresses AS o ON o.address = owner ORDER BY ALL;

INSERT INTO inbox.parties
SELECT DISTINCT address_id, email_id, CAST(role AS inbox.role) AS role
FROM staging.roles ANTI JOIN junk USING (email_id) JOIN inbox.addresses USING (address) ORDER BY address_id, email_id, role;

INSERT INTO inbox.junk_parties
SELECT DISTINCT address_id, email_id, CAST(role AS inbox.role) AS role
FROM staging.roles SEMI JOIN junk USING (email_id) JOIN inbox.addresses USING (address) ORDER BY address_id, email_id, role;

-- Merge two addresses only if the file still has both.
INSERT INTO inbox.people
SELECT address, person FROM staging.people SEMI JOIN inbox.addresses USING (address)
WHERE person IN (SELECT address FROM inbox.addresses) ORDER BY ALL;

INSERT INTO inbox.skipped SELECT source, stage, reason, detail FROM staging.skipped ORDER BY ALL;
