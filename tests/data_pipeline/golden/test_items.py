"""Reading what a model wrote: whole, cut off, wrong in one place, or none of it."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.question import DIFFICULTIES, KINDS
from data_pipeline.golden.generate import GeneratedItem, GeneratedItems, NoQuestion, read_items
from evals.judges.llm import UnparseableError

GOOD: dict[str, Any] = {
    "kind": "lookup",
    "question": "When does my lease end?",
    "answer": "March 31, 2002",
    "mails": ["m1"],
    "how_realistic": 0.8,
    "difficulty": "easy",
}
ITEMS = st.lists(
    st.fixed_dictionaries(
        {
            "mails": st.lists(st.sampled_from(["m1", "m20", "m37", ""]), max_size=3),
            "kind": st.sampled_from(KINDS),
            "question": st.text(min_size=1).filter(str.strip),
            "answer": st.text(),
            "difficulty": st.sampled_from(DIFFICULTIES),
            # Last: a number that is cut is another number.
            "how_realistic": st.floats(0, 1),
        }
    ),
    max_size=5,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, "items", "x"]), inner),
)


def reply(*items: Any) -> str:
    return json.dumps({"items": list(items)})


def good(found: list[GeneratedItem | NoQuestion]) -> list[GeneratedItem]:
    return [each for each in found if isinstance(each, GeneratedItem)]


@given(ITEMS, st.data(), st.booleans())
def test_cut_anywhere_it_gives_its_first_items(
    items: list[dict[str, Any]], data: st.DataObject, ascii_only: bool
) -> None:
    text = json.dumps(
        {"items": items}, ensure_ascii=ascii_only, indent=data.draw(st.none() | st.just(1))
    )
    whole = read_items(text)
    assert whole == good(whole)
    assert len(whole) == len(items)
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        found = read_items(cut)
    except UnparseableError:
        return
    used = good(found)
    assert used == whole[: len(used)]
    # Of the one that was cut, what there is is kept, and nothing else was lost.
    assert [type(each) for each in found[len(used) :]] in ([], [NoQuestion])
    ended = len(items) if items and cut.rstrip(" \n]}") == text.rstrip(" \n]}") else None
    assert ended is None or len(used) in (ended, ended - 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "riddle"}, "kind: Input should be"),
        ({"question": "  "}, "question: it is empty"),
        ({"how_realistic": 1.2}, "how_realistic: it is not from 0 to 1"),
        ({"how_realistic": "very"}, "how_realistic:"),
        ({"mails": "m1"}, "mails:"),
        ({"difficulty": None}, "difficulty:"),
    ],
)
def test_one_wrong_item_costs_no_other(change: dict[str, Any], reason: str) -> None:
    first, wrong, last = read_items(reply(GOOD, {**GOOD, **change}, GOOD))
    assert isinstance(wrong, NoQuestion)
    assert wrong.reason.startswith(reason)
    assert json.loads(wrong.item) == {**GOOD, **change}
    assert first == last == GeneratedItem(**GOOD)


def test_texts_are_single_spaced_and_no_answer_is_an_empty_one() -> None:
    item = {**GOOD, "question": " When\n does\tit end? ", "answer": None, "kind": "unanswerable"}
    [found] = read_items(reply(item))
    assert isinstance(found, GeneratedItem)
    assert (found.question, found.answer) == ("When does it end?", "")


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Here are your questions.",
        f"Sure! {reply(GOOD)}",
        f"```json\n{reply(GOOD)}\n```",
        "[]",
        '{"questions": []}',
        '{"items": {}}',
        '{"items": [',
        '{"items": [{"kind": "loo',
        "null",
        "[" * 100_000,
        '{"items": ' + "[" * 100_000,
    ],
)
def test_what_holds_no_item_is_said_so(said: str) -> None:
    with pytest.raises(UnparseableError) as raised:
        read_items(said)
    assert "\n" not in str(raised.value)


def test_the_form_is_plain_enough_for_any_provider() -> None:
    schema = json.dumps(GeneratedItems.model_json_schema())
    assert not {"minimum", "maximum", "minLength", "pattern"} & set(
        schema.replace('"', " ").split()
    )
    assert set(get_args(GeneratedItem.model_fields["kind"].annotation)) == set(KINDS)
