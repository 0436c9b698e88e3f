"""`art-e reproduce`: what is refused before anything is run, and the plan that is told."""

import json
from pathlib import Path

import pytest

from tests.command_line import Run, json_of, the_error
from training.reproduction import needs


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
    art_e: Run, tmp_path: Path, options: list[str], named: str
) -> None:
    out = tmp_path / "out"
    error = the_error(art_e("reproduce", *options, "--out", out))
    assert named in error
    assert not out.exists()


def test_it_refuses_to_begin_without_what_it_needs(
    art_e: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(needs, "_has_gpu", lambda: False)
    out = tmp_path / "out"
    error = the_error(art_e("reproduce", "--profile", "talk", "--out", out))
    for lacking in ("OPENAI_API_KEY", "GEMINI_API_KEY", "NVIDIA GPU", "--until STAGE"):
        assert lacking in error
    assert not out.exists()


def test_the_plan_of_the_talk(art_e: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    plan = json_of(art_e("reproduce", "--profile", "talk", "--dry-run", "--json", "--out", out))
    units = {each["unit"]: each for each in plan["units"]}
    planned = json_of(art_e("train", "plan", "--recipe", "talk", "--json"))
    grpo = units["grpo-0"]
    assert grpo["seconds"] == pytest.approx(3600 * planned["hours"])
    assert grpo["usd"] == pytest.approx(planned["gpu_usd"] + planned["judge_usd"])
    assert grpo["disk_bytes"] > 29.5e9
    assert units["baseline-o3"]["usd"] > units["baseline-o4-mini"]["usd"] > 1
    assert any("NVIDIA" in each for each in plan["missing"])
    assert plan["left"]["usd"] == pytest.approx(sum(each["usd"] for each in plan["units"]))
    public = json_of(
        art_e("reproduce", "--profile", "talk", "--questions", "public", "--dry-run", "--json",
              "--out", out)
    )  # fmt: skip
    golden = next(each for each in public["units"] if each["unit"] == "golden")
    assert "corbt/enron_emails_sample_questions" in golden["commands"][0]


def test_a_plan_of_an_unknown_price_has_no_sum(art_e: Run, tmp_path: Path) -> None:
    plan = json_of(
        art_e("reproduce", "--profile", "nano", "--baseline", "hosted_vllm/mine", "--dry-run",
              "--json", "--out", tmp_path / "out")
    )  # fmt: skip
    units = {each["unit"]: each for each in plan["units"]}
    assert units["baseline-mine"]["usd"] is None
    assert plan["left"]["usd"] is None
    assert any("HOSTED_VLLM_API_BASE" in each for each in plan["missing"])
    assert json.dumps(plan)
