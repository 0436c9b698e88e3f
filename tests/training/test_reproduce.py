"""`art-e reproduce`: profiles, steps that are done once, the best seed, limits, plan, figures."""

import dataclasses
import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

from art_e.episode import Rubric
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import Question
from art_e.trajectory import Trajectory
from data_pipeline.ingest.sources import described
from evals import cli as eval_commands
from tests import builders as episodes
from tests import command_line
from tests.builders import QUESTION
from tests.command_line import json_of, the_error
from tests.golden import Chain, Player
from tests.provider import Provider
from tests.training.rows import validation as made_validation
from training.recipe import toml_names
from training.reproduction import cli
from training.reproduction.chain import STAGES, Step, ask_baseline, check_golden, reproduce, steps
from training.reproduction.profile import load_profile
from training.reproduction.report import MEASURES, chosen_seed, episodes_of_test, over_seeds

PUBLIC = "corbt/enron_emails_sample_questions"

# ---- Profiles.


@pytest.mark.parametrize("name", toml_names("profile"))
def test_the_projects_profiles_have_every_stage(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    stages = [each.stage for each in reproduce(profile, tmp_path / "out", "report")]
    assert stages == sorted(stages, key=STAGES.index)
    assert set(stages) == set(STAGES) - (set() if profile.recipe.sft else {"sft"})
    assert not (tmp_path / "out").exists()


def test_nano_holds_out_the_companies_of_its_recipe() -> None:
    profile = load_profile("nano")
    worlds = profile.recipe.data.worlds
    assert worlds is not None
    held_out = [described(each) for each in profile.sources]
    for split, (first, end) in (("validation", worlds.validation), ("test", worlds.test)):
        mine = [each.config for each in held_out if each.split == split]
        assert [each.seed for each in mine] == list(range(first, end))
        assert {(each.size, each.short, each.vocabulary, each.names) for each in mine} == {
            (worlds.size, worlds.short, worlds.vocabulary, 0)
        }


@pytest.mark.parametrize(
    ("name", "change", "named"),
    [
        ("talk", "training.seeds=[]", "training.seeds"),
        ("talk", "training.recipe=nothing", "no recipe 'nothing'"),
        ("talk", "golden.batches=0", "golden.batches"),
        ("talk", "baselines.models=[]", "baselines.models"),
        ("talk", "ingest.speed=3", "ingest.speed"),
        ("talk", "ingest.sources=[]", "ingest.sources are missing"),
        ("mega", "name=x", "there are nano, talk"),
        ("mine.toml", "name=x", "no profile"),
    ],
)
def test_what_is_no_profile_is_refused_in_a_line(name: str, change: str, named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        load_profile(name, [change])
    assert "\n" not in str(raised.value)


# ---- A step is done once: settings, files read and earlier steps decide where.


def folders(out: Path, *changes: str) -> dict[str, str]:
    """The folders of the nano profile's steps."""
    return {each.name: each.folder.name for each in steps(load_profile("nano", changes), out)}


@pytest.mark.parametrize(
    ("change", "touched"),
    [
        ("golden.max_cost_usd=3", set()),
        ("training.seeds=[0]", {"report", "start", "trained"}),
        ("evaluation.usd_per_hour=2", {"report", "start", "trained"}),
        ('baselines.models=["offline","openai/o3"]', {"report", "baseline-o3"}),
        ('training.changes=["grpo.steps=3"]', {"report", "start", "trained", "grpo-0", "grpo-1"}),
    ],
)
def test_a_change_touches_the_steps_that_depend_on_it(
    tmp_path: Path, change: str, touched: set[str]
) -> None:
    before, after = folders(tmp_path), folders(tmp_path, change)
    assert {name for name, each in after.items() if before.get(name) != each} == touched


def test_a_file_that_is_read_is_an_input(tmp_path: Path) -> None:
    source = tmp_path / "mail.mbox"
    source.write_text("mail")
    change = f"ingest.sources={json.dumps([str(source)])}"
    before = folders(tmp_path, change)
    assert folders(tmp_path, change) == before
    source.write_text("other mail")
    after = folders(tmp_path, change)
    assert not set(before.values()) & set(after.values())


def fill(fails: bool, folder: Path) -> None:
    """What a step does: it leaves a file and prints a line, and then may fail."""
    duckdb.connect(folder / "made")
    print("a figure")
    if fails:
        raise UserError("the disk is full")


def test_a_step_that_failed_resumes_in_its_folder(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "ingest-0"
    failing, step = (
        Step("ingest", "ingest", "read mail", folder, partial(fill, fails))
        for fails in (True, False)
    )
    states = [step.state]
    with pytest.raises(UserError, match="disk is full"):
        failing.do()
    states.append(step.state)
    step.do()
    assert [*states, step.state] == ["to do", "begun", "done"]
    # Only the result of the whole chain is data.
    shown = capfd.readouterr()
    assert (shown.out, shown.err) == ("", "a figure\n" * 2)


# ---- The seed that validation prefers.


def test_the_seed_of_the_best_checkpoint(tmp_path: Path) -> None:
    # The best step of each seed, and by step the shares handled right, and wrong.
    seeds = (
        (10, {0: (0.9, 0.0), 10: (0.5, 0.1)}),
        (20, {10: (0.2, 0.1), 20: (0.6, 0.3)}),
        (20, {20: (0.6, 0.1)}),
        (20, {20: (0.6, 0.1)}),
    )
    for seed, (best, rows) in enumerate(seeds):
        validation = [
            asdict(made_validation(step, correct=correct, hallucination=wrong))
            for step, (correct, wrong) in rows.items()
        ]
        metrics = {"best_checkpoint": f"checkpoints/checkpoint-{best}", "validation": validation}
        (tmp_path / str(seed)).mkdir()
        (tmp_path / str(seed) / "metrics.json").write_text(json.dumps(metrics))
    assert chosen_seed({seed: tmp_path / str(seed) for seed in range(4)}) == 2


# ---- Limits of cost.


def test_a_golden_set_that_was_cut_short(world_db: Path, tmp_path: Path) -> None:
    with InboxFile(world_db) as file:
        owners = [each.address for each in file.inboxes(2)]
    chain = Chain(world_db, owners, 1, tmp_path)
    manifest = chain.set / "manifest.json"
    with Provider(Player()) as provider:
        chain.done(provider, "generate")
        check_golden(chain.set)
        whole = manifest.read_text("utf-8")
        row = json.loads(whole)
        assert row["steps"]["generate"]["batches"]["lost"] == {}
        row["steps"]["generate"]["batches"]["lost"] = {"budget": 1}
        manifest.write_text(json.dumps(row))
        with pytest.raises(UserError, match=r"1 batches .* golden\.max_cost_usd"):
            check_golden(chain.set)
        manifest.write_text(whole)
        chain.done(provider, "filter")
        chain.done(provider, "verify", "--max-cost", "0.000001")
        with pytest.raises(UserError, match="checks were not made"):
            check_golden(chain.set)
        chain.done(provider, "verify")
        check_golden(chain.set)


def test_a_run_that_was_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eval_commands, "run", lambda *_, **__: None)
    profile = load_profile("nano")
    with pytest.raises(UserError, match=r"openai/o3 was not asked every.*baselines\.max_cost_usd"):
        ask_baseline(profile, profile.recipe, "openai/o3", tmp_path)


# ---- The command.


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--profile", "nano", "--until", "cooking"], "golden"),
        (["--profile", "nano", "--dry-run", "--set", "training.gpu=abacus"], "no GPU 'abacus'"),
        (["--profile", "nano", "--set", "ingest.sources=['~nobody-here/x']"], "nobody"),
    ],
)
def test_what_can_not_be_is_one_line(
    art_e: command_line.Run, tmp_path: Path, options: list[str], named: str
) -> None:
    out = tmp_path / "out"
    error = the_error(art_e("reproduce", *options, "--out", out))
    assert named in error
    assert not out.exists()


