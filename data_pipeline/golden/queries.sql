-- The statements of the golden set, each after its name. A later one may include an earlier one by its name.

-- The mail of the inbox of an address.
-- name: own_mail
FROM emails SEMI JOIN mail_of(?, false) USING (email_id)

-- The mails that questions cite, by the addresses of their inboxes and the cited ids: stored id, time, digest of
-- the content, whether the mail is in that inbox, and body.
-- name: cited
WITH cited AS (SELECT unnest(?::VARCHAR[]) AS address, unnest(?::VARCHAR[]) AS message_id),
ids AS (
    SELECT message_id, email_id, 0 AS preference FROM emails
    UNION ALL SELECT message_id, email_id, 1 FROM aliases
)
SELECT address, cited.message_id, emails.message_id, sent_at, lower(hex(content_digest)),
    (address_id, email_id) IN (SELECT address_id, email_id FROM parties)
    AND (address_id, email_id) NOT IN (SELECT address_id, email_id FROM others_copies) AS own,
    body
FROM cited JOIN addresses USING (address) JOIN ids USING (message_id)
    JOIN emails USING (email_id)
ORDER BY address, cited.message_id, own DESC, preference, email_id

-- The largest inboxes and their names: those of a file's owners, or else of people who send and receive mail.
-- name: persons
SELECT address, any_value(names)
FROM (SELECT * FROM addresses WHERE emails >= ?) JOIN parties USING (address_id)
WHERE len(?) = 0 OR list_contains(?, address)
GROUP BY address
HAVING len(?) > 0 OR (
    count(DISTINCT email_id) FILTER (role = 'from') >= ?
    AND bool_or(role IN ('to', 'cc', 'bcc'))
)
ORDER BY any_value(emails) DESC, address

-- The mails of an address's inbox that may be drawn, with the ids of their other people: the message id is unique, there
-- is a date, and the length is between two limits.
-- name: drawable
SELECT email_id, message_id, sent_at, subject, content_digest, body, (
    SELECT coalesce(list(DISTINCT address_id ORDER BY address_id), [])
    FROM parties JOIN addresses USING (address_id)
    WHERE parties.email_id = emails.email_id AND address <> ?
)
${own_mail}
WHERE NOT id_taken AND sent_at IS NOT NULL AND length(body) BETWEEN ? AND ?
ORDER BY email_id

-- The name that mail from an address gives most often.
-- name: owner_name
SELECT from_name FROM emails WHERE from_address = ? AND from_name <> ''
GROUP BY from_name ORDER BY count(*) DESC, from_name LIMIT 1

-- Those of the given contents that inboxes of the given addresses hold, each with the first address.
-- name: holders
SELECT lower(hex(content_digest)) AS content, 'in the test inbox ' || min(address)
FROM emails JOIN parties USING (email_id) JOIN addresses USING (address_id)
WHERE content IN (SELECT unnest(?::VARCHAR[])) AND address IN (SELECT unnest(?::VARCHAR[]))
GROUP BY content
