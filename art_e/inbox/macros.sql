-- Search in plain SQL, from any DuckDB shell:
--   SELECT * FROM search_inbox('kim@example.com', ['portland', 'move'], as_of := DATE '2000-12-30');
-- Finds the same mails as art_e.inbox, in the same order and with the same scores; a test compares them. Stems of
-- words come from the table `terms`, so a form of a word that does not occur in the file matches no mail.

-- The index holds a text's words (pairs of characters in scripts without spaces) and its mail addresses. Python
-- provides the character tables.
CREATE MACRO apart(text) AS if(NOT regexp_matches(text, '[${ligatures}]'), text, array_to_string(list_transform(
    string_split(text, ''), lambda char: coalesce(
        string_split('${apart}', ' ')[nullif(instr('${ligatures}', char), 0)], char)), ''));
CREATE MACRO folded(text) AS if(regexp_full_match(text, '[\x00-\x7f]*'), lower(text),
    nfc_normalize(translate(apart(text), '${changed}', '${folded}')));
CREATE MACRO tokens_in(folded_text) AS flatten(list_transform(
    regexp_extract_all(regexp_replace(folded_text, '(${unspaced}+)', ' \1 ', 'g'), '[${letters}]+'),
    lambda word: if(length(word) > 2 AND regexp_matches(word, '^${unspaced}'),
        list_transform(range(1, length(word)), lambda i: word[i:i + 1]), [word])));
CREATE MACRO addresses_in(folded_text) AS regexp_extract_all(folded_text, '${address}');

-- The parts of an address filter; and whether all occur in an address or its names.
CREATE MACRO parts_of(folded_filter) AS list_filter(
    string_split_regex(
        coalesce(nullif(regexp_extract(folded_filter, '<([^<>\s]+@[^<>\s]+)>', 1), ''), folded_filter), '[\s,<>"]+'),
    lambda part: part <> '');
CREATE MACRO address_matches(parts, address, names) AS
    list_bool_and(list_transform(parts, lambda part: contains(address || ' ' || names, part)));

-- The mails that have a word, in any form with its stem.
CREATE VIEW word_index AS SELECT word, stem, email_id, frequency FROM terms JOIN postings USING (term_id);

-- The mail of an inbox, on request with spam and trash.
CREATE MACRO ids_of(inbox) AS TABLE
SELECT address_id FROM addresses
WHERE address = lower(inbox) OR address IN (
    SELECT same.address FROM people AS named JOIN people AS same USING (person) WHERE named.address = lower(inbox));
CREATE MACRO mail_of(inbox, with_junk) AS TABLE FROM ${mail};

-- The owner who imported a mail.
CREATE VIEW owners AS
SELECT email_id, address FROM (FROM parties UNION ALL FROM junk_parties) JOIN addresses USING (address_id) WHERE role = 'owner';

-- The id of a mail in an inbox: its message id, unless an earlier mail of the inbox has it.
CREATE MACRO name_of(message_id, copy_digest, taken) AS
    if(taken, '<' || lower(hex(copy_digest))[:12] || '+' || message_id[2:], message_id);

