"""Carrying a profile out: what is not done yet is done, in order, up to a stage.

One process at a time works on a folder. Killed at any moment, it is gone on with by the same
command. Knows nothing of what the units do.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from art_e.errors import UserError
from art_e.storage import locked
from training.reproduction.page import publish
from training.reproduction.unit import STAGES, Shelf, Stage, State, Unit
from training.reproduction.work import Doing, Sketch

_LOCK = ".reproduce.lock"

Tell = Callable[[str], None]


class Planned(NamedTuple):
    """A unit as it stands, and the commands that make it."""

    state: State
    commands: list[str]


def chosen_stage(name: str | None) -> Stage:
    """The stage of `--until`; None: the last. Raises `UserError` for what is none."""
    if name is None:
        return STAGES[-1]
    chosen = next((each for each in STAGES if each == name), None)
    if chosen is None:
        raise UserError(f"no stage {name!r}; there are {', '.join(STAGES)}")
    return chosen


def until(units: Sequence[Unit], last: Stage) -> list[Unit]:
    """The units of the stages up to `last`."""
    wanted = STAGES[: STAGES.index(last) + 1]
    return [each for each in units if each.stage in wanted]


def plan(units: Sequence[Unit], out: Path) -> list[Planned]:
    """Where each unit stands in the folder `out`, with its commands; nothing is run."""
    states = Shelf(out).states(units)
    folders = {
        name: out / f"{name}-KEY" if state.folder is None else state.folder
        for name, state in states.items()
    }
    made = []
    for name, state in states.items():
        sketch = Sketch(folders[name], folders)
        state.unit.do(sketch)
        made.append(Planned(state, sketch.commands))
    return made


def carry_out(units: Sequence[Unit], out: Path, tell: Tell) -> Path | None:
    """Do what is not done of the units in the folder `out`; the report, where it is among them.

    Raises `UserError` where a command fails, and where another process works on `out`.
    """
    out.mkdir(parents=True, exist_ok=True)
    busy = f"{out} is under way in another process; wait for its end, or give another --out"
    with locked(out / _LOCK, busy):
        return _carry_out(units, out, tell)


def _carry_out(units: Sequence[Unit], out: Path, tell: Tell) -> Path | None:
    shelf = Shelf(out)
    report = None
    for number, unit in enumerate(units, start=1):
        # Keys of what follows are known when what it needs is made.
        states = shelf.states(units[:number])
        state = states[unit.name]
        assert state.folder is not None
        place = f"[{number}/{len(units)}] {unit.stage}: {unit.name}"
        if state.made is None:
            tell(f"{place}{', going on' if state.begun else ''}")
            state.folder.mkdir(exist_ok=True)
            folders = {
                name: each.made.folder for name, each in states.items() if each.made is not None
            }
            begun = time.monotonic()
            unit.do(Doing(state.folder, folders, tell))
            shelf.record(state, time.monotonic() - begun)
        else:
            tell(f"{place}: done before, in {state.folder}")
        if unit.stage == STAGES[-1]:
            report = publish(state.folder, out)
    return report
