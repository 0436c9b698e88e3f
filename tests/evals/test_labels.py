"""`eval label`, the labelled set, and how far a judge agrees with labels.

A person's keys become labels: blind, safe, resumable, the last one counts.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.main import app
from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import Run
from evals.judges import labels
from evals.scored import Scored, Verdict, load_run
from tests.command_line import HOSTILE, assert_safe, the_error
from tests.evals.runs import episode, episodes, question, write_run


@pytest.fixture
def run(home: Path) -> Run:
    made = episodes("secret-model", {"right": 4, "wrong": 3, "abstained": 2, "failed": 1})
    made += episodes("other", {"unjudged": 1, "out of turns": 2})
    return write_run(home / "runs" / "mine", made)


def label(home: Path, keys: str, *args: object) -> Result:
    runner = CliRunner(env={"ART_E_HOME": str(home)})
    return runner.invoke(app, ["eval", "label", "mine", *map(str, args)], input=keys)


def drawn(run: Run) -> list[Scored]:
    return labels.chosen_for_labels(load_run(run))


def test_keys_become_labels_in_the_order_shown(run: Run, home: Path) -> None:
    result = label(home, "rwsR?q")
    assert result.exit_code == 0, result.output
    first, second, _, fourth, *_ = (each.trajectory.episode_id for each in drawn(run))
    assert labels.read_labels(run) == {first: True, second: False, fourth: True}
    for words in ("there is no key '?'", "3 labels added", "art-e eval judge --run mine"):
        assert words in result.stderr


def test_it_goes_on_where_it_stopped(run: Run, home: Path) -> None:
    everyone = [each.trajectory.episode_id for each in drawn(run)]
    label(home, "rrq")
    again = label(home, "w" * len(everyone))
    assert f"3 of {len(everyone)}" in again.stdout
    assert f"2 of {len(everyone)}" not in again.stdout
    assert labels.read_labels(run) == {name: place < 2 for place, name in enumerate(everyone)}
    labels.write_label(run, everyone[0], correct=False)
    assert labels.read_labels(run) == {name: place == 1 for place, name in enumerate(everyone)}
    # All are labelled: nothing is asked.
    done = label(home, "")
    assert "[r]ight" not in done.stderr and "0 labels added" in done.stderr


def test_it_shows_what_is_needed_and_nothing_of_the_verdict(run: Run, home: Path) -> None:
    printed = label(home, "q").stdout
    first = drawn(run)[0]
    assert first.trajectory.verdict is not None
    assert first.question.question in printed
    assert f"gold      {first.question.answer or '(the mail does not tell)'}\n" in printed
    assert str(first.trajectory.final_answer) in printed
    assert f"| The lease ends. {first.question.answer or ''}".rstrip() in printed
    assert "Ann Alder <ann@test.example>" in printed
    assert "cited" in printed
    for secret in ("secret-model", "offline", first.trajectory.verdict["reason"]):
        assert secret not in printed
    # The mail comes first: what is compared stands together above the keys.
    assert printed.index("| The lease ends") < printed.index("question  ")


def test_hostile_mail_is_only_text_and_not_endless(home: Path) -> None:
    item = question(0, question=f"When? {HOSTILE}", answer=f"On May 1. {HOSTILE}")
    messages = json.loads(json.dumps(episode(item, "wrong").messages))
    for message in messages:
        if message["role"] == "tool" and '"body"' in message["content"]:
            mail = json.loads(message["content"])
            mail |= {"subject": HOSTILE, "from": HOSTILE, "body": f"{HOSTILE}\nline\n" * 100}
            # As the episode writes it before the last turn.
            message["content"] = json.dumps(mail) + '\n{"note": "one turn left"}'
        elif message["role"] == "tool":
            message["content"] = "no JSON"
    hostile = episode(item, "wrong", messages=messages, final_answer=HOSTILE)
    write_run(home / "runs" / "mine", [hostile])
    result = label(home, "r")
    assert result.exit_code == 0, result.output
    assert "[bold]red[/bold]" in result.stdout
    assert "more characters)" in result.stdout
    assert len(result.stdout.splitlines()) < 60
    assert_safe(result.stdout)


def test_a_run_without_answers_is_one_line(home: Path, art_e: Any) -> None:
    write_run(home / "runs" / "mine", episodes("weak", {"abstained": 2, "failed": 1}))
    assert "no judged answer" in the_error(art_e("eval", "label", "mine"))


# ---- Judges against labels: figures worked out by hand.


def rated(label: bool, said: bool | None, number: int, category: str = "dates") -> labels.Rated:
    question = Question(f"q{number}", "When?", "", answer="May 3")
    case = labels.Case(question, "May 3", label, category, adversarial=category == "appeals")
    return labels.Rated(case, Verdict(said, None, "a judge", "because"))


def table(both: int, missed: int, fooled: int, neither: int) -> list[labels.Rated]:
    """So many right ones called right, right called wrong, wrong called right, wrong wrong."""
    cells = [(True, True)] * both + [(True, False)] * missed
    cells += [(False, True)] * fooled + [(False, False)] * neither
    return [rated(label, said, number) for number, (label, said) in enumerate(cells)]


def test_figures_worked_out_by_hand_without_missing_verdicts() -> None:
    """Of 50 verdicts, as textbooks count them, and 10 that are missing."""
    unjudged = [rated(bool(number % 2), None, 50 + number) for number in range(10)]
    figures = labels.agreement([*table(20, 5, 10, 15), *unjudged])
    assert (figures["n"], figures["unjudged"]) == (60, 10)
    assert list(figures["confusion"].values()) == [20, 5, 10, 15]
    assert figures["agreement"]["value"] == pytest.approx(35 / 50)
    # By chance half of them agree.
    assert figures["kappa"]["value"] == pytest.approx(0.4)
    assert labels.agreement(unjudged)["agreement"]["value"] is None
    # A judge that failed on the one answer that needs it has judged nothing.
    needing = unjudged[0]._replace(case=unjudged[0].case._replace(answer="4 May"))
    judged = [*table(20, 5, 10, 15), needing]
    assert labels.agreement(judged)["agreement"]["value"] is None


ROW: dict[str, Any] = {
    "question": "When is it?", "gold": "May 4", "answer": "4 May", "label": True,
    "why": "same day", "category": "dates", "adversarial": False, "half": "tuning",
}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no labelled pair"),
        ([ROW, {**ROW, "half": "third"}], "line 2: half"),
        ([{name: ROW[name] for name in ROW if name != "why"}], "line 1: why"),
    ],
)
def test_what_is_no_pair_is_named(tmp_path: Path, rows: list[object], words: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with pytest.raises(UserError, match=words):
        labels.load_pairs(path)
