"""`art-e train`: from nothing to a trained checkpoint, and one-line errors."""

import json
import re
from pathlib import Path

from art_e.episode import EpisodeForm
from art_e.inbox.file import InboxFile
from art_e.question import Split, load_questions
from evals.scored import check_questions
from tests.command_line import Run, json_of
from tests.training import tiny
from training.cli import load_material


def changes(*more: str) -> list[str]:
    return [part for each in (*tiny.FEW, *more) for part in ("--set", each)]


def test_a_start_then_grpo_with_a_pause(art_e: Run, tmp_path: Path) -> None:
    start, trained = tmp_path / "start", tmp_path / "trained"
    metrics = json_of(art_e("train", "sft", *changes(), "--out", start, "--json"))
    assert (metrics["run"], metrics["paused"]) == (str(start), None)
    assert [each["step"] for each in metrics["validation"]] == [0, 2, 4]
    # The start may be named as the model, in place of one that is made from nothing.
    command = ("train", "grpo", *changes(), "--set", f"model.base={start}", "--out", trained)
    result = art_e(*command, "--minutes", "0")
    assert result.exit_code == 0, result.output
    assert f"--resume --out {trained}" in result.stderr.splitlines()[-1]
    result = art_e(*command, "--resume")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    assert f"art-e eval report {trained}" in result.stderr
    metrics = json.loads((trained / "metrics.json").read_text("utf-8"))
    assert metrics["test"]["greedy"]["n"] == 3
    assert f"local:{trained} " in result.stderr


def test_the_questions_of_a_split(art_e: Run, tmp_path: Path) -> None:
    words = ("train", "questions", "--recipe", "nano", *changes())
    counts: tuple[tuple[Split, int], ...] = (("test", 3), ("train", 40))
    for split, number in counts:
        out = tmp_path / split
        row = json_of(art_e(*words, "--split", split, "--out", out, "--json"))
        asked, whole = load_questions(row["questions"]), load_material(tiny.recipe().data, split)
        assert row["n"] == len(asked) >= number and {each.split for each in asked} == {split}
        assert asked == (whole.held_out(3) if split == "test" else whole.questions)
        form = EpisodeForm.model_validate_json((out / "episode.json").read_text())
        assert form == tiny.recipe().episode
        with InboxFile(Path(row["db"])) as file:
            check_questions(asked, file)


def test_what_judges_may_cost_is_said_before_the_start(art_e: Run, tmp_path: Path) -> None:
    """Without a key the run ends at its start."""
    costly = changes("judging.reward='openai/gpt-4.1'", "grpo.steps=100", "grpo.rollouts=8")
    command = ("train", "grpo", "--init", "start", "--out", tmp_path / "run", *costly)
    lines = art_e(*command, "--max-cost", "5").stderr.splitlines()
    fee = next(each for each in lines if each.startswith("judge openai/gpt-4.1"))
    # Two questions of eight rollouts a step, 51 validations of three questions, the test twice.
    assert re.fullmatch(r".*: about \$\d\.\d for 1,759 episodes; \$5\.00 at most", fee), fee
    assert "no limit: --max-cost sets one" in art_e(*command).stderr
    # A model that is made from nothing needs a start.
    result = art_e("train", "grpo", *changes(), "--out", tmp_path / "run")
    assert result.exit_code == 2 and "--init" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "run").exists()
