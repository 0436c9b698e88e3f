-- Search in plain SQL, from any DuckDB shell:
--   SELECT * FROM search_inbox('kim@example.com', ['portland', 'move'], as_of := DATE '2000-12-30');
-- Same mails, same order and same score as art_e.inbox; a test holds the two together.

-- What is indexed of a text: its words, those of CJK as pairs of characters; and the mail addresses in it.
CREATE MACRO folded(text) AS lower(strip_accents(text));
CREATE MACRO tokens_of(text) AS flatten(list_transform(
    regexp_extract_all(regexp_replace(folded(text), '(${cjk}+)', ' \1 ', 'g'), '[\p{L}\p{N}]+'),
    lambda word: if(length(word) > 2 AND regexp_matches(word, '^${cjk}'),
        list_transform(range(1, length(word)), lambda i: word[i:i + 1]), [word])));
CREATE MACRO addresses_in(text) AS regexp_extract_all(folded(text), '${address}');

-- Whether an address matches a filter: every part of the filter occurs in the address or its names.
CREATE MACRO address_matches(wanted, address, names) AS
    list_bool_and(list_transform(
        list_filter(
            string_split_regex(
                coalesce(nullif(regexp_extract(folded(wanted), '<([^<>\s]+@[^<>\s]+)>', 1), ''), folded(wanted)),
                '[\s,<>"]+'),
            lambda part: part <> ''),
        lambda part: contains(address || ' ' || names, part)));

-- The stem of each word: Snowball's English stemmer 3.1 (snowballstem.org, english.sbl), one step
-- a query, so that SQL depends on no list of words. A capital Y is a consonant. The regions R1 and
-- R2 begin behind r1 and r2 characters.
CREATE MACRO ends_short(part) AS
    regexp_matches(part, '([^aeiouy][aeiouy][^aeiouywxY]|^[aeiouy][^aeiouy]|past)$$');
