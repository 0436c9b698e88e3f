"""Going on with a run that was killed: finding it, and what it has on disk already.

A question whose line is on disk is never asked again, unless its episode was cut short by a
limit on cost or a refused key. One that was under way when the
run was killed is asked from its beginning; what its calls had cost is not known. Knows
nothing of how questions are asked.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import Run, list_runs
from art_e.trajectory import read_trajectories
from evals.scored import Scored


class Key(NamedTuple):
    """What a line of a run is the only one of."""

    model: str
    question_id: str
    repeat: int


def find_killed(config: Mapping[str, Any], parent: Path, out: Path | None) -> Run | None:
    """The run at `out`, or the newest of `parent` that has this configuration and has not ended.

    None where there is none. Raises `UserError`, naming what differs, where `out` is a run
    of another configuration.
    """
    if out is None:
        same = (
            run for run in list_runs(parent) if not run.complete and not _differing(run, config)
        )
        return next((run for run in same if not _under_way(run)), None)
    run = Run(out)
    if not run.begun:
        return None
    differing = _differing(run, config)
    if differing:
        raise UserError(
            f"{out} can't be resumed, for it was made with {'; '.join(differing)};"
            " give the same options, or another --out"
        )
    return run


@contextmanager
def held(run: Run) -> Iterator[None]:
    """Be the only process that works on the run. Raises `UserError` where another one does.

    The system lets go of it when the process ends, however that comes about.
    """
    with run.trajectories.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{run.folder} is under way in another process; wait for its end, or give"
                " another --out"
            ) from None
        yield


def on_disk(run: Run, questions: Sequence[Question]) -> dict[Key, Scored]:
    """The run's episodes with their questions, which are among `questions`."""
    by_id = {each.id: each for each in questions}
    found: dict[Key, Scored] = {}
    if run.trajectories.exists():
        for each in read_trajectories(run.trajectories):
            key = Key(each.model, each.question_id, each.repeat)
            scored = Scored(by_id[each.question_id], each)
            if scored.asked:
                found.setdefault(key, scored)
    return found


def _differing(run: Run, config: Mapping[str, Any]) -> list[str]:
    """What the run's configuration has other than `config`, item by item."""
    had, wanted = run.config, json.loads(json.dumps(config))
    return [
        f"{name} {_shown(had.get(name))}, not {_shown(wanted[name])}"
        for name in wanted
        # A run that a limit on cost has stopped goes on with a higher one.
        if name != "max_cost_usd" and had.get(name) != wanted[name]
    ]


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _under_way(run: Run) -> bool:
    try:
        with held(run):
            return False
    except UserError:
        return True
