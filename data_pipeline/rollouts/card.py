"""The card of exported rollouts: its README.md, in the form of the Hugging Face hub.

All in it comes from `run.json`, which lies beside it; what runs and models are called is
escaped. Knows nothing of folders.
"""

from collections.abc import Mapping
from typing import Any

from huggingface_hub import DatasetCardData

from art_e.markdown import Own, template
from data_pipeline.golden.card import size_category
from data_pipeline.rollouts.columns import COLUMNS

# Told in sections of their own.
_APART = frozenset({"schema", "run", "complete", "models", "episodes", "contents", "name", "kind"})


def card(facts: Mapping[str, Any], made_up: bool) -> str:
    """The README.md of an export whose `run.json` has these facts.

    `made_up` says that all its mail is of synthetic worlds.
    """
    settings = {
        name.replace("_", " "): _told(value)
        for name, value in facts.items()
        if name not in _APART and value is not None
    }
    text = template("data_pipeline.rollouts", "card.md.j2").render(
        front_matter=Own(_front_matter(facts)),
        facts=facts,
        what=_what(facts),
        settings=settings,
        total=sum(facts["episodes"].values()),
        columns=COLUMNS,
        made_up=made_up,
    )
    return f"{text.rstrip()}\n"


def _front_matter(facts: Mapping[str, Any]) -> str:
    episodes: dict[str, int] = facts["episodes"]
    data_files = [{"split": name, "path": f"{name}.parquet"} for name in episodes]
    return DatasetCardData(
        pretty_name="ART-E rollouts",
        language="en",
        license="unknown",
        task_categories=["question-answering"],
        size_categories=size_category(sum(episodes.values())),
        tags=["art-e", "email", "agent", "rollouts"],
        configs=[{"config_name": "default", "data_files": data_files}],
    ).to_yaml()


def _what(facts: Mapping[str, Any]) -> str:
    """What kind of run it was."""
    kinds = {"sft": "a warm start (SFT)", "grpo": "reinforcement learning (GRPO)"}
    names = {"eval": "an evaluation", "ask": "questions of a user"}
    return kinds.get(str(facts.get("kind"))) or names.get(str(facts.get("name"))) or "a run"


def _told(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return str(value)