CREATE MACRO stems_of(searched) AS TABLE
WITH asked AS MATERIALIZED (SELECT DISTINCT unnest(CAST(searched AS VARCHAR[])) AS word),
marked AS MATERIALIZED (
    SELECT word, regexp_replace(regexp_replace(word, '^y', 'Y'), '([aeiouy])y', '\1Y', 'g') AS w,
        regexp_extract(w, '^(arsen|commun|emerg|gener|inter|later|organ|past|univers|[^aeiouy]*[aeiouy]+[^aeiouy])') AS before,
        if(before = '', length(w), length(before)) AS r1,
        regexp_extract(w[r1 + 1:], '^[^aeiouy]*[aeiouy]+[^aeiouy]') AS between,
        if(between = '', length(w), r1 + length(between)) AS r2
    FROM asked
),
step_1a AS MATERIALIZED (
    SELECT word, r1, r2, CASE
        WHEN w[-4:] = 'sses' THEN left(w, -2)
        WHEN w[-3:] IN ('ied', 'ies') THEN left(w, if(length(w) > 4, -2, -1))
        WHEN w[-2:] IN ('ss', 'us') THEN w
        WHEN regexp_matches(w, '[aeiouy].+s$$') THEN left(w, -1)
        ELSE w END AS w
    FROM marked
),
step_1b AS MATERIALIZED (
    SELECT word, r1, r2, regexp_extract(w, '(eedly|eed|ingly|edly|ing|ed)$$') AS suffix_1b, left(w, length(w) - length(suffix_1b)) AS base_1b, CASE
        WHEN suffix_1b IN ('eed', 'eedly') THEN
            if(r1 <= length(base_1b) AND base_1b NOT IN ('succ', 'proc', 'exc'), base_1b || 'ee', w)
        WHEN regexp_matches(w, '^[^aeiouy]ying$$') THEN base_1b[1] || 'ie'
        WHEN suffix_1b = 'ing' AND base_1b IN ('even', 'cann', 'inn', 'earr', 'herr', 'out') THEN w
        WHEN suffix_1b = '' OR NOT regexp_matches(base_1b, '[aeiouy]') THEN w
        WHEN base_1b[-2:] IN ('at', 'bl', 'iz') THEN base_1b || 'e'
        WHEN base_1b[-2:] IN ('bb', 'dd', 'ff', 'gg', 'mm', 'nn', 'pp', 'rr', 'tt') THEN
            if(regexp_matches(base_1b, '^[aeo]..$$'), base_1b, left(base_1b, -1))
        WHEN length(base_1b) = r1 AND ends_short(base_1b) THEN base_1b || 'e'
        ELSE base_1b END AS w
    FROM step_1a
),
step_1c AS MATERIALIZED (
    SELECT word, r1, r2, if(regexp_matches(w, '.[^aeiouy][yY]$$'), left(w, -1) || 'i', w) AS w FROM step_1b
),
step_2 AS MATERIALIZED (
    SELECT word, r1, r2,
        regexp_extract(w, '(ational|tional|ization|ation|ator|izer|anci|enci|entli|abli|bli|ousness|ousli|fulness|fulli|lessli|aliti|alism|alli|iveness|iviti|biliti|ogist|ogi|li)$$') AS suffix_2,
        left(w, length(w) - length(suffix_2)) AS base_2, CASE
        WHEN suffix_2 = '' OR r1 > length(base_2) THEN w
        WHEN suffix_2 = 'li' THEN if(regexp_matches(base_2, '[cdeghkmnrt]$$'), base_2, w)
        WHEN suffix_2 = 'ogi' THEN if(base_2[-1:] = 'l', base_2 || 'og', w)
        ELSE base_2 || MAP {
            'ational': 'ate', 'tional': 'tion', 'ization': 'ize', 'ation': 'ate', 'ator': 'ate', 'izer': 'ize',
            'anci': 'ance', 'enci': 'ence', 'entli': 'ent', 'abli': 'able', 'bli': 'ble', 'biliti': 'ble',
            'ousness': 'ous', 'ousli': 'ous', 'fulness': 'ful', 'fulli': 'ful', 'lessli': 'less', 'aliti': 'al',
            'alism': 'al', 'alli': 'al', 'iveness': 'ive', 'iviti': 'ive', 'ogist': 'og'}[suffix_2] END AS w
    FROM step_1c
),
step_3 AS MATERIALIZED (
    SELECT word, r1, r2,
        regexp_extract(w, '(ational|tional|icate|ative|alize|iciti|ical|ful|ness)$$') AS suffix_3,
        left(w, length(w) - length(suffix_3)) AS base_3, CASE
        WHEN suffix_3 = '' OR if(suffix_3 = 'ative', r2, r1) > length(base_3) THEN w
        ELSE base_3 || MAP {
            'ational': 'ate', 'tional': 'tion', 'icate': 'ic', 'ative': '', 'alize': 'al', 'iciti': 'ic',
            'ical': 'ic', 'ful': '', 'ness': ''}[suffix_3] END AS w
    FROM step_2
),
step_4 AS MATERIALIZED (
    SELECT word, r1, r2,
        regexp_extract(w, '(ance|ence|able|ible|ate|ive|ize|iti|ic|al|ism|ion|er|ous|ant|ement|ment|ent)$$') AS suffix_4,
        left(w, length(w) - length(suffix_4)) AS base_4,
        if(r2 > length(base_4) OR (suffix_4 = 'ion' AND base_4[-1:] NOT IN ('s', 't')), w, base_4) AS w
    FROM step_3
),
step_5 AS (
    SELECT word, left(w, -1) AS base_5, CASE
        WHEN w[-1:] = 'e' AND (r2 <= length(base_5) OR (r1 <= length(base_5) AND NOT ends_short(base_5))) THEN base_5
        WHEN w[-2:] = 'll' AND r2 <= length(base_5) THEN base_5
        ELSE w END AS w
    FROM step_4
)
SELECT word, CASE
    WHEN length(word) <= 2 OR contains(word, '@') OR word IN ('andes', 'atlas', 'bias', 'cosmos', 'howe', 'news', 'sky') THEN word
    ELSE coalesce(MAP {
        'early': 'earli', 'gently': 'gentl', 'idly': 'idl', 'only': 'onli', 'singly': 'singl', 'skies': 'sky',
        'skis': 'ski', 'ugly': 'ugli'}[word], lower(w)) END AS stem
FROM step_5;

-- The mail of an inbox, spam and trash too where they are asked for.
CREATE MACRO ids_of(inbox) AS TABLE
SELECT address_id FROM addresses
WHERE address = lower(inbox) OR address IN (
    SELECT same.address FROM people AS named JOIN people AS same USING (person) WHERE named.address = lower(inbox));
CREATE MACRO mail_of(inbox, with_junk) AS TABLE
SELECT email_id FROM parties WHERE address_id IN (FROM ids_of(inbox))
UNION ALL
SELECT email_id FROM junk_parties WHERE with_junk AND address_id IN (FROM ids_of(inbox));

