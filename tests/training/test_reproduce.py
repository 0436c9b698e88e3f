"""`art-e reproduce`: each command runs once, even after kills; the best seed, the figures."""

import json
import os
import signal
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from art_e.message import ToolCall
from art_e.question import load_questions
from art_e.runs import Run, read_trajectories
from data_pipeline.synthetic.world import world_of
from tests.builders import table_rows, tries, write_lines
from tests.builders import the_error as the_user_error
from tests.command_line import Run as Cli
from tests.command_line import done, json_of, the_error
from tests.documented import parse_art_e
from tests.evals.runs import Outcome, episode, question
from tests.golden import Player, form_of
from tests.processes import start, wait_until
from tests.provider import KEY, Provider, Reply, Request, says
from tests.training import tiny
from training import reproduction
from training.recipe import load_toml, toml_names
from training.reproduction import STAMPS, Command, Profile, chosen_seed, steps

FORM = "short,vocabulary=700,names=0,stories=project+relocation+travel"
WORLDS = [f"synthetic:1000,seed={n},{FORM},split={split}"
          for n, split in ((200, "validation"), (900, "test"))]  # fmt: skip
TINY = (f"changes={json.dumps(tiny.FEW)}", f"sources={json.dumps(WORLDS)}", "seeds=[0]")


def profile_of(name: str, *changes: str) -> Profile:
    return load_toml(Profile, "profile", name, changes)


@pytest.mark.parametrize("name", toml_names("profile"))
def test_every_line_is_a_command(name: str, tmp_path: Path) -> None:
    lines = list(steps(profile_of(name), tmp_path))
    assert all(parse_art_e(each.words) for each in lines)
    assert len({each.name for each in lines}) == len(lines)


def test_profiles_hold_out_the_published_or_synthetic_test(tmp_path: Path) -> None:
    lines = [each.line for each in steps(profile_of("talk"), tmp_path) if " run " in each.line]
    assert lines and all(" --preset published-100 " in each for each in lines)
    profile = profile_of("nano")
    worlds = profile.training.data.worlds
    assert worlds is not None
    held_out = [world_of(each) for each in profile.sources]
    for split, span in (("validation", worlds.validation), ("test", worlds.test)):
        companies = [each for each in held_out if each.split == split]
        assert [(each.seed, each.size) for each in companies] == [
            (n, worlds.size) for n in range(*span)
        ]


def test_errors_are_one_line(art_e: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduction, "best_device", lambda: ("cpu", None))
    out = tmp_path / "out"
    for options, named in table_rows(__file__, "refusals.tsv"):
        assert named in the_error(art_e("reproduce", "--profile", *options.split(), "--out", out))
        assert not out.exists()


def test_stamp_belongs_to_its_command(tmp_path: Path) -> None:
    stamp = tmp_path / STAMPS / "baseline-o3"
    stamp.parent.mkdir()
    step = Command("baselines", stamp.name, ["eval", "run", "--max-cost", "4"], makes_run=True)
    assert not step.is_done(tmp_path)
    stamp.write_text(step.line.replace("4", "2"))
    assert step.is_done(tmp_path)
    other = step._replace(words=["eval", "run", "-m", "o4"])
    assert "give another --out" in the_user_error(other.is_done, tmp_path)


def test_incomplete_command_gets_no_stamp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "golden").mkdir()
    record = {"generate": {"batches": {"lost": {"budget": 1}}}}
    (tmp_path / "golden" / "manifest.json").write_text(json.dumps({"steps": record}))
    for code, step, words in (
        (0, Command("golden", "golden-x", ["golden"]), "higher --max-cost"),
        (0, Command("baselines", "baseline-o3", ["eval"], makes_run=True), "cut short"),
        (2, Command("sft", "sft-0", ["train"], makes_run=True), "run this again to resume"),
    ):
        monkeypatch.setattr(reproduction, "run_art_e", lambda *_, code=code: code)
        assert words in the_user_error(step.do, tmp_path)
    assert not (tmp_path / STAMPS).exists()


def test_seed_of_the_best_checkpoint_is_chosen(tmp_path: Path) -> None:
    # For each seed: the start's share right, and the checkpoint's shares right and wrong.
    for seed, (first, right, wrong) in enumerate(((0.9, 0.5, 0.1), (0.1, 0.6, 0.3), (0, 0.6, 0.1))):
        start_row = tiny.validation(0, correct=first, hallucination=0.0)
        last_row = tiny.validation(10, correct=right, hallucination=wrong)
        (tmp_path / str(seed)).mkdir()
        metrics = {"validation": [asdict(start_row), asdict(last_row)]}
        Run(tmp_path / str(seed)).write_json("metrics.json", metrics)
    assert chosen_seed({seed: tmp_path / str(seed) for seed in range(3)}) == 2


