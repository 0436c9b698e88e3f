"""Figures over seeds and questions, and the experiments: their runs, and pages of made-up runs."""

import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from art_e.episode import Rubric
from art_e.errors import UserError
from art_e.question import Question
from art_e.trajectory import Trajectory
from evals.scored import Scored
from tests import builders as episodes
from training import commands, experiments
from training.commands import Command, carry_out, train_command
from training.experiments import hack_charts, main, replay_of, variants
from training.pooled import ACCURACY, EFFORT_RIGHT, INVENTED, Pool, PooledRuns, episodes_of_test
from training.progress import Step, append_step
from training.recipe import load_recipe

# Made-up runs: question i is answerable but for every fourth one.
NUMBER = 24


def question(number: int) -> Question:
    answerable = number % 4 != 0
    return Question(
        id=f"q{number:02}",
        question="When does the lease end?",
        inbox_address=f"inbox{number % 3}@test.example",
        query_date=date(2020, 1, 31),
        answer="May 3" if answerable else None,
        message_ids=("<1@t>",) if answerable else (),
        answerable=answerable,
        kind="lookup" if answerable else "unanswerable",
    )


def episode(
    asked: Question, policy: dict[str, Any], *, right: bool, effort: int = 3, **fields: Any
) -> Trajectory:
    """An episode that is right, or gives a wrong answer."""
    abstains = right and not asked.answerable
    rubric = Rubric(
        max_turns=6,
        answerable=asked.answerable,
        answered=not abstains,
        abstained=abstains,
        turns=effort,
        effort=effort,
    )
    decided, paid = ({"correct": each, "grounded": True} for each in (right, not right))
    return episodes.trajectory(
        episode_id=f"{asked.id}-{policy}",
        question_id=asked.id,
        question=asked.to_row(),
        policy=policy,
        rubric=dataclasses.asdict(rubric),
        # The reward's judge says the opposite: the other one decides.
        verdict={**paid, "judge": "reward", "reason": ""},
        other_verdicts=[{**decided, "judge": "other", "reason": ""}],
        **fields,
    )


def made(
    folder: Path,
    right: int,
    *,
    effort: int = 3,
    kind: str = "grpo",
    alarms: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """A run that has ended, with its first `right` test questions right."""
    folder.mkdir(parents=True)
    recipe = load_recipe("nano").to_row()
    (folder / "config.json").write_text(json.dumps({"kind": kind, "recipe": recipe}))
    asked = [question(number) for number in range(NUMBER)]
    lines = [
        episode(
            each, {"temperature": heat, "seed": 0}, right=number < right, effort=effort
        ).to_line()
        for heat in (1.0, 0.0)
        for number, each in enumerate(asked)
    ]
    # In another order than that of the ids.
    (folder / "test.jsonl").write_text("".join(f"{each}\n" for each in reversed(lines)))
    validation = [
        {"step": step, "accuracy": 0.25 + step / 100, "hallucination_unanswerable": None,
         "format_errors": 0.1, "effort_when_correct": 3.0}
        for step in (0, 10, 20)
    ]  # fmt: skip
    metrics = {"validation": validation, "seconds": 60.0, "alarms": list(alarms)}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "COMPLETE").touch()
    return folder


def test_answers_are_judged_by_the_judge_of_validations(tmp_path: Path) -> None:
    runs = [episodes_of_test(made(tmp_path / str(right), right)) for right in (12, 24)]
    asked = PooledRuns([each["sampled"] for each in runs])
    assert [each.question.id for each in asked.runs[0]] == sorted(
        question(number).id for number in range(NUMBER)
    )
    accuracy, invented, effort = (asked.matrix(each) for each in (ACCURACY, INVENTED, EFFORT_RIGHT))
    assert np.nansum(accuracy, axis=1).tolist() == [9, 18]
    assert np.nansum(invented, axis=1).tolist() == [3, 0]
    assert np.isnan(accuracy).tolist() == (~np.isnan(invented)).tolist()
    assert np.isnan(effort[0]).sum() == NUMBER - 9


def test_a_test_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", 12)
    lines = (folder / "test.jsonl").read_text().split("\n")
    (folder / "test.jsonl").write_text("\n".join(lines[:NUMBER]) + "\n")
    with pytest.raises(UserError, match="not all of the test"):
        episodes_of_test(folder)
    (folder / "test.jsonl").write_text("{\n")
    with pytest.raises(UserError, match="can't be read"):
        episodes_of_test(folder)


