"""A unit of work: what decides what it makes, and whether it has been made.

Its key is a hash of its settings, of the files that it reads, and of what the units that it
needs have made. It is kept in a folder that the key names, so that another setting makes
another folder, and going back to the first finds what was made then. `unit.json`, written last,
says that it is whole. Knows nothing of what units do.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from art_e import __version__
from art_e.errors import UserError
from art_e.runs import Run
from training.reproduction.work import Work

Stage = Literal["ingest", "golden", "prompts", "baselines", "sft", "grpo", "evaluation", "report"]
STAGES: tuple[Stage, ...] = (
    "ingest",
    "golden",
    "prompts",
    "baselines",
    "sft",
    "grpo",
    "evaluation",
    "report",
)
RECORD = "unit.json"
_KEY_CHARS = 10
# How much may be spent decides whether a unit is made, and nothing of what it makes.
_NO_SETTING = "max_cost_usd"


@dataclass(frozen=True)
class Unit:
    """A piece of work of a stage. `settings` and the files `reads` decide what it makes, with
    the `products` (files and folders of its folder) of the units that it `needs`, by name."""

    stage: Stage
    name: str
    settings: Mapping[str, Any]
    products: tuple[str, ...]
    do: "Callable[[Work], None]"
    needs: tuple[str, ...] = ()
    reads: tuple[Path, ...] = ()


class Made(NamedTuple):
    """A unit that is whole: its folder, the hash of each product, and the seconds it took, those
    of a process that was killed left out."""

    folder: Path
    digests: dict[str, str]
    seconds: float


class State(NamedTuple):
    """Where a unit stands. `key` and `folder` are None where a unit that it needs is not made;
    `made` is None where it is not itself. `before` says that it was made once, of whatever."""

    unit: Unit
    key: str | None
    folder: Path | None
    made: Made | None
    before: bool

    @property
    def begun(self) -> bool:
        """Whether something of it is there and it is not whole."""
        return self.made is None and self.folder is not None and self.folder.is_dir()

    @property
    def word(self) -> str:
        """That in a word or some: where its key is not known it may turn out to be made."""
        if self.made is not None:
            return "done"
        if self.begun:
            return "begun"
        return "to do or done" if self.key is None and self.before else "to do"


@dataclass
class Shelf:
    """The folder `out` of a reproduction, with the folders of its units.

    The hash of a file is remembered while this lives, by its size and time of change.
    """

    out: Path
    _seen: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def states(self, units: Iterable[Unit]) -> dict[str, State]:
        """Where each unit stands, by its name. Each comes after those that it needs.

        Raises `UserError` for a file that is read and is not there.
        """
        found: dict[str, State] = {}
        for unit in units:
            made = [found[each].made for each in unit.needs]
            digests = [each.digests for each in made if each is not None]
            whole = len(digests) == len(made)
            key = self._key(unit, digests) if whole else None
            folder = self._folder(unit, key)
            before = any(self.out.glob(f"{unit.name}-{'?' * _KEY_CHARS}/{RECORD}"))
            found[unit.name] = State(unit, key, folder, self._made(unit, folder), before)
        return found

    def record(self, state: State, seconds: float) -> Made:
        """Write that the unit is whole. Raises `UserError` where a product is missing."""
        assert state.folder is not None
        missing = [each for each in state.unit.products if not (state.folder / each).exists()]
        if missing:
            raise UserError(f"{state.folder} lacks {missing[0]}; delete it, and run this again")
        row = {"unit": state.unit.name, "key": state.key, "seconds": round(seconds, 1)}
        Run(state.folder).write_json(RECORD, {**row, "settings": dict(state.unit.settings)})
        made = self._made(state.unit, state.folder)
        assert made is not None
        return made

    def _made(self, unit: Unit, folder: Path | None) -> Made | None:
        if folder is None:
            return None
        try:
            row = json.loads((folder / RECORD).read_text("utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise UserError(f"{folder / RECORD} can't be read; delete {folder}") from None
        paths = {each: folder / each for each in unit.products}
        if not all(each.exists() for each in paths.values()):
            return None
        digests = {name: self.digest(path) for name, path in paths.items()}
        return Made(folder, digests, float(row["seconds"]))

    def _key(self, unit: Unit, needed: list[dict[str, str]]) -> str:
        decided = {
            "unit": unit.name,
            "settings": _without_costs(dict(unit.settings)),
            "reads": [self.digest(each) for each in unit.reads],
            "needs": needed,
            "version": __version__,
        }
        return hashlib.sha256(json.dumps(decided, sort_keys=True).encode()).hexdigest()

    def _folder(self, unit: Unit, key: str | None) -> Path | None:
        return None if key is None else self.out / f"{unit.name}-{key[:_KEY_CHARS]}"

    def digest(self, path: Path) -> str:
        """A hash of a file, or of all files of a folder with their names."""
        try:
            if not path.is_dir():
                return self._file(path)
            inside = sorted(each for each in path.rglob("*") if each.is_file())
            parts = [f"{each.relative_to(path).as_posix()} {self._file(each)}" for each in inside]
            return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
        except OSError as error:
            raise UserError(f"can't read {path}: {error.strerror}; name another") from None

    def _file(self, path: Path) -> str:
        stat = path.stat()
        known = str(path), stat.st_size, stat.st_mtime_ns
        if known not in self._seen:
            with path.open("rb") as file:
                self._seen[known] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._seen[known]


def _without_costs(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_costs(each) for key, each in value.items() if key != _NO_SETTING}
    return [_without_costs(each) for each in value] if isinstance(value, list | tuple) else value