def test_chain(art_e: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in this process, which has imported torch."""

    def in_process(words: list[str], folder: Path) -> Any:
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            return done(art_e(*words)).exit_code

    out = tmp_path / "out"
    words = ("reproduce", "--profile", "nano", "--out", out, *tiny.flags(*TINY))
    with monkeypatch.context() as patch:
        patch.setattr(reproduction, "run_art_e", in_process)
        done(art_e(*words))
    page, figures = ((out / name).read_text("utf-8") for name in ("report.html", "figures.json"))
    rows = {each["figure"]: each for each in json.loads(figures)["published_against_ours"]}
    assert rows["Net reduction of o3's errors"]["published"] == "60%"
    assert "local:grpo-0" in {each["of"] for each in rows.values()}
    assert page.index('id="viewer"') < page.index('id="controls"') < page.index('id="published"')
    swapped = list(read_trajectories(Run(out / "swapped-trained-0").trajectories))
    assert swapped and not any(each.rubric["answerable"] for each in swapped)
    assert Run(out / "cool-start-0").config["temperature"] == 0.4
    runs = [Run(out / name) for name in ("baseline-offline", "start-0", "trained-0")]
    assert len({each.config["questions_hash"] for each in runs}) == 1
    # A rerun neither asks nor trains.
    again = art_e(*words, "--dry-run", "--json")
    assert not any(each["left"] for each in json_of(again)["steps"])
    assert art_e(*words, "--dry-run").stdout.endswith(f"; last: {out / 'report.html'}\n")


# ---- Figures over seeds: whose verdict counts, how seeds are pooled, what is refused.

# Made-up runs: question i is answerable but for every fourth one.
NUMBER = 24


def run_of(folder: Path, right: int) -> Path:
    """Write a run's test, with its first `right` questions right."""
    folder.mkdir()
    lines = []
    for heat in (1.0, 0.0):
        for number in reversed(range(NUMBER)):  # in another order than that of the ids
            fields = {"id": f"q{number:03}", "inbox_address": f"inbox{number % 3}@test.example"}
            row = question(number, kind="lookup" if number % 4 else "unanswerable", **fields)
            is_right = number < right
            # The reward's judge says the opposite: the other one decides.
            first = {"correct": not is_right, "grounded": True, "judge": "reward", "reason": ""}
            policy = {"temperature": heat, "seed": 0}
            options: dict[str, Any] = {"second": is_right, "verdict": first, "policy": policy}
            options["episode_id"] = f"{row.id}-{heat}"
            ended: Outcome = "right" if is_right else "wrong"
            lines.append(episode(row, ended, **options).to_line())
    write_lines(folder / "test.jsonl", *lines)
    return folder


def test_seeds_are_pooled_with_the_validation_judges_verdicts(tmp_path: Path) -> None:
    starts = [run_of(tmp_path / f"start-{seed}", right) for seed, right in enumerate((8, 12))]
    ends = [run_of(tmp_path / f"end-{seed}", right) for seed, right in enumerate((16, 24))]
    figures = reproduction.over_seeds(starts, ends)["greedy"]
    accuracy = {name: each["accuracy"] for name, each in figures.items()}
    # Right are 6 and 9 of 18 answerable questions, and later 12 and 18.
    shares = [accuracy[name]["value"] for name in ("start", "trained", "gain")]
    assert shares == pytest.approx([15 / 36, 30 / 36, 15 / 36])
    # The unit is the inbox, and each of the three is there once.
    assert accuracy["start"]["n"] == 36
    assert accuracy["start"]["method"] == "Jeffreys over questions"
    assert figures["start"]["unanswerable_accuracy"]["value"] == pytest.approx(5 / 12)
    assert (figures["gain"]["turns"]["n"], figures["gain"]["turns"]["value"]) == (48, 0)
    for text, error in (("{\n", "can't be read"), ("", "not all of the test")):
        (ends[0] / "test.jsonl").write_text(text)
        assert error in the_user_error(reproduction.episodes_of_test, ends[0])


# ---- The whole chain, killed on the way; a local server and a tiny Qwen2 replace the models.


def answers(request: Request) -> Reply:
    """Reply for every model; a policy searches once and abstains."""
    if not request.body.get("tools"):
        if form_of(request) == "Support":
            return says(json.dumps({"reason": "It stands there.", "verdict": "supported"}))
        return Player()(request)
    searching, final = {"keywords": ["notes"]}, {"answer": "I don't know", "sources": []}
    if len(request.messages) == 2:
        return says(None, ToolCall("call", "search_emails", json.dumps(searching)))
    return says(None, ToolCall("call", "return_final_answer", json.dumps(final)))


@pytest.mark.long
def test_repeatedly_killed_talk_pays_nothing_twice(tmp_path: Path, base: Path) -> None:
    out, tables = tmp_path / "out", {
        "sources": ["synthetic:1000,seed=3"], "baselines": ["o3"], "judges": ["f1", "offline"],
        "preset": "", "golden": tiny.SETS["golden"],
        "changes": [f"model.base={base}", *tiny.SETS["talk"]],
    }  # fmt: skip
    changes = tiny.flags(*(f"{name}={json.dumps(value)}" for name, value in tables.items()))
    words = ["reproduce", "--profile", "talk", "--out", out, *changes]
    stamps = ("golden-generate", "golden-verify", "baseline-o3", "grpo-0", "trained-0")
    with Provider(answers, key=KEY) as provider:
        environment = {**provider.environment(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
        for name in stamps[: tries(1, len(stamps))]:
            process = start(words, environment, stderr=subprocess.DEVNULL)
            place = out / ("golden" if name.startswith("golden") else name)
            if wait_until(place.is_dir, process):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        process = start(words, environment)
        _, stderr = process.communicate()
        assert process.returncode == 0, stderr[-4_000:]
        written = [
            request.messages[1]["content"]
            for request in provider.requests
            if "response_format" in request.body and form_of(request) == "GeneratedItems"
        ]
    # A request under way at a kill is asked again.
    assert len(set(written)) == 2 * 3 <= len(written) <= 2 * 3 + len(stamps) * 8
    ids = [each.question_id for each in read_trajectories(Run(out / "baseline-o3").trajectories)]
    assert ids and len(set(ids)) == len(ids)
    assert set(ids) <= {each.id for each in load_questions(str(out / "golden"), "test")}
    assert "Published against ours" in (out / "report.html").read_text("utf-8")
