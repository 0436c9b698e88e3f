"""`art-e reproduce`: profiles, the cache of steps, what validation chooses, limits, the plan."""

import json
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from data_pipeline.ingest.sources import described
from evals.benchmark import read_prompt
from tests import command_line
from tests.command_line import json_of, the_error
from tests.evals.runs import episodes, write_run
from tests.golden import Chain, Player
from tests.provider import Provider
from training.commands import Command
from training.reproduction import forecast
from training.reproduction.chain import (
    RECORD,
    STAGES,
    Cache,
    Unit,
    Work,
    check_golden,
    check_run,
    choose_prompt,
    reproduce,
)
from training.reproduction.profile import PUBLIC, load_profile, profile_names, prompt_path
from training.reproduction.report import CHOSEN, COMPARED, chosen_seed

# ---- Profiles.


@pytest.mark.parametrize("name", profile_names())
def test_the_projects_profiles_have_every_stage(name: str, tmp_path: Path) -> None:
    profile = load_profile(name)
    cache = Cache(tmp_path / "out", "report", lambda _: None, dry=True)
    stages = [each.stage for each in reproduce(profile, cache)]
    assert stages == sorted(stages, key=STAGES.index)
    assert set(stages) == set(STAGES) - (set() if profile.recipe.sft else {"sft"})
    assert not (tmp_path / "out").exists()
    for prompt in profile.prompts.compared:
        path = prompt_path(prompt)
        assert path is None or "$inbox_address" in read_prompt(path).text


def test_nano_holds_out_the_companies_of_its_recipe() -> None:
    profile = load_profile("nano")
    worlds = profile.recipe.data.worlds
    assert worlds is not None
    held_out = [described(each) for each in profile.sources]
    for split, (first, end) in (("validation", worlds.validation), ("test", worlds.test)):
        mine = [each.config for each in held_out if each.split == split]
        assert [each.seed for each in mine] == list(range(first, end))
        assert {(each.size, each.short, each.vocabulary, each.names) for each in mine} == {
            (worlds.size, worlds.short, worlds.vocabulary, worlds.names)
        }


def test_the_command_line_changes_it() -> None:
    profile = load_profile(
        "talk", ["training.seeds=[1, 2]"], questions="public", baselines=["openai/o1", "o3"]
    )
    assert profile.training.seeds == (1, 2)
    assert profile.golden.questions == PUBLIC
    assert profile.baselines.models[-1] == "openai/o1"
    assert profile.baselines.models.count("o3") == 1
    assert profile.asks_prompted == ("o4-mini", "openai/o1", "o3")


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


# ---- The cache: settings, files read and earlier steps decide what is done.


class Kitchen:
    """Two steps, of which the second copies what the first wrote, and how often each was done."""

    def __init__(self, folder: Path) -> None:
        self.out, self.source = folder / "out", folder / "source.txt"
        self.out.mkdir()
        self.source.write_text("mail")

    def cook(self, text: str = "one", cost: float = 1.0) -> list[str]:
        """The steps that were done now."""
        self.done: list[str] = []
        self.steps(Cache(self.out, "report", lambda _: None), text, cost)
        return self.done

    def plan(self, text: str = "one") -> list[Unit]:
        cache = Cache(self.out, "report", lambda _: None, dry=True)
        self.steps(cache, text, 1.0)
        return cache.units

    def steps(self, cache: Cache, text: str, cost: float) -> None:
        def write(folder: Path) -> list[Work]:
            def make() -> None:
                self.done.append("first")
                (folder / "made.txt").write_text(text.upper())

            return [Command(("--version",)), make]

        def copy(folder: Path) -> list[Work]:
            def make() -> None:
                self.done.append("second")
                (folder / "copy.txt").write_text((first.folder / "made.txt").read_text())

            return [make]

        settings = {"text": text, "table": {"max_cost_usd": cost}}
        first = cache.step("ingest", "first", settings, ["made.txt"], write, reads=[self.source])
        cache.step("golden", "second", {}, ["copy.txt"], copy, [first])


@pytest.fixture
def kitchen(tmp_path: Path) -> Kitchen:
    return Kitchen(tmp_path)


def test_a_step_is_done_once_and_again_when_something_changed(kitchen: Kitchen) -> None:
    assert kitchen.cook() == ["first", "second"]
    assert kitchen.cook() == []
    # A limit of cost is no setting.
    assert kitchen.cook(cost=9.0) == []
    assert kitchen.cook("two") == ["first", "second"]
    # The first result was kept, and another setting with the same product ends there.
    assert kitchen.cook() == []
    assert kitchen.cook("ONE") == ["first"]
    assert len(list(kitchen.out.glob("second-*"))) == 2
    kitchen.source.write_text("other mail")
    assert kitchen.cook() == ["first"]
    kitchen.source.unlink()
    with pytest.raises(UserError, match=r"source\.txt"):
        kitchen.cook()


def test_a_changed_or_missing_product_is_noticed(kitchen: Kitchen) -> None:
    kitchen.cook()
    [made] = kitchen.out.glob("first-*/made.txt")
    made.write_text("by hand")
    assert kitchen.cook() == ["second"]
    assert {each.read_text() for each in kitchen.out.glob("second-*/copy.txt")} == {
        "ONE",
        "by hand",
    }
    made.unlink()
    assert kitchen.cook() == ["first"]


