-- The mails that questions cite, by the addresses of their inboxes and the cited ids: the stored id, when it was
-- sent, the digest of its content, whether it is that inbox's, and its body.
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
