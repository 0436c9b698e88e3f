"""The command that made a run, read from its `config.json`. Knows nothing of episodes."""

import shlex
from typing import Any

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
        words += ["--judge", _judge_option(judge)]
    # Turns are the recipe's, where there is one.
    said = {"max_turns"} if config.get("recipe") is not None else set()
    for name, option in _OPTIONS.items():
        if config.get(name) is not None and name not in said:
            words += [option, str(config[name])]
    if path := (config.get("prompt") or {}).get("path"):  # else the package's own
        words += ["--prompt", path]
    at_once = set((config.get("concurrency") or {}).values())
    if len(at_once) == 1:  # else each model had its own default
        words += ["--concurrency", str(at_once.pop())]
    return shlex.join([*words, "--cache"] if config.get("cache") else words)


def _judge_option(name: str) -> str:
    """A judge's option: its name without the version of its rules or prompts."""
    return "offline" if name.startswith("offline/") else name.partition("@")[0]
