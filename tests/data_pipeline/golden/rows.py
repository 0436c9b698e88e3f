"""Golden rows of any content, for property tests."""

import datetime as dt

from hypothesis import strategies as st

from art_e.question import DIFFICULTIES, KINDS, SPLITS, Question

# What UTF-8 can hold: a lone surrogate is cleaned before anything is stored.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
DAYS = st.none() | st.dates(dt.date(1979, 1, 1), dt.date(2030, 1, 1))


def some(*values: str | None) -> st.SearchStrategy[str | None]:
    return st.sampled_from([*values, None])


@st.composite
def questions(draw: st.DrawFn, ids: st.SearchStrategy[str] = TEXTS) -> Question:
    """A question as a generator or a file gave it: with neither checks nor mends."""
    return Question.from_row(
        {
            "id": draw(ids),
            "question": draw(TEXTS),
            "inbox_address": draw(TEXTS),
            "query_date": None if (day := draw(DAYS)) is None else day.isoformat(),
            "answer": draw(st.none() | TEXTS),
            "message_ids": draw(st.lists(TEXTS, max_size=3)),
            "how_realistic": draw(st.none() | st.floats(0, 1)),
            "kind": draw(some(*KINDS)),
            "difficulty": draw(some(*DIFFICULTIES)),
            "answerable": draw(st.sampled_from([True, False, None])),
            "split": draw(some(*SPLITS)),
            "provenance": draw(
                st.dictionaries(st.sampled_from(["model", "batch", "story"]), TEXTS)
            ),
        }
    )
