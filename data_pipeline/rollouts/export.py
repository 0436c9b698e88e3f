"""`export`: the episodes of a run as others load them with `datasets`.

    art-e runs export RUN --to rollouts

The folder holds a Parquet file for each split of the questions (`rollouts.parquet` for those of
none), `run.json`, which says how the run was made, and a card. Episodes pass `Sharing` first.
Knows nothing of the hub.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from art_e.errors import UserError
from art_e.public import public_settings
from art_e.question import SPLITS, Split
from art_e.runs import Run
from art_e.trajectory import Trajectory, read_trajectories
from data_pipeline.contents import Addresses, Contents, json_lines
from data_pipeline.export_folder import replacing
from data_pipeline.rollouts.card import card
from data_pipeline.rollouts.columns import SCHEMA, fields_of, to_row
from data_pipeline.rollouts.shared import Sharing
from evals.scored import mails_read

MANIFEST = "run.json"
MANIFEST_SCHEMA = "art-e/rollouts/1"
NO_SPLIT = "rollouts"
PARTS = (*SPLITS, NO_SPLIT)
FILES = tuple(f"{part}.parquet" for part in PARTS)
_NAMES = frozenset({"README.md", MANIFEST, *FILES})
# Where a run has its episodes; the second is a training run's test (`training.evaluation`).
_EPISODES = ("trajectories.jsonl", "test.jsonl")
# What of a run's configuration is told, where it has it. All else stays here.
_TOLD = (
    "name", "kind", "seed", "questions", "split", "limit", "repeat", "judges", "prompt",
    "max_turns", "view", "temperature", "reasoning_effort", "tool_calls",
)  # fmt: skip
# Rows that are written together.
_GROUP = 500


class Exported(NamedTuple):
    """The episodes of each part, and what is in them."""

    parts: dict[str, int]
    contents: Contents


def export(run: Run, to: Path, split: Split | None = None) -> Exported:
    """Write the run's episodes, or those on questions of one split, to the folder `to`.

    An earlier export there is replaced, whole or not at all. Raises `UserError` where the run
    has no such episode or can't be read, or the folder holds something else or can't be
    written.
    """
    config = _config(run)
    sharing, tally = Sharing(), _Tally()
    with replacing(to, MANIFEST, MANIFEST_SCHEMA, _NAMES.__contains__) as folder:
        files = _Files(folder)
        try:
            for each in _episodes(run):
                part = (each.question or {}).get("split") or NO_SPLIT
                if part in PARTS and split in (None, part):
                    clean = sharing.shared(each)
                    tally.add(clean)
                    files.add(part, to_row(clean))
        finally:
            files.close()
        if not files.counts:
            which = "" if split is None else f" on questions of the split {split}"
            raise UserError(f"{run.folder} has no episode{which}; art-e runs list shows the runs")
        parts = {name: files.counts[name] for name in PARTS if files.counts[name]}
        contents = tally.contents(sharing.redacted)
        facts = {
            "schema": MANIFEST_SCHEMA,
            "run": run.id,
            "complete": run.complete,
            "models": dict(tally.models),
            **_facts(config),
            "episodes": parts,
            "contents": contents.to_json(),
        }
        text = json.dumps(facts, indent=2, ensure_ascii=True)
        (folder / MANIFEST).write_text(f"{text}\n", "utf-8")
        (folder / "README.md").write_text(card(facts, tally.made_up), "utf-8")
    return Exported(parts, contents)


class _Files:
    """The Parquet files of an export, written as rows come."""

    def __init__(self, folder: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._folder = folder
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[dict[str, Any]]] = {}

    def add(self, part: str, row: dict[str, Any]) -> None:
        self.counts[part] += 1
        waiting = self._waiting.setdefault(part, [])
        waiting.append(row)
        if len(waiting) == _GROUP:
            self._write(part)

    def close(self) -> None:
        for part in self._waiting:
            self._write(part)
        for writer in self._writers.values():
            writer.close()

    def _write(self, part: str) -> None:
        if part not in self._writers:
            path = self._folder / f"{part}.parquet"
            self._writers[part] = pq.ParquetWriter(path, SCHEMA, compression="zstd")
        self._writers[part].write_table(pa.Table.from_pylist(self._waiting[part], schema=SCHEMA))
        self._waiting[part].clear()


class _Tally:
    """What is in the episodes that leave."""

    def __init__(self) -> None:
        self.models: Counter[str] = Counter()
        self.made_up = True
        self._questions: dict[tuple[str, str], bool] = {}
        self._shown: set[str] = set()
        self._read: set[str] = set()
        self._inboxes: set[str] = set()
        self._addresses = Addresses()

    def add(self, trajectory: Trajectory) -> None:
        self.models[trajectory.model] += 1
        question = trajectory.question or {}
        self.made_up &= (question.get("provenance") or {}).get("model") == "synthetic"
        asked = next(
            (each["content"] for each in trajectory.messages if each["role"] == "user"), ""
        )
        self._questions[trajectory.inbox_address, str(asked)] = bool(question.get("answer"))
        self._shown |= set(_mails_shown(trajectory))
        self._read |= set(mails_read(trajectory))
        self._inboxes.add(trajectory.inbox_address)
        self._addresses.add(fields_of(trajectory))

    def contents(self, redacted: int) -> Contents:
        episodes = f"{self.models.total():,} episodes, each with all messages and the answer given"
        notes = [episodes, f"mails that are in it as they were read: {len(self._read):,}"]
        if self.made_up:
            notes.append("the people and mails are made up")
        if redacted:
            notes.append(f"episodes with what looked like a key, which is cut out: {redacted:,}")
        return Contents(
            questions=len(self._questions),
            answers=sum(self._questions.values()),
            mails=len(self._shown | self._read),
            inboxes=len(self._inboxes),
            addresses=len(self._addresses),
            notes=tuple(notes),
        )


def _mails_shown(trajectory: Trajectory) -> Iterator[str]:
    """The stored ids of the mails that searches found, of which a snippet was shown."""
    for message in trajectory.messages:
        if message["role"] != "tool":
            continue
        for each in json_lines(str(message.get("content") or "")):
            hits = each.get("hits") if isinstance(each, dict) else None
            for hit in hits if isinstance(hits, list) else ():
                name = hit.get("message_id") if isinstance(hit, dict) else None
                if isinstance(name, str):
                    yield trajectory.handles.get(name, name)


def _episodes(run: Run) -> Iterator[Trajectory]:
    for name in _EPISODES:
        path = run.folder / name
        if not path.exists():
            continue
        number = 0
        try:
            for number, each in enumerate(read_trajectories(path), start=1):  # noqa: B007
                yield each
        except ValueError as error:
            raise UserError(
                f"line {number + 1} of {path} is no trajectory ({error}); make the run again"
            ) from None


def _config(run: Run) -> dict[str, Any]:
    try:
        config: Any = run.config
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict):
        raise UserError(f"the config.json of {run.folder} can't be read; name another run")
    return config


def _facts(config: dict[str, Any]) -> dict[str, Any]:
    """How the run was made, as far as others may know."""
    told = {name: config[name] for name in _TOLD if config.get(name) is not None}
    recipe = config.get("recipe")
    if isinstance(recipe, dict):
        told["recipe"] = recipe.get("name")
        judging = recipe.get("judging") or {}
        told["judges"] = [judging[each] for each in ("reward", "validation") if each in judging]
        base = (recipe.get("model") or {}).get("base")
        if base is not None:
            told["base_model"] = base
    elif recipe is not None:
        told["recipe"] = recipe
    told["made_by"] = f"art-e {(config.get('versions') or {}).get('art-e', 'unknown')}"
    public: dict[str, Any] = public_settings(told)
    return public
