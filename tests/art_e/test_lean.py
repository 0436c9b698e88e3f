"""Lean observations: what is left out is named, copies are one hit, nothing is shown twice."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.episode import Episode, EpisodeForm
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words
from art_e.message import compact_json
from art_e.models.checkpoint import episode_form
from art_e.observation import ShownTexts, tidy_lines, tidy_text
from art_e.question import Question
from art_e.text import digest
from art_e.tools import LEAN_ARGUMENTS, NAMED_RECIPIENTS, LeanTools, View, schemas
from tests.builders import answer, date_header, message, new_file, raw, read, run, search, table

BOB = "bob@test.example"
CASES = table(__file__, "lean.toml")
OFFER, FRAME = CASES["offer"], CASES["frame"]
CROWD = ", ".join(f"P{number} <p{number}@test.example>" for number in range(10))
TALK = "we talked about the quay and its lamps for a while. " * 3
MINUTES = [f"Item {number}: {TALK}" for number in range(40)]
MINUTES[30] += "The lighthouse was sold to Gus."
WORDS = {"offer": OFFER, "frame": FRAME, "crowd": CROWD, "minutes": "\n".join(MINUTES)}
FIELDS = [{name: text.format(**WORDS) for name, text in each.items()} for each in CASES["mails"]]
MAILS = [
    *(raw(**fields) for fields in FIELDS),
    *(raw(f"<noise{number}@t>", subject="News", body=f"Nothing about any office, part {number}.",
          date=date_header(8 + number)) for number in range(8)),
]  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    with new_file(tmp_path_factory.mktemp("lean") / "inbox.duckdb", MAILS) as opened:
        yield opened


@pytest.fixture
def tools(file: InboxFile) -> LeanTools:
    return LeanTools(file.open_inbox(BOB), View(lean=True))


LINES = st.text(st.sampled_from("ab1 \t>-*.,\n[]é"), max_size=300)


@given(LINES, LINES)
def test_each_word_is_shown_or_was_shown_before(first: str, second: str) -> None:
    assert words(" ".join(tidy_lines(first, ""))) == words(first)
    history = ShownTexts()
    history.note(tidy_text(first, "", "Ann"), "m1")
    new = history.new(tidy_text(second, "", "Bob"))
    assert {*words(second)} - {*words(first)} <= {*words(" ".join(new))}


def test_frames_count_the_recipients_they_leave_out() -> None:
    frame = FRAME.replace("Bob; Cid", "Bob; Cid; Dora <dora@t>; Emil")
    assert tidy_lines(f"See below.\n\n{frame}Done.", "Offer") == [
        "See below.", "[from Ann Alder, 3 Jan, to Bob, Cid and 2 more]", "Done.",
    ]  # fmt: skip
    # A mail can't write such a line itself.
    assert tidy_lines("[quoted from m1]\n[from Ann]", "") == ["(quoted from m1]", "(from Ann]"]


def test_search_shows_short_mails_whole_and_leaves_off_weak_hits(tools: LeanTools) -> None:
    result = run(tools, search("harbor", "office", "dollars"))
    first, *others = result["hits"]
    assert first["complete"] and "4,120 dollars" in first["body"]
    # The forward and the original are one hit, and the reply shows what it adds.
    assert len(first["same_text"]) == 1
    reply = next(hit for hit in others if hit["subject"] == "Re: Offer")
    assert "says Dora" in reply["body"] and "[quoted from m1]" in reply["body"]
    assert "4,120" not in reply["body"]
    assert not any(hit["subject"] == "News" for hit in others)
    assert "weaker hits left off; max_results shows them" in result["note"]
    weaker = run(tools, search("harbor", "office", max_results=10))["hits"]
    assert any(hit.get("subject") == "News" for hit in weaker)
    for line in (run(tools, search("dollars"))["hits"][0], run(tools, read(first["message_id"]))):
        assert line | {"same_text": 0} == {"message_id": "m1", "shown": "above", "same_text": 0}
    assert "4,120 dollars" in run(tools, read("m1", page=1))["body"]


def test_misspelled_words_are_corrected_with_a_note(tools: LeanTools) -> None:
    result = run(tools, search("harbro", "dollars"))
    assert result["hits"][0]["subject"] == "Offer of a harbor office"
    assert "harbro: searched as harbor" in result["note"]
    # Words of other people's mail are none.
    assert run(tools, search("sekret"))["hits"] == []


def test_signatures_disclaimers_and_recipients_are_short(tools: LeanTools) -> None:
    run(tools, search("harbor", "dollars"))
    body = run(tools, read("<second@t>"))["body"].split("\n ")
    assert body == ["The keys of the harbor office are with Emil.", "[signature]", "[disclaimer]"]
    *names, more = run(tools, read("<crowd@t>"))["to"]
    assert (names[1], len(names), more) == ("P0", NAMED_RECIPIENTS, "3 more")
    people = run(tools, read("<crowd@t>", page=0))
    assert len(people["to"]) == 11 and people["to"][-1] == "P9 <p9@test.example>"


def test_a_long_mail_has_pages(tools: LeanTools) -> None:
    opened = run(tools, read("<long@t>"))
    assert opened["page"].startswith("1 of ") and "lighthouse" not in opened["body"]
    last = int(opened["page"].split()[-1])
    pages = [run(tools, read("<long@t>", page=number))["body"] for number in range(1, last + 1)]
    assert sum(page.count("Item ") for page in pages) == 40
    [right] = [number for number, page in enumerate(pages, 1) if "lighthouse" in page]
    assert run(tools, read("<long@t>", find="Lighthouse sold"))["page"] == f"{right} of {last}"
    again = LeanTools(tools.inbox, View(lean=True))
    run(again, search("lighthouse", max_results=1))
    assert run(again, read("<long@t>"))["page"] == f"{right} of {last}"


def test_mails_shown_whole_count_as_read_and_copies_as_sources(file: InboxFile) -> None:
    question = Question(
        "q", "What does the office cost?", BOB, dt.date(2020, 2, 1), answer="4,120 dollars",
        message_ids=("<copy@t>",), answerable=True,
    )  # fmt: skip
    episode = EpisodeForm().begin(file.open_inbox(BOB), question)
    assert isinstance(episode, Episode)
    episode.step(message(search("harbor", "office", "dollars")))
    assert episode.rubric.found_gold and episode.rubric.read_gold
    episode.step(message(answer("4,120 dollars", "m1")))
    assert episode.rubric.sources_correct
    [event, _] = episode.events
    assert {"<copy@t>", "<offer@t>"} <= {*event["whole"]} <= {*event["found"]}


def test_older_checkpoints_keep_their_form_and_schemas(tmp_path: Path) -> None:
    (tmp_path / "episode.json").write_text('{"max_turns": 4}')
    assert episode_form(str(tmp_path)) == EpisodeForm(max_turns=4, lean=False)
    assert digest(compact_json(schemas())) == "cf21efe1ac9db846"
    lean = [each["function"] for each in schemas(lean=True)]
    assert [each["name"] for each in lean] == list(LEAN_ARGUMENTS)
    assert {*lean[1]["parameters"]["properties"]} == {"message_id", "page", "find"}
