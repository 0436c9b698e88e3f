-- The statements of art_e.inbox by name, with ${values}. A later statement can include an earlier one by its name.

-- For the person with the addresses `ids`: all mail; others' mails that their own copies replace; the mails that they
-- have in several copies, each with the copy that is shown; and all mail that is shown.
-- name: listed
(
    SELECT email_id FROM parties WHERE address_id IN (${ids})
    UNION ALL SELECT email_id FROM junk_parties WHERE ${junk} AND address_id IN (${ids})
)
-- name: others
(
    SELECT email_id FROM others_copies
    WHERE address_id IN (${ids}) AND coalesce(owner_id NOT IN (${ids}), true)
)
-- name: copies
(
    SELECT email_id, min(email_id) OVER (PARTITION BY first_id) AS shown
    FROM owners_copies SEMI JOIN ${listed} USING (email_id) ANTI JOIN ${others} USING (email_id)
)
-- name: shown
(
    SELECT email_id FROM ${listed} WHERE email_id NOT IN ${others}
    AND email_id NOT IN (SELECT email_id FROM ${copies} WHERE shown <> email_id)
)

-- The mails of a slice, with the day in the sender's zone (0: unknown) and a number that mails of equal content share;
-- and new ids for mails whose id an earlier one has.
-- name: slice
SELECT email_id, length, coalesce(epoch(sent_at)::BIGINT, ${undated}) AS sent,
    coalesce((sent_at + to_minutes(utc_offset))::DATE - DATE '0001-01-01' + 1, 0) AS day, id_taken,
    md5_number_lower(hex(content_digest) || attached) AS content
FROM emails WHERE ${mine} ORDER BY email_id
-- name: renamed
SELECT email_id, name_of(message_id, copy_digest, true) FROM emails AS later
WHERE id_taken AND ${mine} AND EXISTS (
    FROM emails AS earlier
    WHERE earlier.message_id = later.message_id AND earlier.email_id < later.email_id AND earlier.${mine})

-- The mails with the given message ids, then those with a dropped copy that has them.
-- name: every_id
(
    SELECT message_id, email_id, sent_at, 0 AS preference FROM emails
    UNION ALL SELECT message_id, email_id, sent_at, 1 FROM aliases
)
-- name: every_id_and_copy
(FROM ${every_id} UNION ALL SELECT message_id, shown, sent_at, 2 FROM ${every_id} JOIN ${several} USING (email_id))
-- name: named
SELECT message_id, email_id, coalesce(epoch(sent_at)::BIGINT, ${undated})
FROM ${among} WHERE ${condition} AND ${mine} ORDER BY preference, email_id

-- The labels that the person gave their mail, of each copy of its date.
-- name: imported
(
    SELECT * FROM emails WHERE email_id IN (
        SELECT email_id FROM ${parties} WHERE role = 'owner' AND address_id IN (${own}))
)
-- name: labels
(SELECT email_id, labels FROM ${imported})
-- name: labels_of_copies
(
    FROM ${labels} UNION ALL SELECT shown, copy.labels
    FROM ${several} JOIN ${imported} AS copy USING (email_id) JOIN emails AS mail ON mail.email_id = shown
    WHERE copy.sent_at IS NOT DISTINCT FROM mail.sent_at
)

-- The mails that went out in bulk, by their headers or by the person's labels. Bills and bookings come as updates.
-- name: bulk
SELECT email_id FROM emails WHERE bulk AND ${mine}
UNION SELECT email_id FROM ${labelled} WHERE list_has_any(labels, ['category promotions', 'category social', 'category forums'])
    AND ${mine}

-- name: labels_of
SELECT email_id, list_sort(list_distinct(flatten(list(labels)))) FROM ${labelled} AS own WHERE labels <> []
GROUP BY email_id

-- The names that a slice gives each address: those in the table `addresses` would reveal other inboxes.
-- name: names
SELECT address, name, min(email_id) FROM (
    SELECT email_id, from_address AS address, from_name AS name FROM emails WHERE ${mine}
    UNION ALL SELECT email_id, recipient.address, recipient.name FROM (
        SELECT email_id, unnest(to_recipients || cc_recipients || bcc_recipients) AS recipient
        FROM emails WHERE ${mine})
) WHERE name <> '' GROUP BY ALL ORDER BY ALL