def test_a_step_that_was_begun_goes_on_in_its_folder(kitchen: Kitchen) -> None:
    kitchen.cook()
    [record] = kitchen.out.glob(f"second-*/{RECORD}")
    record.unlink()
    assert [each.state for each in kitchen.plan()] == ["done", "begun"]
    assert kitchen.cook() == ["second"]
    assert len(list(kitchen.out.glob("second-*"))) == 1


def test_a_plan_runs_nothing_and_shows_what_will_run(kitchen: Kitchen) -> None:
    first, second = kitchen.plan()
    assert list(kitchen.out.iterdir()) == []
    assert (first.state, second.state) == ("to do", "to do")
    assert first.commands == ("art-e --version",)
    # The second folder's name depends on what the first will make.
    assert second.folder.name == "second-KEY"
    kitchen.cook()
    assert [each.state for each in kitchen.plan()] == ["done", "done"]
    assert [each.state for each in kitchen.plan("two")] == ["to do", "to do or done"]


# ---- What validation chooses: the prompt, and the seed.


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
            {"step": step, "correct": correct, "hallucination": wrong}
            for step, (correct, wrong) in rows.items()
        ]
        metrics = {"best_checkpoint": f"checkpoints/checkpoint-{best}", "validation": validation}
        (tmp_path / str(seed)).mkdir()
        (tmp_path / str(seed) / "metrics.json").write_text(json.dumps(metrics))
    assert chosen_seed({seed: tmp_path / str(seed) for seed in range(4)}) == 2


PROMPTS = {"default": None, "brief": "Answer."}


@pytest.mark.parametrize(
    ("default", "brief", "best"),
    [
        # Right answers of ten by each model.
        ([], [], "default"),
        ([9], [6], "default"),
        ([6], [9], "brief"),
        ([5], [5], "default"),
        # Episodes of all models count.
        ([9, 1], [6, 5], "brief"),
    ],
)
def test_the_prompt_that_handles_most_right_is_chosen(
    tmp_path: Path, default: list[int], brief: list[int], best: str
) -> None:
    right = {"default": default, "brief": brief}
    runs = {
        name: [
            write_run(tmp_path / f"{name}-{number}", episodes("m", {"right": n, "wrong": 10 - n}))
            for number, n in enumerate(of)
        ]
        for name, of in right.items()
    }
    choose_prompt(tmp_path, PROMPTS, runs)
    chosen, compared = (
        json.loads((tmp_path / name).read_text("utf-8")) for name in (CHOSEN, COMPARED)
    )
    assert chosen == {"name": best, "text": PROMPTS[best]}
    assert {each["name"]: each["correct"]["value"] for each in compared} == {
        name: sum(of) / (10 * len(of)) for name, of in right.items() if of
    }


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


def test_a_run_that_was_cut_short(tmp_path: Path) -> None:
    figures = {"n": 9, "not_asked": 0}
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"models": {"openai/o3": figures}}))
    check_run(tmp_path, "baselines.max_cost_usd")
    path.write_text(
        json.dumps(
            {"models": {"openai/o3": {**figures, "not_asked": 4, "stopped": {"message": "spent"}}}}
        )
    )
    with pytest.raises(UserError, match=r"4 of 13 .*openai/o3.*baselines\.max_cost_usd \(spent\)"):
        check_run(tmp_path, "baselines.max_cost_usd")


# ---- The command.


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Without the runs of other tests, from which estimates would take their tokens."""
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--profile", "mega"], "there are nano, talk"),
        (["--profile", "nano", "--until", "cooking"], "ingest, golden, prompts"),
        (["--profile", "nano", "--set", "training.seeds=[]"], "training.seeds"),
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
    monkeypatch.setattr(forecast, "_has_gpu", lambda: False)
    out = tmp_path / "out"
    error = the_error(art_e("reproduce", "--profile", "talk", "--out", out))
    for missing in ("OPENAI_API_KEY", "GEMINI_API_KEY", "NVIDIA GPU", "--until STAGE"):
        assert missing in error
    assert not out.exists()


def test_the_plan_of_the_talk(art_e: command_line.Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = json_of(art_e("reproduce", "--profile", "talk", "--dry-run", "--json", "--out", out))
    units = {each["unit"]: each for each in plan["units"]}
    planned = json_of(art_e("train", "plan", "--recipe", "talk", "--json"))
    grpo = units["grpo-0"]
    assert grpo["seconds"] == pytest.approx(3600 * planned["hours"])
    assert grpo["usd"] == pytest.approx(planned["gpu_usd"] + planned["judge_usd"])
    assert units["baseline-o3"]["usd"] > units["baseline-o4-mini"]["usd"] > 1
    assert any("NVIDIA" in each for each in plan["missing"])
    assert plan["left"]["usd"] == pytest.approx(sum(each["usd"] for each in plan["units"]))
    public = json_of(
        art_e("reproduce", "--profile", "talk", "--questions", "public", "--dry-run", "--json",
              "--out", out)
    )  # fmt: skip
    golden = next(each for each in public["units"] if each["unit"] == "golden")
    assert "corbt/enron_emails_sample_questions" in golden["commands"][0]


def test_a_plan_of_an_unknown_price_has_no_sum(art_e: command_line.Run, tmp_path: Path) -> None:
    plan = json_of(
        art_e("reproduce", "--profile", "nano", "--baseline", "hosted_vllm/mine", "--dry-run",
              "--json", "--out", tmp_path / "out")
    )  # fmt: skip
    units = {each["unit"]: each for each in plan["units"]}
    assert units["baseline-mine"]["usd"] is None
    assert plan["left"]["usd"] is None
    assert any("HOSTED_VLLM_API_BASE" in each for each in plan["missing"])
    assert json.dumps(plan)
