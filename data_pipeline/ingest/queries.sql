-- The shorter statements of a build, each after its name. The longer ones have their own files.

-- The first and last mails of each part of a file: the texts of a part take about the given number of bytes.
-- name: parts
SELECT min(email_id), max(email_id)
FROM (
    SELECT email_id, sum(strlen(body) + strlen(attached)) OVER (ORDER BY email_id) // ? AS part
    FROM emails
)
GROUP BY part ORDER BY ALL

-- The mails of a part, as ingesting parsed them.
-- name: stored
SELECT {
        'source': e.source, 'message_id': message_id, 'sent_at': sent_at, 'subject': subject,
        'sender': {'address': from_address, 'name': from_name}, 'to': to_recipients,
        'cc': cc_recipients, 'bcc': bcc_recipients, 'labels': labels, 'references': reference_ids,
        'body': body, 'junk': junk, 'utc_offset': utc_offset, 'gmail_thread': gmail_thread,
        'delivered_to': delivered_to, 'attached': attached, 'mailing_list': mailing_list,
        'bulk': bulk, 'owner': coalesce(address, ''), 'any_id': any_id
    }
FROM emails AS e LEFT JOIN owners USING (email_id)
WHERE email_id BETWEEN ? AND ? ORDER BY email_id

-- The duplicates, skipped mails and attached files of the file being added to. Its mails come first, in the
-- order of their numbers.
-- name: carry_over
INSERT INTO staging.old_copies
SELECT a.message_id, copy_digest, any_id, a.source, a.sent_at, coalesce(address, '')
FROM old.aliases AS a JOIN old.emails USING (email_id) LEFT JOIN old.owners USING (email_id);
INSERT INTO staging.skipped FROM old.skipped;
INSERT INTO staging.files FROM old.files;

-- The addresses of most of the new mails: those that servers delivered to, or those of senders and
-- recipients.
-- name: delivered
SELECT row, delivered_to AS address FROM staging.mails

-- name: parties
SELECT row, from_address AS address FROM staging.mails
UNION ALL SELECT row, address FROM staging.recipients

-- name: candidates
SELECT address, count(DISTINCT row) AS mails,
    mails / (SELECT count(*) FROM staging.mails WHERE row >= $first)
FROM ($source)
WHERE address <> '' AND row >= $first
GROUP BY address ORDER BY mails DESC, address LIMIT 3

-- The metadata of a complete file.
-- name: meta
INSERT INTO meta VALUES ('schema_version', ?), ('tokenizer', ?), ('counts', ?), ('digest', (
    SELECT md5(coalesce(string_agg(md5(concat_ws(
        ' ', message_id, hex(copy_digest), sent_at, junk, md5(attached)
    )), '' ORDER BY email_id), '')) FROM emails
))
