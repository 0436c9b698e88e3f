"""Profiles: those of the project are whole, and what is none is refused in a line."""

from pathlib import Path

import pytest

from art_e.errors import UserError
from data_pipeline.ingest.sources import described
from evals.benchmark import read_prompt
from training.reproduction.profile import PUBLIC, load_profile, profile_names, prompt_path
from training.reproduction.unit import STAGES
from training.reproduction.units import units_of


@pytest.mark.parametrize("name", profile_names())
def test_the_projects_profiles_have_every_stage(name: str) -> None:
    profile = load_profile(name)
    stages = [each.stage for each in units_of(profile)]
    assert stages == sorted(stages, key=STAGES.index)
    expected = set(STAGES) - (set() if profile.recipe.sft else {"sft"})
    assert set(stages) == expected
    for prompt in profile.prompts.compared:
        path = prompt_path(prompt)
        assert path is None or "$inbox_address" in read_prompt(path).text


def test_nano_holds_out_the_companies_of_its_recipe() -> None:
    profile = load_profile("nano")
    worlds = profile.recipe.data.worlds
    assert worlds is not None
    told = [described(each) for each in profile.sources]
    for split, (first, end) in (("validation", worlds.validation), ("test", worlds.test)):
        mine = [each.config for each in told if each.split == split]
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
    ("change", "named"),
    [
        ("training.seeds=[]", "training.seeds"),
        ("training.recipe=nothing", "no recipe 'nothing'"),
        ("golden.batches=0", "golden.batches"),
        ("baselines.models=[]", "baselines.models"),
        ("ingest.speed=3", "ingest.speed"),
        ("ingest.sources=[]", "ingest.sources are missing"),
    ],
)
def test_what_is_no_profile_is_refused_in_a_line(change: str, named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        load_profile("talk", [change])
    assert "\n" not in str(raised.value)


def test_a_profile_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are nano, talk"):
        load_profile("mega")
    with pytest.raises(UserError, match="no profile"):
        load_profile(str(tmp_path / "mine.toml"))
