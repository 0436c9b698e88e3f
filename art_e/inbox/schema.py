"""The SQL of an inbox file, its version, and the constants of the ranking."""

import re
from functools import cache
from pathlib import Path
from string import Template
from unicodedata import category, decomposition

from art_e.inbox.tokenizer import ADDRESS, MARKS, STOP_WORDS, WORD, fold
from art_e.text import CLASSES

SCHEMA_VERSION = "12"  # goes up when older files can't be read any more

# BM25 with its usual constants (Robertson and Zaragoza, 2009), subjects counted twice.
K1 = 1.2  # saturation: however frequent, a word counts less than K1 + 1 times its idf
B = 0.75  # share of a mail's length in the damping: 0 ignores it, 1 counts it in full
SUBJECT_WEIGHT = 2

# Points are millionths of a BM25 score, summed as whole numbers, so that the order of addition
# can't change a sum, in Python or in SQL.
POINTS = 1e6

_CASES = ("Lu", "Lt", "Mn", "Mc", "Me")  # Unicode's categories of capitals and accents

_FOLDER = Path(__file__).parent


def tables_sql() -> str:
    """Return the statements that create an inbox file's empty tables."""
    return (_FOLDER / "schema.sql").read_text("utf-8")


def statement(name: str, **values: object) -> str:
    """Return the statement `name` of queries.sql, with `values` filled in."""
    return statements(_FOLDER / "queries.sql")[name].substitute(values)


@cache
def statements(path: Path) -> dict[str, Template]:
    """Return a file's statements by name; `${name}` in one stands for an earlier one."""
    named: dict[str, Template] = {}
    text = path.read_text("utf-8")
    for name, sql in re.findall(r"^-- name: (\w+)\n((?:(?!--).*\n)+)", text, re.MULTILINE):
        earlier = {key: each.template for key, each in named.items()}
        named[name] = Template(Template(sql.strip()).safe_substitute(earlier))
    return named


@cache
def macros_sql() -> str:
    """Return the statements that create `search_inbox` and the macros that it uses."""
    quoted = ", ".join(f"'{word}'" for word in sorted(STOP_WORDS))
    # Copy Python's folding of every Unicode character into SQL.
    text = "".join(map(chr, (*range(1, 0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0xE1000))))
    # Skip characters that folding can't change, which saves half a second.
    pairs = ((char, fold(char)) for char in text if decomposition(char) or category(char) in _CASES)
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    # Characters that vanish come last; ligatures, which become several characters, are separate.
    single = sorted((pair for pair in changed if len(pair[1]) < 2), key=lambda pair: not pair[1])
    ligatures = [pair for pair in changed if len(pair[1]) > 1]
    return Template((_FOLDER / "macros.sql").read_text("utf-8")).substitute(
        stop_words=f"[{quoted}]",
        mail=statement("shown", ids="FROM ids_of(inbox)", junk="with_junk"),
        points=POINTS,
        k1=K1,
        k1_plus_1=K1 + 1,
        b=B,
        one_minus_b=1 - B,
        changed="".join(before for before, _ in single),
        folded="".join(after for _, after in single).replace("'", "''"),
        ligatures="".join(before for before, _ in ligatures),
        apart=" ".join(after for _, after in ligatures),
        letters="".join(f"{run[0]}-{run[-1]}" for run in WORD.findall(text)),
        unspaced=CLASSES["unspaced"],
        marks=list(MARKS),
        address=ADDRESS,
    )