def test_it_refuses_to_begin_without_what_it_needs(
    art_e: command_line.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "best_device", lambda: ("cpu", None))
    out = tmp_path / "out"
    error = the_error(art_e("reproduce", "--profile", "talk", "--out", out))
    for missing in ("OPENAI_API_KEY", "GEMINI_API_KEY", "NVIDIA GPU", "--until STAGE"):
        assert missing in error
    assert not out.exists()


def test_without_the_libraries_of_training_the_plan_and_the_stages_before_it_are_there(
    art_e: command_line.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking() -> None:
        raise UserError("local models need torch")

    monkeypatch.setattr(cli, "require_train_extra", lacking)
    words = ("reproduce", "--profile", "nano", "--out", tmp_path / "out")
    assert json_of(art_e(*words, "--dry-run", "--json"))["missing"] == ["local models need torch"]
    assert "local models need torch" in the_error(art_e(*words))
    one = ("--set", "ingest.sources=['synthetic:1000,seed=3']")
    assert json_of(art_e(*words, *one, "--until", "ingest", "--json"))["until"] == "ingest"
    assert list((tmp_path / "out").rglob("*.duckdb"))


def test_the_plan_of_the_talk(art_e: command_line.Run, tmp_path: Path) -> None:
    words = ("reproduce", "--profile", "talk", "--dry-run", "--out", tmp_path / "out")
    plan = json_of(art_e(*words, "--json"))
    steps = {each["name"]: each for each in plan["steps"]}
    planned = json_of(art_e("train", "plan", "--recipe", "talk", "--json"))
    assert plan["training"]["hours"] == pytest.approx(planned["hours"])
    assert plan["training"]["usd"] == pytest.approx(
        planned["gpu_usd"] + sum(each["usd"] for each in planned["judges"])
    )
    profile = load_profile("talk")
    assert profile.golden.max_cost_usd is not None
    assert steps["golden"]["max_cost_usd"] == 2 * profile.golden.max_cost_usd
    assert steps["baseline-o3"]["max_cost_usd"] == profile.baselines.max_cost_usd
    assert any("OPENAI_API_KEY" in each for each in plan["missing"])
    page = art_e(*words).stdout
    for each in plan["steps"]:
        assert each["folder"] in page and each["does"] in page
    public = json_of(art_e(*words, "--set", f"golden.questions={PUBLIC}", "--json"))
    golden = next(each for each in public["steps"] if each["name"] == "golden")
    assert PUBLIC in golden["does"]
    assert not (tmp_path / "out").exists()


# ---- Figures over seeds: whose verdict counts, how seeds are pooled, what is refused.

# Made-up runs: question i is answerable but for every fourth one.
NUMBER = 24


def question(number: int) -> Question:
    nothing = {"answer": None, "message_ids": (), "answerable": False, "kind": "unanswerable"}
    own: dict[str, Any] = {"kind": "lookup"} if number % 4 else nothing
    return dataclasses.replace(
        QUESTION, id=f"q{number:03}", inbox_address=f"inbox{number % 3}@test.example", **own
    )


def episode(asked: Question, policy: dict[str, Any], *, right: bool) -> Trajectory:
    """An episode that is right, or gives a wrong answer."""
    abstains = right and not asked.answerable
    ends: dict[str, Any] = {"answered": not abstains, "abstained": abstains}
    rubric = Rubric(max_turns=6, answerable=asked.answerable, turns=3, effort=3, **ends)
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
    )


