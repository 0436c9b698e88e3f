"""A trajectory as others may see it: no paths of this machine, and no keys.

Mail and what a model made of it stay as they are, but for what looks like a key. Knows nothing
of files.
"""

import re
from typing import Any

from art_e.message import observation_json
from art_e.policies.secrets import REDACTED, keys_in_mail, redact
from art_e.public import public_model, public_settings, public_text
from art_e.trajectory import Trajectory
from data_pipeline.contents import json_lines
from data_pipeline.rollouts.columns import fields_of


class Sharing:
    """Makes the trajectories of one run fit to be shared; `redacted` counts those with keys."""

    def __init__(self) -> None:
        self.redacted = 0
        self._keys = keys_in_mail()
        self._names: dict[str, str] = {}

    def shared(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory as others may see it."""
        question = trajectory.question
        if question is not None and "provenance" in question:
            question = {**question, "provenance": public_settings(question["provenance"])}
        error = trajectory.error
        if error is not None:
            error = {**error, "message": redact(public_text(error["message"]))}
        row = {
            **fields_of(trajectory),
            "model": self._model(trajectory.model),
            "policy": public_settings(trajectory.policy),
            "error": error,
            "verdict": _verdict(trajectory.verdict),
            "other_verdicts": [_verdict(each) for each in trajectory.other_verdicts],
            "question": question,
        }
        clean = without_keys(row, self._keys)
        self.redacted += clean != row
        return Trajectory(**clean)

    def _model(self, name: str) -> str:
        """A name of its own for each model, also where two folders end alike."""
        if name not in self._names:
            shown = public_model(name)
            taken = [each for each in self._names.values() if each.partition(" (")[0] == shown]
            self._names[name] = f"{shown} ({len(taken) + 1})" if taken else shown
        return self._names[name]


def without_keys(value: Any, keys: re.Pattern[str]) -> Any:
    """`value` (what JSON can hold) with `REDACTED` for what `keys` finds in its texts.

    A text that is itself JSON is taken apart, so that it stays JSON.
    """
    if isinstance(value, str):
        objects = list(json_lines(value))
        if not objects:
            return keys.sub(REDACTED, value)
        clean = [without_keys(each, keys) for each in objects]
        return value if clean == objects else "\n".join(map(observation_json, clean))
    if isinstance(value, list):
        return [without_keys(each, keys) for each in value]
    if isinstance(value, dict):
        return {without_keys(name, keys): without_keys(each, keys) for name, each in value.items()}
    return value


def _verdict(verdict: Any) -> Any:
    if not verdict:
        return verdict
    return {**verdict, "judge": public_model(str(verdict["judge"]))}
