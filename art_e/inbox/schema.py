"""The SQL of an inbox file, its version, and the constants of the ranking."""

from functools import cache
from importlib import resources
from string import Template

from art_e.inbox.tokenizer import ADDRESS, CJK, STOP_WORDS, WORD, fold

# Goes up when older files can't be read any more.
SCHEMA_VERSION = "10"

# BM25 with its usual constants (Robertson and Zaragoza, 2009), subjects counted twice.
K1 = 1.2
B = 0.75
SUBJECT_WEIGHT = 2

# Points are millionths of a BM25 score, summed as whole numbers, so that the order of addition
# can't change a sum, in Python or in SQL.
POINTS = 1e6

# In SQL, of the person with the addresses `ids`: all mail, the mails that they have in several
# copies, each with the one that is shown, and all mail that is shown.
LISTED = """(
    SELECT email_id FROM parties WHERE address_id IN ({ids})
    UNION ALL SELECT email_id FROM junk_parties WHERE {junk} AND address_id IN ({ids})
)"""
_OTHERS = """(
    SELECT email_id FROM others_copies
    WHERE address_id IN ({ids}) AND coalesce(owner_id NOT IN ({ids}), true)
)"""
COPIES = f"""(
    SELECT email_id, min(email_id) OVER (PARTITION BY first_id) AS shown
    FROM owners_copies SEMI JOIN {LISTED} USING (email_id) ANTI JOIN {_OTHERS} USING (email_id)
)"""
SHOWN = f"""(
    SELECT email_id FROM {LISTED} WHERE email_id NOT IN {_OTHERS}
    AND email_id NOT IN (SELECT email_id FROM {COPIES} WHERE shown <> email_id)
)"""

_FOLDER = resources.files("art_e.inbox")


def tables_sql() -> str:
    """The statements that create an inbox file's empty tables."""
    return (_FOLDER / "schema.sql").read_text("utf-8")


@cache
def macros_sql() -> str:
    """The statements that create `search_inbox` and the macros that it uses."""
    quoted = ", ".join(f"'{word}'" for word in sorted(STOP_WORDS))
    # What Python makes of each character of Unicode; "\0" parts them. Those that vanish come last.
    text = "".join(map(chr, (*range(1, 0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))))
    pairs = zip(text, fold("\0".join(text)).split("\0"), strict=True)
    changed = sorted((pair for pair in pairs if pair[0] != pair[1]), key=lambda pair: not pair[1])
    return Template((_FOLDER / "macros.sql").read_text("utf-8")).substitute(
        stop_words=f"[{quoted}]",
        mail=SHOWN.format(ids="FROM ids_of(inbox)", junk="with_junk"),
        points=POINTS,
        k1=K1,
        k1_plus_1=K1 + 1,
        b=B,
        one_minus_b=1 - B,
        changed="".join(before for before, _ in changed),
        folded="".join(after for _, after in changed),
        letters="".join(f"{run[0]}-{run[-1]}" for run in WORD.findall(text)),
        cjk=f"[{CJK}]",
        address=ADDRESS,
    )
