"""Episodes read back from a run's folder, and what is known of each."""

from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from art_e.message import ChatMessage
from evals.scored import Scored, load_run
from tests.builders import answer, call, message, trajectory
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search
from tests.evals.runs import OUTCOMES, Outcome, episode, question, write_run


def test_a_run_is_read_with_its_questions_finished_or_killed(tmp_path: Path) -> None:
    asked = [question(number) for number in range(len(OUTCOMES))]
    made = [episode(each, outcome) for each, outcome in zip(asked, OUTCOMES, strict=True)]
    run = write_run(tmp_path / "run", made, complete=False)
    assert load_run(run) == [Scored(each, one) for each, one in zip(asked, made, strict=True)]
    with run.trajectories.open("ab") as file:
        file.write(b'{"schema": "art-e/traj')
    assert len(load_run(run)) == len(made)


def test_a_run_that_can_not_be_read_is_one_line(tmp_path: Path) -> None:
    empty = write_run(tmp_path / "empty", [], complete=False)
    with pytest.raises(UserError, match="no episode"):
        load_run(empty)
    old = write_run(tmp_path / "old", [trajectory()])
    with pytest.raises(UserError, match="has no question"):
        load_run(old)
    torn = write_run(tmp_path / "torn", [trajectory(question={"id": "q"})])
    with pytest.raises(UserError, match="no question: 'query_date'"):
        load_run(torn)


@pytest.mark.parametrize(
    ("outcome", "second", "correct", "wrong", "unjudged"),
    [
        ("right", None, [True], [False], False),
        ("wrong", None, [False], [True], False),
        ("wrong", True, [False, True], [True, False], False),
        # An abstention that is not right is no hallucination.
        ("abstained", None, [False], [False], False),
        ("unjudged", None, [False], [False], True),
        ("failed", None, [False], [False], False),
        ("out of turns", None, [False], [False], False),
    ],
)
def test_what_the_judges_say(
    outcome: Outcome, second: bool | None, correct: list[bool], wrong: list[bool], unjudged: bool
) -> None:
    asked = question(0, kind="lookup")
    scored = Scored(asked, episode(asked, outcome, second=second))
    assert [scored.correct_by(judge) for judge in range(len(correct))] == correct
    assert [scored.wrong_by(judge) for judge in range(len(wrong))] == wrong
    assert (scored.correct, scored.wrong) == (correct[0], wrong[0])
    assert scored.unjudged is unjudged


def conversation(*turns: tuple[Any, list[str]]) -> list[ChatMessage]:
    messages: list[ChatMessage] = [{"role": "user", "content": "When?"}]
    for said, observations in turns:
        chat = said.to_chat()
        messages.append(chat)
        messages += [
            {"role": "tool", "tool_call_id": made["id"], "content": text}
            for made, text in zip(chat["tool_calls"], observations, strict=True)
        ]
    return messages


def test_the_mails_that_were_read_are_those_that_a_tool_showed() -> None:
    handles = {"m1": "<1@t>", "m2": "<2@t>", "m3": "<3@t>"}
    messages = conversation(
        (message(search("lease")), ['{"hits":[{"message_id":"m1"},{"message_id":"m3"}]}']),
        (
            message(read("m3"), read("m3"), read("m1"), read("gone"), call("read_email", "{")),
            [
                "no JSON, as a file of another's making may hold",
                '["message_id"]',
                '{"message_id":"m1","body":"{\\"message_id\\":\\"m3\\"}"}',
                '{"error":"not found in this inbox"}',
                '{"error":"the arguments of read_email are not JSON"}',
            ],
        ),
        # By its id, once more, and with the note on the last turn.
        (
            message(read("<2@t>"), read("m1")),
            ['{"message_id":"m2"}', '{"message_id":"m1"}\n{"note":"one turn left"}'],
        ),
        (message(answer("In May.", "m3")), ['{"done":true}']),
    )
    assert trajectory(messages=messages, handles=handles).mails_read == ["<1@t>", "<2@t>"]
    # In the reference's form there are no handles.
    spelt = conversation((message(read("<9@t>")), ['{"message_id":"<9@t>"}']))
    assert trajectory(messages=spelt, handles={}).mails_read == ["<9@t>"]
    assert trajectory().mails_read == []
