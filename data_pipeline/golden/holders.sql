-- The contents, of these, that inboxes of these addresses hold, each with the first of them.
SELECT lower(hex(content_digest)) AS content, 'in the test inbox ' || min(address)
FROM emails JOIN parties USING (email_id) JOIN addresses USING (address_id)
WHERE content IN (SELECT unnest(?::VARCHAR[])) AND address IN (SELECT unnest(?::VARCHAR[]))
GROUP BY content
