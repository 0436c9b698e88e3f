"""The command that made a run, read from its `config.json`. Knows nothing of episodes."""

import shlex
from typing import Any

from evals.benchmark import kept_by
from evals.judges import option_of

# What the configuration calls the options of `art-e eval run` that take one value.
_OPTIONS = {
    "questions": "--questions",
    "split": "--split",
    "limit": "--limit",
    "repeat": "--repeat",
    "recipe": "--recipe",
    "max_turns": "--max-turns",
    "reasoning_effort": "--reasoning-effort",
    "temperature": "--temperature",
    "max_cost_usd": "--max-cost",
    "tool_calls": "--tool-calls",
    "gpu_usd_per_hour": "--gpu-usd-per-hour",
    "gpus": "--gpus",
    "db": "--db",
}


def command(config: dict[str, Any]) -> str | None:
    """The `art-e eval run` of that configuration, fit for a shell; None for other runs."""
    if not {"models", "questions", "judges"} <= config.keys():
        return None
    words = ["art-e", "eval", "run"]
    for model in config["models"]:
        words += ["-m", model]
    for judge in config["judges"]:
        words += ["--judge", option_of(judge)]
    said = set()
    if (recipe := config.get("recipe")) is not None:
        said = {"max_turns"}  # the recipe's
        if config["questions"] == kept_by(recipe, config.get("split")):
            said |= {"questions", "db"}  # what is asked where none of these is given
    for name, option in _OPTIONS.items():
        if config.get(name) is not None and name not in said:
            words += [option, str(config[name])]
    if path := (config.get("prompt") or {}).get("path"):  # else the package's own
        words += ["--prompt", path]
    at_once = set((config.get("concurrency") or {}).values())
    if len(at_once) == 1:  # else each model had its own default
        words += ["--concurrency", str(at_once.pop())]
    return shlex.join([*words, "--cache"] if config.get("cache") else words)
