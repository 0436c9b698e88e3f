"""The SQL of an inbox file, its version, and the constants of the ranking."""

from importlib import resources
from string import Template

from art_e.inbox.tokenizer import ADDRESS, CJK, STOP_WORDS

# Goes up when older files can't be read any more.
SCHEMA_VERSION = "8"

# BM25 with its usual constants (Robertson and Zaragoza, 2009), subjects counted twice.
K1 = 1.2
B = 0.75
SUBJECT_WEIGHT = 2

# Points are millionths of a BM25 score, summed as whole numbers, so that the order of addition
# can't change a sum, in Python or in SQL.
POINTS = 1e6

_FOLDER = resources.files("art_e.inbox")


def tables_sql() -> str:
    """The statements that create an inbox file's empty tables."""
    return (_FOLDER / "schema.sql").read_text("utf-8")


def macros_sql() -> str:
    """The statements that create `search_inbox` and the macros that it uses."""
    quoted = ", ".join(f"'{word}'" for word in sorted(STOP_WORDS))
    return Template((_FOLDER / "macros.sql").read_text("utf-8")).substitute(
        stop_words=f"[{quoted}]",
        points=POINTS,
        k1=K1,
        k1_plus_1=K1 + 1,
        b=B,
        one_minus_b=1 - B,
        cjk=f"[{CJK}]",
        address=ADDRESS,
    )