def run_of(folder: Path, right: int) -> Path:
    """A run's test, with its first `right` questions right."""
    folder.mkdir(parents=True)
    asked = [question(number) for number in range(NUMBER)]
    lines = [
        episode(each, {"temperature": heat, "seed": 0}, right=number < right).to_line()
        for heat in (1.0, 0.0)
        for number, each in enumerate(asked)
    ]
    # In another order than that of the ids.
    (folder / "test.jsonl").write_text("".join(f"{each}\n" for each in reversed(lines)))
    return folder


def test_answers_are_judged_by_the_judge_of_validations(tmp_path: Path) -> None:
    means = over_seeds([], [run_of(tmp_path / "run", 12)])["sampled"]["trained"]
    assert tuple(means) == MEASURES
    # Of the first twelve questions nine are answerable, and of all 24 eighteen.
    assert (means["accuracy"]["value"], means["accuracy"]["n"]) == (0.5, 18)
    assert means["unanswerable_accuracy"]["value"] == 0.5
    assert means["hallucination"]["value"] == 0.5
    assert (means["turns"]["value"], means["turns"]["n"]) == (3, 24)


def test_seeds_are_pooled_and_their_span_stands_beside(tmp_path: Path) -> None:
    starts = [run_of(tmp_path / f"start-{seed}", right) for seed, right in enumerate((8, 12))]
    ends = [run_of(tmp_path / f"end-{seed}", right) for seed, right in enumerate((16, 24))]
    figures = over_seeds(starts, ends)["greedy"]
    accuracy = {name: each["accuracy"] for name, each in figures.items()}
    # Right are 6 and 9 of 18 answerable questions, and later 12 and 18.
    assert [accuracy[name]["value"] for name in ("start", "trained", "gain")] == pytest.approx(
        [15 / 36, 30 / 36, 15 / 36]
    )
    assert accuracy["start"]["seeds"] == pytest.approx([6 / 18, 9 / 18])
    assert accuracy["gain"]["seeds"] == pytest.approx([6 / 18, 9 / 18])
    assert {each["n"] for each in accuracy.values()} == {36}
    # The unit is the inbox, and each of the three is there once.
    assert accuracy["start"]["method"] == "t over inboxes"
    assert (figures["gain"]["turns"]["n"], figures["gain"]["turns"]["value"]) == (48, 0)
    # Without a warm start there is nothing to gain from.
    assert set(over_seeds([], ends)["greedy"]) == {"trained"}


def test_a_test_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", 12)
    lines = (folder / "test.jsonl").read_text().split("\n")
    (folder / "test.jsonl").write_text("\n".join(lines[:NUMBER]) + "\n")
    with pytest.raises(UserError, match="not all of the test"):
        episodes_of_test(folder)
    (folder / "test.jsonl").write_text("{\n")
    with pytest.raises(UserError, match="can't be read"):
        episodes_of_test(folder)
