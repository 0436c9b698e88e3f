"""From the name of a judge to the judge.

offline          no model, `evals.judges.offline`
f1               no model, by shared words, `evals.judges.f1`
anything else    a litellm name, `evals.judges.llm`
"""

from collections.abc import Mapping
from pathlib import Path

from art_e.errors import UserError
from art_e.models.base import kind_of
from art_e.privacy import load_env
from art_e.storage import home
from evals.judges.f1 import F1Judge
from evals.judges.llm import LlmJudge, Spent
from evals.judges.offline import OfflineJudge, RuleJudge
from evals.verdict import Judge

_WITHOUT_MODEL: Mapping[str, type[RuleJudge]] = {"offline": OfflineJudge, "f1": F1Judge}


def needs_model(name: str) -> bool:
    """Whether the judge of that name asks a model, which is sent what it judges."""
    return name not in _WITHOUT_MODEL


def choose_judge(
    name: str, *, max_cost_usd: float | None = None, cache: Path | None = None
) -> Judge:
    """The judge that `--judge` names.

    `max_cost_usd` bounds what a model's verdicts cost together. Its replies are kept in
    `cache` (None: in `ART_E_HOME`), by the content they were given for: the same verdict is
    not paid for twice. Raises `UserError` for a judge that can't be used.
    """
    if name in _WITHOUT_MODEL:
        return _WITHOUT_MODEL[name]()
    if kind_of(name) == "local":
        raise UserError(
            "a checkpoint can't judge in this process: art-e serve it,"
            " and name it as --judge hosted_vllm/NAME"
        )

    load_env()
    kept = cache or home() / "cache" / "verdicts"
    return LlmJudge(name, max_cost_usd=max_cost_usd, cache=kept)


def option_of(judge: str) -> str:
    """The `--judge` of a judge's name, which has the version of its rules or prompts besides."""
    option = judge.partition("/")[0]
    return option if option in _WITHOUT_MODEL else judge.partition("@")[0]


def spent_by(judge: Judge) -> Spent | None:
    """What a judge's calls have cost so far; None for one that makes none."""
    return judge.spent if isinstance(judge, LlmJudge) else None


def exhausted(judge: Judge) -> bool:
    """Whether the judge did not make a call, for it could have cost more than is left."""
    return isinstance(judge, LlmJudge) and judge.exhausted
