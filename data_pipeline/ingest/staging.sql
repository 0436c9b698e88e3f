-- The output of the workers: every copy of every mail, row by row.
CREATE TABLE staging.mails (
    row INTEGER, message_id VARCHAR, sent_at TIMESTAMP, utc_offset SMALLINT, subject VARCHAR, bare_subject VARCHAR, from_address VARCHAR,
    from_name VARCHAR, body VARCHAR, length INTEGER, source VARCHAR, content_digest BLOB, copy_digest BLOB,
    any_id BOOLEAN, junk BOOLEAN, labels VARCHAR[], reference_ids VARCHAR[], gmail_thread VARCHAR, delivered_to VARCHAR,
    mailing_list VARCHAR, bulk BOOLEAN, attached VARCHAR, owner VARCHAR);
CREATE TABLE staging.recipients (row INTEGER, address VARCHAR, name VARCHAR, role TINYINT, position INTEGER);
CREATE TABLE staging.files (row INTEGER, number SMALLINT, part SMALLINT, name VARCHAR, kind VARCHAR, data BLOB, unread VARCHAR);
-- Each table of a worker numbers its own terms. Words of senders' names have the row of their mail.
CREATE TABLE staging.postings (row INTEGER, term BIGINT, frequency INTEGER);
CREATE TABLE staging.words (row INTEGER, word VARCHAR, term BIGINT);
CREATE TABLE staging.stems (term BIGINT, stem VARCHAR);
CREATE TABLE staging.people (address VARCHAR, person VARCHAR);
CREATE TABLE staging.skipped (source VARCHAR, stage VARCHAR, reason VARCHAR, detail VARCHAR);
-- Copies that were dropped before, from the file being added to.
CREATE TABLE staging.old_copies (
    message_id VARCHAR, copy_digest BLOB, any_id BOOLEAN, source VARCHAR, sent_at TIMESTAMP, owner VARCHAR);
