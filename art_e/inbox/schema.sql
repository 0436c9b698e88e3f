-- The inbox file. Filled by data_pipeline, opened by art_e.inbox.

-- One row a mail, email_id in date order from 0; mail without a known date comes last.
CREATE TABLE emails (
    email_id INTEGER NOT NULL,
    message_id VARCHAR NOT NULL,       -- with its angle brackets
    sent_at TIMESTAMP,                 -- UTC; NULL: unknown
    utc_offset SMALLINT NOT NULL,      -- of the zone in which it was sent, in minutes
    subject VARCHAR NOT NULL,
    bare_subject VARCHAR NOT NULL,     -- in lower case, without the prefixes of replies and forwards
    from_address VARCHAR NOT NULL,
    from_name VARCHAR NOT NULL,
    to_recipients STRUCT(address VARCHAR, name VARCHAR)[] NOT NULL,
    cc_recipients STRUCT(address VARCHAR, name VARCHAR)[] NOT NULL,
    bcc_recipients STRUCT(address VARCHAR, name VARCHAR)[] NOT NULL,
    body VARCHAR NOT NULL,
    length INTEGER NOT NULL,           -- indexed words
    source VARCHAR NOT NULL,           -- where the kept copy was read
    content_digest BLOB NOT NULL,      -- of sender, subject and body
    copy_digest BLOB NOT NULL,         -- of these and the recipients: what makes two mails copies
    id_taken BOOLEAN NOT NULL,         -- an earlier mail of the file has its message id
    any_id BOOLEAN NOT NULL,           -- copies under other message ids were duplicates of it
    junk BOOLEAN NOT NULL,             -- every copy of its date is labelled as spam, trash or a draft
    labels VARCHAR[] NOT NULL,         -- of the copies of its date, in the mailbox that was imported
    reference_ids VARCHAR[] NOT NULL,  -- message ids of the mails that it follows, the nearest last
    gmail_thread VARCHAR NOT NULL,     -- Gmail's name of its thread, or empty
    delivered_to VARCHAR NOT NULL,     -- the address that got it, as its server wrote, or empty
    mailing_list VARCHAR NOT NULL,     -- the list's name and addresses, as its headers give them, or empty
    bulk BOOLEAN NOT NULL,             -- every copy of its date has headers of mail to many, or of an automatic reply
    attached VARCHAR NOT NULL          -- the texts of attachments, read and searched behind the body
);

-- Attached files, numbered from 1 within the mail, in parts of 64 KB.
CREATE TABLE files (
    email_id INTEGER NOT NULL,
    number SMALLINT NOT NULL,
    part SMALLINT NOT NULL,            -- from 0
    name VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,             -- the declared type, such as application/pdf
    data BLOB,                         -- NULL: too large to be kept
    unread VARCHAR NOT NULL            -- why its text is not in `attached`, or not whole; or empty
);

-- Dropped copies: their message ids, the mail that stands for them, where they were read, and when
-- they were sent: on an earlier day their id is not known yet.
CREATE TABLE aliases (
    message_id VARCHAR NOT NULL, email_id INTEGER NOT NULL, source VARCHAR NOT NULL, sent_at TIMESTAMP);

CREATE TABLE addresses (
    address_id INTEGER NOT NULL,
    address VARCHAR NOT NULL,          -- lower case
    names VARCHAR NOT NULL,            -- every name it was given, joined by " | "
    emails INTEGER NOT NULL            -- how many mails its inbox holds, spam and trash aside
);

-- Copies of one mail that several owners imported, or that came with and without an owner, each with the first copy.
CREATE TABLE owners_copies (email_id INTEGER NOT NULL, first_id INTEGER NOT NULL);
-- What an address does not see, because its own mail has a copy of it or the same message id; and whose it is.
CREATE TABLE others_copies (address_id INTEGER NOT NULL, email_id INTEGER NOT NULL, owner_id INTEGER); -- NULL: no owner

-- Addresses of one person, each with the one that stands for all, itself too; all open one inbox.
CREATE TABLE people (address VARCHAR NOT NULL, person VARCHAR NOT NULL);

-- Whose inbox a mail is in: owner = imported with --owner.
CREATE TYPE role AS ENUM ('from', 'to', 'cc', 'bcc', 'owner');
CREATE TABLE parties (address_id INTEGER NOT NULL, email_id INTEGER NOT NULL, role role NOT NULL);
-- The same for spam and trash, which inboxes have only on request.
CREATE TABLE junk_parties (address_id INTEGER NOT NULL, email_id INTEGER NOT NULL, role role NOT NULL);

-- Each word that occurs, and the stem under which it is indexed.
CREATE TABLE terms (word VARCHAR NOT NULL, term_id INTEGER NOT NULL, stem VARCHAR NOT NULL);
CREATE TABLE postings (term_id INTEGER NOT NULL, email_id INTEGER NOT NULL, frequency INTEGER NOT NULL);

-- Messages that were read and not stored (stage 'filtered' or 'quarantined'), or not whole ('cut'), and
-- files that are not mail ('not_mail').
CREATE TABLE skipped (source VARCHAR NOT NULL, stage VARCHAR NOT NULL, reason VARCHAR NOT NULL, detail VARCHAR NOT NULL);

-- schema_version, tokenizer, counts (JSON), digest (of all mail), and complete = 'true', written last.
CREATE TABLE meta (key VARCHAR NOT NULL, value VARCHAR NOT NULL);