-- Pairs of mails of one thread.
-- name: links
WITH mine AS MATERIALIZED (
    SELECT email_id, message_id, reference_ids, gmail_thread, sent_at, bare_subject,
        length(bare_subject) < length(subject) AS is_reply
    FROM emails WHERE ${mine} AND email_id <= ${last}
),
named AS (
    SELECT email_id, message_id AS name FROM mine
    UNION ALL SELECT email_id, unnest(reference_ids) FROM mine
    UNION ALL SELECT email_id, gmail_thread FROM mine WHERE gmail_thread <> ''
),
by_name AS (SELECT email_id, min(email_id) OVER (PARTITION BY name) AS other FROM named),
people AS (
    SELECT DISTINCT email_id, address_id FROM ${parties}
    WHERE role <> 'owner' AND address_id NOT IN (${own}) AND email_id IN (SELECT email_id FROM mine)
),
by_subject AS (
    SELECT email_id, lag(email_id) OVER earlier AS other, is_reply,
        sent_at - lag(sent_at) OVER earlier AS gap
    FROM mine JOIN people USING (email_id) WHERE bare_subject <> '' AND gmail_thread = ''
    WINDOW earlier AS (PARTITION BY bare_subject, address_id ORDER BY email_id)
)
SELECT email_id, other FROM by_name WHERE other <> email_id
UNION
SELECT email_id, other FROM by_subject WHERE is_reply AND gap <= to_days(${days})

-- The mails that share a subject or a named id with others, all of which a link may need.
-- name: near
WITH known AS (
    SELECT list(bare_subject) FILTER (bare_subject <> '') AS subjects,
        list_distinct(list(message_id) || list(gmail_thread) || flatten(list(reference_ids)))
            AS names
    FROM emails WHERE email_id IN (${ids})
)
SELECT email_id FROM emails, known WHERE ${mine} AND email_id <= ${last} AND (
    list_contains(subjects, bare_subject) OR list_contains(names, message_id)
    OR (gmail_thread <> '' AND list_contains(names, gmail_thread))
    OR list_has_any(reference_ids, names)
) ORDER BY email_id

-- The postings of a slice; and its parties.
-- name: postings
SELECT term_id, email_id, frequency FROM postings WHERE ${condition} ORDER BY term_id, email_id
-- name: people_of
SELECT email_id, role = 'from' AS is_sender, role = 'cc' AS in_cc, address_id
FROM ${parties} WHERE role <> 'owner' AND ${mine}
-- name: column
SELECT email_id, ${column} FROM ${table} WHERE ${mine} AND email_id <= ${last}

-- The files of a mail; and the reasons why files of some mails are not searched, with their counts.
-- name: files
SELECT number, name, kind, data FROM files WHERE email_id = ? ORDER BY number, part
-- name: unread_files
SELECT unread, count(*) FROM files
WHERE part = 0 AND unread <> '' AND email_id IN (SELECT unnest(?))
GROUP BY ALL ORDER BY count(*) DESC, unread

-- The addresses of the file: those of an inbox, those most like a given one, the owners', and each person's.
-- name: addresses_of
SELECT address_id FROM ids_of(?) SEMI JOIN ${parties} USING (address_id) ORDER BY address_id
-- name: nearest
SELECT address FROM addresses
ORDER BY jaro_winkler_similarity(address, ?) DESC, emails DESC LIMIT 3
-- name: owners
SELECT DISTINCT address FROM ${parties} JOIN addresses USING (address_id)
WHERE role = 'owner' ORDER BY address
-- name: people
SELECT person, list(address ORDER BY address <> person, address) FROM people
GROUP BY person ORDER BY person

-- Every inbox: owners, then those with most mail.
-- name: inboxes
WITH named AS (
    SELECT address_id, emails, coalesce(person, a.address) AS inbox
    FROM addresses AS a LEFT JOIN people USING (address)
),
listed AS ( -- of several addresses first about as many
    SELECT inbox, bool_or(address_id IN (
        SELECT address_id FROM parties WHERE role = 'owner'
    )) AS owns
    FROM named GROUP BY inbox ORDER BY owns DESC, sum(emails) DESC, inbox LIMIT ?
)
SELECT inbox, count(DISTINCT coalesce(first_id, email_id)) AS emails,
    count(DISTINCT coalesce(first_id, email_id)) FILTER (role = 'from'),
    count(DISTINCT coalesce(first_id, email_id)) FILTER (role IN ('to', 'cc', 'bcc'))
FROM listed JOIN named USING (inbox) JOIN parties USING (address_id)
    LEFT JOIN owners_copies USING (email_id)
WHERE (inbox, email_id) NOT IN (
    SELECT named.inbox, email_id FROM others_copies JOIN named USING (address_id)
    LEFT JOIN named AS owner ON owner.address_id = owner_id
    WHERE owner.inbox IS DISTINCT FROM named.inbox)
GROUP BY inbox ORDER BY any_value(owns) DESC, emails DESC, inbox

-- The stems one letter off a stem, that begin with the same letter.
-- name: near_stems
SELECT DISTINCT stem, term_id FROM terms
WHERE starts_with(stem, ?) AND abs(length(stem) - ?) <= 1 AND damerau_levenshtein(stem, ?) = 1
ORDER BY ALL
