"""What the viewer's page is given of runs."""

import asyncio
import json
import sys
from typing import Any

import pytest

from art_e.agent import run_episode
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from evals.report.build import KEPT_CHARS, plain, viewer_data
from evals.scored import Scored
from tests import builders
from tests.evals.runs import Outcome, episode, question


def scored(outcome: Outcome, **options: Any) -> Scored:
    return Scored(question(0), episode(question(0), outcome, **options))


def only(data: dict[str, Any]) -> dict[str, Any]:
    [episode] = data["episodes"]
    return dict(episode)


def test_a_real_episode_becomes_turns_with_the_results_of_each_call(inbox_file: InboxFile) -> None:
    script = [
        builders.message(builders.search("lease", "swimming"), text="Let me look."),
        builders.message(builders.read("m1"), builders.read("m99")),
        builders.message(builders.call("delete_email", {"message_id": "m1"})),
        builders.message(builders.answer("On May 3.", "m1")),
    ]
    inbox = inbox_file.open_inbox(builders.BOB, builders.QUESTION.query_date)
    begun = Episode(inbox, builders.QUESTION, max_turns=4)
    trajectory = asyncio.run(run_episode(begun, builders.ScriptedPolicy(script), "r"))
    data = viewer_data([Scored(builders.QUESTION, trajectory)])
    shared = data["shared"]
    found, reads, wrong, answer = only(data)["turns"]
    assert shared[found["says"]] == "Let me look."
    [call] = found["calls"]
    assert call["tool"] == "search_emails"
    assert call["arguments"] == {"keywords": ["lease", "swimming"]}
    [lease, *_] = call["results"][0]["hits"]
    assert shared[lease["head"]]["id"] == builders.LEASE
    assert (lease["handle"], lease["missing"]) == ("m1", ["swimming"])
    first, second = (each["results"] for each in reads["calls"])
    assert shared[first[0]["mail"]]["body"].startswith("The lease of the harbor office")
    assert "not found in this inbox" in shared[second[0]["error"]]
    error, note = wrong["calls"][0]["results"]
    assert "no tool 'delete_email'" in shared[error["error"]]
    assert "one turn left" in shared[note["note"]]
    assert answer["calls"][0]["arguments"] == {"answer": "On May 3.", "sources": ["m1"]}


GOLD, GONE = "<gold-0@test.example>", "<unseen@test.example>"


@pytest.mark.parametrize(
    ("ended", "gold", "rubric", "facts"),
    [
        ("right", (GOLD,), {}, [(True, True, True)]),
        ("not read", (GOLD,), {}, [(True, False, False)]),
        ("not found", (GOLD,), {}, [(False, False, False)]),
        # Of two gold mails each has its own facts.
        ("wrong", (GOLD, GONE),
         dict.fromkeys(("found_gold", "read_gold", "sources_correct"), False),
         [(True, True, True), (False, False, False)]),
        # The id of another copy counts where the rubric says so.
        ("right", (GONE,), {"sources_correct": False}, [(True, True, False)]),
    ],
)  # fmt: skip
def test_gold_mails_are_found_read_and_cited(
    ended: Outcome, gold: tuple[str, ...], rubric: dict[str, bool], facts: list[tuple[bool, ...]]
) -> None:
    made = episode(question(0), ended)
    made.rubric.update(rubric)
    rows = only(viewer_data([Scored(question(0, message_ids=gold), made)]))["gold"]
    assert [(each["found"], each["read"], each["cited"]) for each in rows] == facts


def test_hidden_characters_are_spelt_out() -> None:
    hostile = "pay\u202etca\ud800 \x1b[31m\u200b\U000e0041 \u2028 ok\r\nnext"
    shown = "pay[U+202E]tca[U+D800] [U+001B][31m[U+200B][U+E0041] [U+2028] ok\nnext"
    assert plain({hostile: [hostile]}) == {shown: [shown]}


def test_a_huge_text_is_cut_and_numbers_that_json_lacks_do_not_break_the_page() -> None:
    odd: dict[str, Any] = {"reward": {"correctness": float("nan")}, "cost": float("inf")}
    data = viewer_data([scored("wrong", step=40, final_answer="x" * 1_000_000, **odd)])
    json.dumps(data, allow_nan=False)
    row = only(data)
    assert (row["reward"], row["cost"], row["components"]) == (None, None, {"correctness": "nan"})
    assert row["step"] == 40
    assert len(row["answer"]) < KEPT_CHARS + 100
    assert row["answer"].endswith("[cut here: 900,000 more characters in trajectories.jsonl]")


@pytest.mark.parametrize(
    "arguments", ["not JSON", "[1, 2]", '{"keywords": ', "[" * sys.getrecursionlimit() * 3]
)
def test_arguments_that_are_no_object_stay_as_they_were_written(arguments: str) -> None:
    wrong = builders.message(builders.call("search_emails", arguments)).to_chat()
    observation = {"role": "tool", "tool_call_id": "call-0", "content": "<html>502</html>"}
    data = viewer_data([scored("lost", messages=[wrong, observation])])
    (turn,) = only(data)["turns"]
    (call,) = turn["calls"]
    assert (call["arguments"], turn["notes"]) == (arguments, [])
    assert [data["shared"][each["text"]] for each in call["results"]] == ["<html>502</html>"]