-- The id by which an inbox knows a mail: its message id, unless an earlier mail of the inbox has it.
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
        tokens_of(regexp_replace(folded(keyword), '${address}', ' ', 'g')) || addresses_in(keyword)) AS word
    FROM (SELECT unnest(CAST(keywords AS VARCHAR[])) AS keyword)
),
wanted_words AS (
    SELECT word FROM every_word
    WHERE NOT list_contains(${stop_words}, word)
        OR NOT EXISTS (SELECT 1 FROM every_word WHERE NOT list_contains(${stop_words}, word))
),
wanted AS MATERIALIZED (
    SELECT stem, any_value(term_id) AS term_id, min(w.word) AS word
    FROM stems_of((SELECT list(word) FROM wanted_words)) AS w
        LEFT JOIN (SELECT DISTINCT stem, term_id FROM terms) USING (stem) GROUP BY stem
),
found AS MATERIALIZED (
    SELECT w.stem, w.word, p.email_id, p.frequency, v.length
    FROM postings AS p JOIN wanted AS w USING (term_id) JOIN visible AS v USING (email_id)
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
    SELECT email_id, true AS is_sender, from_address AS address, folded(from_name) AS name
    FROM emails WHERE from_address <> '' AND email_id IN (SELECT email_id FROM visible)
    UNION ALL
    SELECT email_id, false, recipient.address, folded(recipient.name)
    FROM (SELECT email_id, unnest(to_recipients || cc_recipients || bcc_recipients) AS recipient
        FROM emails WHERE email_id IN (SELECT email_id FROM visible))
),
named AS (
    SELECT address, coalesce(string_agg(DISTINCT name, ' | ') FILTER (name <> ''), '') AS names
    FROM people GROUP BY address
)
SELECT name_of(e.message_id, e.copy_digest, e.id_taken AND EXISTS (
        FROM emails AS o SEMI JOIN visible USING (email_id)
        WHERE o.message_id = e.message_id AND o.email_id < e.email_id)) AS message_id,
    e.sent_at, e.utc_offset, e.from_address, e.from_name, e.subject,
    CAST(points AS DOUBLE) / greatest(2 * ${points}::DOUBLE * (SELECT count(*) FROM wanted), 1) AS score,
    list_sort(list_filter((SELECT coalesce(list(word), []) FROM wanted), lambda word: NOT list_contains(matched, word))) AS missing
FROM scored JOIN emails AS e USING (email_id)
WHERE (from_addr IS NULL OR trim(from_addr) = '' OR email_id IN (
        SELECT email_id FROM people WHERE is_sender AND address IN (
            SELECT address FROM named WHERE address_matches(from_addr, address, names))))
    AND (to_addr IS NULL OR trim(to_addr) = '' OR email_id IN (
        SELECT email_id FROM people WHERE NOT is_sender AND address IN (
            SELECT address FROM named WHERE address_matches(to_addr, address, names))))
    -- days are those of the sender's own zone
    AND (sent_after IS NULL OR e.sent_at + to_minutes(e.utc_offset) >= CAST(sent_after AS DATE))
    AND (sent_before IS NULL OR e.sent_at + to_minutes(e.utc_offset) < CAST(sent_before AS DATE))
ORDER BY points DESC, email_id DESC
LIMIT max_results;

-- A message id as it is stored; in a query it may lack its angle brackets.
CREATE MACRO in_brackets(wanted_id) AS
    CASE WHEN starts_with(trim(wanted_id), '<') THEN trim(wanted_id) ELSE '<' || trim(wanted_id) || '>' END;

-- One mail of an inbox, by its message id or that of a dropped copy; no row: not in this inbox.
CREATE MACRO read_inbox(inbox, wanted_id, as_of := NULL, with_junk := false) AS TABLE
WITH visible AS MATERIALIZED (
    SELECT email_id, message_id, copy_digest, row_number() OVER (PARTITION BY message_id ORDER BY email_id) > 1 AS taken
    FROM emails
    WHERE email_id IN (FROM mail_of(inbox, with_junk))
        AND (as_of IS NULL OR sent_at < CAST(as_of AS DATE) + INTERVAL 1 DAY)
),
named AS (SELECT email_id, name_of(message_id, copy_digest, taken) AS name FROM visible)
SELECT name AS message_id, e.sent_at, e.utc_offset, e.from_address, e.from_name,
    e.to_recipients, e.cc_recipients, e.bcc_recipients, e.subject, e.body || e.attached AS body
FROM (
        SELECT email_id, 0 AS preference FROM named WHERE name = in_brackets(wanted_id)
        UNION ALL SELECT email_id, 1 FROM aliases
        WHERE message_id = in_brackets(wanted_id)
            AND (as_of IS NULL OR sent_at < CAST(as_of AS DATE) + INTERVAL 1 DAY)
    ) JOIN named USING (email_id) JOIN emails AS e USING (email_id)
ORDER BY preference, email_id
LIMIT 1;