def test_runs_of_other_questions_are_not_pooled() -> None:
    def run(*numbers: int) -> list[Scored]:
        asked = [question(number) for number in numbers]
        return [Scored(each, episode(each, {}, right=True)) for each in asked]

    with pytest.raises(UserError, match="same questions"):
        PooledRuns([run(1, 2), run(1, 3)])
    with pytest.raises(UserError, match="once"):
        PooledRuns([run(1, 1)])


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What would be run; nothing is."""
    called: list[list[str]] = []

    class Done:
        returncode = 0

    def run(arguments: list[str], **_: Any) -> Done:
        called.append(arguments)
        return Done()

    monkeypatch.setattr(commands.subprocess, "run", run)  # type: ignore[attr-defined]
    return called


def test_runs_that_ended_are_skipped_and_begun_ones_go_on(
    tmp_path: Path, ended: list[list[str]]
) -> None:
    made(tmp_path / "ended", 12)
    begun = made(tmp_path / "begun", 12)
    (begun / "COMPLETE").unlink()
    changes = ("reward.effort=0",)
    carry_out(
        [
            train_command("sft", tmp_path / "ended", "nano", 1),
            train_command("grpo", begun, "nano", 1, changes, tmp_path / "ended"),
            train_command("sft", tmp_path / "new", "nano", 2),
        ]
    )
    command = [sys.executable, "-m", "art_e", "train"]
    assert [each[:4] for each in ended] == [command, command]
    assert [" ".join(each[4:]) for each in ended] == [
        f"grpo --recipe nano --seed 1 --set reward.effort=0 --init {tmp_path / 'ended'}"
        f" --out {begun} --resume",
        f"sft --recipe nano --seed 2 --out {tmp_path / 'new'}",
    ]


def test_a_run_that_fails_ends_the_chain(tmp_path: Path) -> None:
    wrong = train_command("sft", tmp_path / "run", "no-such-recipe", 0)
    after = train_command("sft", tmp_path / "after", "nano", 0)
    with pytest.raises(UserError, match="exit code 2"):
        carry_out([wrong, after])
    assert not (tmp_path / "after").exists()


def test_variants_are_recipes(tmp_path: Path) -> None:
    recipes = {name: load_recipe("nano", own) for name, own in variants("nano", ()).items()}
    full, no_effort, unbanded, binary = recipes.values()
    assert full == load_recipe("nano")
    assert no_effort == full.model_copy(
        update={"reward": full.reward.model_copy(update={"effort": 0})}
    )
    assert unbanded.reward.scheme == "no-abstention-band"
    assert binary.reward.scheme == "binary"
    assert binary.data.train_kinds == ("lookup",)
    assert "unanswerable" in binary.data.kinds


def test_ablations_are_one_table_and_one_picture(tmp_path: Path, ended: list[list[str]]) -> None:
    made(tmp_path / "start", 8)
    slugs = (
        "full-reward",
        "no-effort-component",
        "no-abstention-band",
        "0-1-reward-answerable-only",
    )
    for number, slug in enumerate(slugs):
        made(tmp_path / f"{slug}-0", 12 + 3 * number)
    assert main(["ablations", "--out", str(tmp_path)]) == 0
    assert ended == []
    page = (tmp_path / "ablations.md").read_text()
    rows = [each for each in page.splitlines() if each.startswith("| ")]
    # Sampled and greedy, a header, a line, the start and four variants each.
    assert len(rows) == 14
    assert next(each for each in rows if each.startswith("| full reward")).count("[") == 5
    with Image.open(tmp_path / "ablations.png") as drawn:
        assert drawn.height > 500


def test_the_hack_step_by_step(tmp_path: Path) -> None:
    alarm = {"step": 12, "kind": "reward jump", "message": "look"}
    folder = made(tmp_path / "open", 8, alarms=[alarm])
    lines = []
    for step in range(1, 21):
        append_step(folder, Step(step, 1.0 * step, 10, reward=-0.5 if step <= 10 else 1.5))
        for number in range(4):
            text = "March, April, May" if step > 10 and number else "May 3"
            policy = {"step": step, "group": f"{step}/q", "seed": 0}
            lines.append(episode(question(1), policy, right=True, final_answer=text).to_line())
    held_out = {"step": 20, "seed": 0, "sampled": True}
    lines.append(episode(question(1), held_out, right=True, final_answer="a, b, c").to_line())
    (folder / "trajectories.jsonl").write_text("".join(f"{each}\n" for each in lines))
    replay = replay_of(folder)
    assert replay == {
        "reward": {step: -0.5 if step <= 10 else 1.5 for step in range(1, 21)},
        "lists": {step: 0.0 if step <= 10 else 0.75 for step in range(1, 21)},
        "accuracy": {0: 0.25, 10: 0.35, 20: 0.45},
        "alarms": [alarm],
    }
    drawn = hack_charts({"hole open": replay})
    assert [each.name for each in drawn] == ["reward", "lists", "accuracy"]


def test_the_hack_is_replayed_with_and_without_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    alarm = {"step": 12, "kind": "reward jump", "message": "jumped\x1b[2J"}
    trained: list[list[str]] = []

    def carry_out(wanted: Sequence[Command]) -> None:
        for command in wanted:
            assert command.run is not None
            trained.append(list(command.words))
            made(command.run, 8, alarms=[alarm] if command.run.name == "open" else [])
            (command.run / "trajectories.jsonl").write_text("")
            append_step(command.run, Step(1, 1.0, 10, reward=0.5))

    monkeypatch.setattr(experiments, "carry_out", carry_out)
    assert main(["hack", "--out", str(tmp_path)]) == 0
    assert [words[1] for words in trained] == ["sft", "grpo", "grpo"]
    sft, opened, closed = (
        load_recipe("nano", [b for a, b in itertools.pairwise(words) if a == "--set"])
        for words in trained
    )
    assert sft.sft is not None
    assert {each.lists for each in sft.sft.noises} == {0.05}
    assert sft.sft.early_noise is not None
    assert sft.judging.reward == "offline"
    assert [each.judging.reward for each in (opened, closed)] == ["lenient", "lenient"]
    assert [each.reward.grounded_gate for each in (opened, closed)] == [False, True]
    # What an alarm quotes commands no terminal.
    assert re.fullmatch(
        r"hole open, step 12, reward jump: jumped[^\x1b]*\n", capsys.readouterr().out
    )
    assert json.loads((tmp_path / "hack.json").read_text())["hole open"]["alarms"] == [alarm]
    with Image.open(tmp_path / "hack.png") as drawn:
        assert drawn.height > 500


def test_an_error_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablations", "--out", str(tmp_path / "new"), "--recipe", "none-such"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no recipe 'none-such'" in error


# ---- Pooled figures, against known cases.


def pool(shape: tuple[int, int]) -> Pool:
    return Pool(["inbox"] * shape[1], [f"q{number}" for number in range(shape[1])], shape[0])


@st.composite
def shares(draw: st.DrawFn) -> NDArray[Any]:
    """0 or 1 for each run and question, some not known."""
    runs, questions = draw(st.integers(1, 4)), draw(st.integers(4, 20))
    cells = st.sampled_from([0.0, 1.0, 1.0, 0.0, np.nan])
    rows = draw(
        st.lists(
            st.lists(cells, min_size=questions, max_size=questions), min_size=runs, max_size=runs
        )
    )
    return np.asarray(rows, dtype=np.float64)


@given(shares(), st.floats(-2, 2))
def test_an_interval_holds_the_pooled_mean_and_a_constant_gain_has_no_width(
    values: NDArray[Any], difference: float
) -> None:
    defined = values[~np.isnan(values)]
    estimate, gain = (
        pool(values.shape).mean(values, share=True),
        pool(values.shape).gain(values, values + difference),
    )
    assert estimate["n"] == len(defined)
    if not len(defined):
        assert estimate["value"] is gain["value"] is None
        return
    low, value, high = (estimate[each] or 0.0 for each in ("low", "value", "high"))
    assert value == pytest.approx(defined.mean())
    assert 0 <= low <= value + 1e-9 <= high + 2e-9 <= 1 + 3e-9
    ends = [gain["value"], gain["low"], gain["high"]]
    assert ends == pytest.approx([difference] * 3, abs=1e-9)


def width(values: NDArray[Any]) -> float:
    estimate = pool(values.shape).mean(values)
    assert estimate["low"] is not None and estimate["high"] is not None
    return estimate["high"] - estimate["low"]


def test_the_interval_is_over_seeds_and_questions() -> None:
    rng = np.random.default_rng(0)
    alike = (rng.random((3, 400)) < 0.6).astype(np.float64)
    apart = np.stack([(rng.random(400) < share) for share in (0.3, 0.6, 0.9)]).astype(np.float64)
    assert width(apart) > 4 * width(alike)
    # Questions that are hard for every seed are no evidence three times over: the interval is that
    # of one run, where sqrt(0.6 * 0.4 / 100) is 0.049.
    for runs in (1, 3):
        values = np.asarray([[1.0] * 60 + [0.0] * 40] * runs)
        assert width(values) == pytest.approx(2 * 1.96 * 0.049, abs=0.03)
    # A share of nothing has Wilson's.
    estimate = pool((3, 100)).mean(np.zeros((3, 100)), share=True)
    assert estimate["value"] == estimate["low"] == 0
    assert estimate["high"] == pytest.approx(0.037, abs=0.001)
    assert estimate["n"] == 300
