"""From the name of a judge to the judge.

offline          no model: values, names and words, scored (`evals.judges.offline`)
f1               no model: the share of common words (`evals.judges.offline`)
anything else    a litellm name (`evals.judges.llm`)
"""

from collections.abc import Mapping
from pathlib import Path

from art_e.errors import UserError
from art_e.models.base import kind_of
from art_e.models.structured import Spent
from art_e.privacy import load_env
from art_e.storage import home
from evals.judges.llm import LlmJudge
from evals.judges.offline import F1Judge, OfflineJudge, RuleJudge
from evals.verdict import Judge

WITHOUT_MODEL: Mapping[str, type[RuleJudge]] = {"offline": OfflineJudge, "f1": F1Judge}


def needs_model(name: str) -> bool:
    """Whether the judge of that name asks a model, which is sent what it judges."""
    return name not in WITHOUT_MODEL


def choose_judge(
    name: str,
    *,
    max_cost_usd: float | None = None,
    cache: Path | None = None,
    published: bool = False,
) -> Judge:
    """The judge that `--judge` names; with `published` a model judges by the reference's criterion.

    `max_cost_usd` limits the cost of all verdicts of a model. `cache` (None: a folder in
    `ART_E_HOME`) keeps its replies, so that the same verdict is paid for once. Raises `UserError`
    for a judge that can't be used.
    """
    if name in WITHOUT_MODEL:
        return WITHOUT_MODEL[name]()
    if kind_of(name) == "local":
        raise UserError(
            "a checkpoint can't judge in this process: art-e serve it,"
            " and name it as --judge hosted_vllm/NAME"
        )
    load_env()
    judge = LlmJudge(name, max_cost_usd=max_cost_usd, cache=cache or home() / "cache" / "verdicts")
    judge.criterion = "published" if published else "judge"
    return judge


def spent_by(judge: Judge) -> Spent | None:
    """What a judge's calls have cost so far; None for one that makes none."""
    return judge.spent if isinstance(judge, LlmJudge) else None
