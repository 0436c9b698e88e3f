-- The largest inboxes and their names: those of a file's owners, or else of who writes and gets mail.
SELECT address, any_value(names)
FROM (SELECT * FROM addresses WHERE emails >= ?) JOIN parties USING (address_id)
WHERE len(?) = 0 OR list_contains(?, address)
GROUP BY address
HAVING len(?) > 0 OR (
    count(DISTINCT email_id) FILTER (role = 'from') >= ?
    AND bool_or(role IN ('to', 'cc', 'bcc'))
)
ORDER BY any_value(emails) DESC, address