CREATE MACRO search_inbox(
    inbox, keywords, as_of := NULL, from_addr := NULL, to_addr := NULL,
    sent_after := NULL, sent_before := NULL, max_results := 10, with_junk := false
) AS TABLE
WITH visible AS MATERIALIZED (
    SELECT email_id, length, sent_at
    FROM emails
    WHERE email_id IN (FROM mail_of(inbox, with_junk))
        AND (as_of IS NULL OR sent_at < CAST(as_of AS DATE) + INTERVAL 1 DAY)
),
every_word AS MATERIALIZED (
    SELECT DISTINCT unnest(
        tokens_in(regexp_replace(keyword, '${address}', ' ', 'g')) || addresses_in(keyword)) AS word
    FROM (SELECT folded(unnest(CAST(keywords AS VARCHAR[]))) AS keyword)
),
wanted_words AS (
    SELECT word FROM every_word
    WHERE NOT list_contains(${stop_words}, word)
        OR NOT EXISTS (SELECT 1 FROM every_word WHERE NOT list_contains(${stop_words}, word))
),
stemmed AS MATERIALIZED (
    -- a word that is not in the file is its own stem
    SELECT w.word, coalesce(t.stem, w.word) AS stem FROM wanted_words AS w LEFT JOIN terms AS t USING (word)
),
wanted AS MATERIALIZED (SELECT stem, min(word) AS word FROM stemmed GROUP BY stem),
-- Their stems in all languages.
forms AS MATERIALIZED (
    SELECT DISTINCT s.stem, term_id FROM terms JOIN (
        SELECT stem, unnest([word] || list_transform(${marks}, lambda mark: word || mark)) AS word FROM stemmed
    ) AS s USING (word)
),
found AS MATERIALIZED (
    SELECT w.stem, w.word, p.email_id, max(p.frequency) AS frequency, v.length
    FROM postings AS p JOIN forms USING (term_id) JOIN wanted AS w USING (stem) JOIN visible AS v USING (email_id)
    GROUP BY ALL
),
weights AS (
    SELECT stem, ln(1 + (n - count(*) + 0.5::DOUBLE) / (count(*) + 0.5::DOUBLE)) AS idf, any_value(mean) AS mean
    FROM found, (SELECT count(*)::DOUBLE AS n, avg(length) AS mean FROM visible)
    GROUP BY stem, n
),
scored AS (
    SELECT email_id,
        sum(1 + CAST(floor(${points}::DOUBLE * ${k1_plus_1}::DOUBLE * idf
            / (1 + ${k1}::DOUBLE * (${one_minus_b}::DOUBLE + ${b}::DOUBLE * length / mean) / frequency)) AS BIGINT))
            * ((SELECT count(*) FROM wanted) + count(*)) AS points,
        list(word) AS matched
    FROM found JOIN weights USING (stem)
    GROUP BY email_id
    UNION ALL
    SELECT email_id, 0, [] FROM visible WHERE NOT EXISTS (SELECT 1 FROM wanted)
),
-- Names are those of the visible mail; the table addresses has those of all inboxes.
people AS (
    SELECT email_id, true AS is_sender, from_address AS address, from_name AS name
    FROM emails WHERE from_address <> '' AND email_id IN (SELECT email_id FROM visible)
    UNION ALL
    SELECT email_id, false, recipient.address, recipient.name
    FROM (SELECT email_id, unnest(to_recipients || cc_recipients || bcc_recipients) AS recipient
        FROM emails WHERE email_id IN (SELECT email_id FROM visible))
    WHERE recipient.address <> ''
),
named AS (
    SELECT address, coalesce(string_agg(folded(name), ' | ') FILTER (name <> ''), '') AS names
    FROM (SELECT DISTINCT address, name FROM people) GROUP BY address
),
filters AS MATERIALIZED (SELECT parts_of(folded(from_addr)) AS sender, parts_of(folded(to_addr)) AS recipient)
SELECT name_of(e.message_id, e.copy_digest, e.id_taken AND EXISTS (
        FROM emails AS o SEMI JOIN visible USING (email_id)
        WHERE o.message_id = e.message_id AND o.email_id < e.email_id)) AS message_id,
    e.sent_at, e.utc_offset, e.from_address, e.from_name, e.subject,
    CAST(points AS DOUBLE) / greatest(2 * ${points}::DOUBLE * (SELECT count(*) FROM wanted), 1) AS score,
    list_sort(list_filter((SELECT coalesce(list(word), []) FROM wanted), lambda word: NOT list_contains(matched, word))) AS missing
FROM scored JOIN emails AS e USING (email_id)
WHERE (from_addr IS NULL OR trim(from_addr) = '' OR email_id IN (
        SELECT email_id FROM people WHERE is_sender AND address IN (
            SELECT address FROM named, filters WHERE address_matches(sender, address, names))))
    AND (to_addr IS NULL OR trim(to_addr) = '' OR email_id IN (
        SELECT email_id FROM people WHERE NOT is_sender AND address IN (
            SELECT address FROM named, filters WHERE address_matches(recipient, address, names))))
    -- days are those of the sender's own zone
    AND (sent_after IS NULL OR e.sent_at + to_minutes(e.utc_offset) >= CAST(sent_after AS DATE))
    AND (sent_before IS NULL OR e.sent_at + to_minutes(e.utc_offset) < CAST(sent_before AS DATE))
-- the first of copies
QUALIFY row_number() OVER (PARTITION BY content_digest, attached ORDER BY points DESC, email_id DESC) = 1
ORDER BY points DESC, email_id DESC
LIMIT max_results;
