-- Search in plain SQL, from any DuckDB shell:
--   SELECT * FROM search_inbox('kim@example.com', ['portland', 'move'], as_of := DATE '2000-12-30');
-- Same mails, same order and same score as art_e.inbox; a test holds the two together.

-- Whether an address matches a filter: every part of the filter occurs in the address or its names.
CREATE MACRO address_matches(wanted, address, names) AS
    list_bool_and(list_transform(
        list_filter(
            string_split_regex(
                coalesce(nullif(regexp_extract(lower(wanted), '<([^<>\s]+@[^<>\s]+)>', 1), ''), lower(wanted)),
                '[\s,<>"]+'),
            lambda part: part <> ''),
        lambda part: contains(address || ' ' || names, part)));

-- The stem of each word: that of `terms`, or for a form that no mail has ("relocating" where only
-- "relocate" occurs) that of the longest stem which one of the usual endings makes into the word.
CREATE MACRO look_up(searched) AS TABLE
WITH asked AS (SELECT DISTINCT unnest(CAST(searched AS VARCHAR[])) AS word),
known AS (SELECT word, term_id, stem FROM asked JOIN terms USING (word)),
guesses AS (
    SELECT word, ending, word[:length(word) - length(ending.cut)] || ending.add AS stem
    FROM asked, (SELECT unnest(${endings}) AS ending)
    WHERE word NOT IN (SELECT word FROM known)
        AND ends_with(word, ending.cut) AND length(word) - length(ending.cut) >= ending.least
)
SELECT word, term_id, stem FROM known
UNION ALL
SELECT g.word, first(term_id ORDER BY length(stem) DESC, ending.rank),
    first(stem ORDER BY length(stem) DESC, ending.rank)
FROM guesses AS g JOIN (SELECT DISTINCT stem, term_id FROM terms) USING (stem) GROUP BY g.word;

CREATE MACRO search_inbox(
    inbox, keywords, as_of := NULL, from_addr := NULL, to_addr := NULL,
    sent_after := NULL, sent_before := NULL, max_results := 10
) AS TABLE
WITH visible AS MATERIALIZED (
    SELECT email_id, length, sent_at
    FROM emails
    WHERE email_id IN (
            SELECT email_id FROM parties
            WHERE address_id IN (SELECT address_id FROM addresses WHERE address = lower(inbox)))
        AND (as_of IS NULL OR sent_at < CAST(as_of AS DATE) + INTERVAL 1 DAY)
),
every_word AS MATERIALIZED (
    SELECT DISTINCT unnest(regexp_extract_all(lower(strip_accents(keyword)), '[\p{L}\p{N}]+')) AS word
    FROM (SELECT unnest(CAST(keywords AS VARCHAR[])) AS keyword)
),
wanted_words AS (
    SELECT word FROM every_word
    WHERE NOT list_contains(${stop_words}, word)
        OR NOT EXISTS (SELECT 1 FROM every_word WHERE NOT list_contains(${stop_words}, word))
),
wanted AS MATERIALIZED (
    SELECT coalesce(stem, w.word) AS stem, any_value(term_id) AS term_id, min(w.word) AS word
    FROM wanted_words AS w LEFT JOIN look_up((SELECT list(word) FROM wanted_words)) USING (word) GROUP BY ALL
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
)
SELECT e.message_id, e.sent_at, e.from_address, e.from_name, e.subject,
    CAST(points AS DOUBLE) / greatest(2 * ${points}::DOUBLE * (SELECT count(*) FROM wanted), 1) AS score,
    list_sort(list_filter((SELECT coalesce(list(word), []) FROM wanted), lambda word: NOT list_contains(matched, word))) AS missing
FROM scored JOIN emails AS e USING (email_id)
WHERE (from_addr IS NULL OR trim(from_addr) = '' OR email_id IN (
        SELECT email_id FROM parties WHERE role = 'from' AND address_id IN (
            SELECT address_id FROM addresses WHERE address_matches(from_addr, address, names))))
    AND (to_addr IS NULL OR trim(to_addr) = '' OR email_id IN (
        SELECT email_id FROM parties WHERE role IN ('to', 'cc', 'bcc') AND address_id IN (
            SELECT address_id FROM addresses WHERE address_matches(to_addr, address, names))))
    AND (sent_after IS NULL OR e.sent_at >= CAST(sent_after AS DATE))
    AND (sent_before IS NULL OR e.sent_at < CAST(sent_before AS DATE))
ORDER BY points DESC, email_id DESC
LIMIT max_results;

-- A message id as it is stored; in a query it may lack its angle brackets.
CREATE MACRO in_brackets(wanted_id) AS
    CASE WHEN starts_with(trim(wanted_id), '<') THEN trim(wanted_id) ELSE '<' || trim(wanted_id) || '>' END;

-- One mail of an inbox, by its message id or that of a dropped copy; no row: not in this inbox.
CREATE MACRO read_inbox(inbox, wanted_id, as_of := NULL) AS TABLE
SELECT e.message_id, e.sent_at, e.from_address, e.from_name,
    e.to_recipients, e.cc_recipients, e.bcc_recipients, e.subject, e.body
FROM (
        SELECT email_id, 0 AS preference FROM emails WHERE message_id = in_brackets(wanted_id)
        UNION ALL SELECT email_id, 1 FROM aliases WHERE message_id = in_brackets(wanted_id)
    ) JOIN emails AS e USING (email_id)
WHERE email_id IN (
        SELECT email_id FROM parties
        WHERE address_id IN (SELECT address_id FROM addresses WHERE address = lower(inbox)))
    AND (as_of IS NULL OR e.sent_at < CAST(as_of AS DATE) + INTERVAL 1 DAY)
ORDER BY preference, email_id
LIMIT 1;
