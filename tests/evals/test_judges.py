"""From the name of a judge to the judge."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.question import Question
from evals.judges import choose_judge, needs_model, spent_by
from evals.judges.offline import F1Judge, OfflineJudge, RuleJudge
from tests.provider import Provider, says

QUESTION = Question("q", "When?", "ann@test.example", None, "May 3")
VERDICT = json.dumps({"reason": "same", "verdict": "correct"})


@pytest.mark.parametrize(("name", "kind"), [("offline", OfflineJudge), ("f1", F1Judge)])
def test_judges_without_a_model(name: str, kind: type[RuleJudge]) -> None:
    judge = choose_judge(name)
    assert judge.name == kind.name
    assert spent_by(judge) is None
    assert not needs_model(name)
    assert asyncio.run(judge.judge(QUESTION, "3 May")) == kind().decide(QUESTION, "3 May")


def test_a_model_keeps_its_verdicts_at_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ART_E_HOME", str(tmp_path))
    with Provider([says(VERDICT)]) as provider:
        provider.stand_in_for_openai(monkeypatch)
        for calls in (1, 0):
            judge = choose_judge("openai/gpt-4.1", max_cost_usd=1.0)
            assert needs_model("openai/gpt-4.1")
            assert asyncio.run(judge.judge(QUESTION, "5/3")).correct
            spent = spent_by(judge)
            assert spent is not None
            assert spent.calls == calls
    assert list((tmp_path / "cache" / "verdicts").rglob("*.json"))


@pytest.mark.parametrize(
    ("name", "fix"), [("local:./out", "art-e serve"), ("nobody/nothing", "unknown model")]
)
def test_one_that_cant_judge(name: str, fix: str) -> None:
    with pytest.raises(UserError, match=fix):
        choose_judge(name)


def test_those_without_a_model_load_no_client() -> None:
    code = (
        "import sys; from evals.judges import choose_judge; choose_judge('offline');"
        " assert not {'litellm', 'torch', 'openai'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
