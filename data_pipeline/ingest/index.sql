-- Fill the search index from the merged copies, while the other tables are filled.
-- Terms are numbered by stem; those of dropped copies alone (a sender's other name) are left out.
-- Whole addresses of parties are terms too, like those in the text.
CREATE TEMP TABLE named AS
SELECT DISTINCT email_id, address AS stem FROM staging.roles WHERE role <> 'owner' AND contains(address, '@') AND length(address) <= 64;

CREATE TEMP TABLE kept_terms AS
SELECT term, stem FROM staging.stems
WHERE term IN (SELECT term FROM staging.postings WHERE row IN (SELECT row FROM staging.kept));

CREATE TEMP TABLE ordered AS
SELECT stem FROM kept_terms UNION SELECT stem FROM named ORDER BY stem;

CREATE TEMP TABLE numbered AS
SELECT term, CAST(ordered.rowid AS INTEGER) AS term_id, stem FROM ordered LEFT JOIN kept_terms USING (stem);

INSERT INTO inbox.terms
SELECT word, term_id, stem FROM staging.words JOIN numbered USING (term)
WHERE row IS NULL OR row IN (SELECT row FROM staging.kept)
UNION SELECT stem, term_id, stem FROM numbered WHERE contains(stem, '@') -- an address
ORDER BY ALL;

INSERT INTO inbox.postings
WITH in_text AS (
    SELECT n.term_id, k.email_id, p.frequency
    FROM staging.postings AS p JOIN staging.kept AS k USING (row) JOIN numbered AS n USING (term)
)
FROM in_text
UNION ALL
SELECT term_id, email_id, 1
FROM named JOIN (SELECT DISTINCT stem, term_id FROM numbered) USING (stem)
    ANTI JOIN (FROM in_text WHERE term_id IN (SELECT term_id FROM numbered WHERE contains(stem, '@'))) USING (term_id, email_id)
ORDER BY term_id, email_id;
