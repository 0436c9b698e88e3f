"""`art-e runs export`: a run's episodes as a data set for others, and on the hub if asked.

What leaves has no paths of this machine and no keys; mail is left as it is.
"""

import contextlib
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from art_e.cli.options import JsonOption, chosen_split
from art_e.cli.output import example, note, plural, print_json, print_line
from art_e.errors import UserError
from art_e.message import compact_json, observation_json
from art_e.privacy import REDACTED, keys_in_mail, redact
from art_e.publish import Own, public_model, public_settings, public_text, template
from art_e.question import SPLITS, Split
from art_e.runs import Run, find_run
from art_e.storage import runs_folder
from art_e.text import encodable
from art_e.trajectory import Trajectory, read_trajectories
from data_pipeline.sharing import (
    Addresses,
    Contents,
    DryRunOption,
    PrivateOption,
    PushOption,
    ToOption,
    dataset_card,
    destination,
    json_lines,
    replacing,
    send,
)

# ---- A trajectory as a row of a table, and back.

_TEXT = pa.string()


class Column(NamedTuple):
    """A field of `Trajectory` as a column; `is_json`: a text that is JSON."""

    name: str
    type: pa.DataType
    what: str
    is_json: bool = False

    @property
    def form(self) -> str:
        """Its type in words."""
        if self.is_json:
            return "JSON"
        is_list = pa.types.is_list(self.type)
        return f"list of {self.type.value_type}" if is_list else str(self.type)


def _json(name: str, what: str) -> Column:
    return Column(name, _TEXT, what, is_json=True)


COLUMNS = (
    Column("run_id", _TEXT, "the run"),
    Column("episode_id", _TEXT, "the episode, unique in the run"),
    Column("question_id", _TEXT, "the question, by its id in the golden set"),
    Column("inbox_address", _TEXT, "whose inbox was asked about"),
    Column("as_of", _TEXT, "the day of asking: later mail did not exist; null: all mail"),
    Column("model", _TEXT, "who chose the messages"),
    _json("policy", "sampling settings, hash of the system prompt; in training the step"),
    _json("messages", "the conversation in OpenAI's chat form, with tool calls and their results"),
    _json("handles", "message ids by the handles (m1, m2, ...) that the conversation uses"),
    Column("final_answer", _TEXT, "what was answered; null where nothing was"),
    Column("sources", pa.list_(_TEXT), "message ids of the mails that the answer cites"),
    _json("rubric", "what happened, as facts: found, read, turns, malformed calls"),
    _json("usage", "tokens"),
    Column("cost_usd", pa.float64(), "what was paid; null where it is not known"),
    _json("seconds", "how long it took"),
    Column("started_at", _TEXT, "when it began, in UTC"),
    Column("call_seconds", pa.list_(pa.float64()), "how long each call of the model took"),
    Column("retries", pa.int64(), "calls that failed and were made again"),
    _json("error", "the outside failure that ended it; null: none"),
    _json("verdict", "of the judge that decides: correct, grounded, judge, reason; or null"),
    _json("other_verdicts", "of the other judges"),
    _json("reward", "total and components, in training; else null"),
    Column("repeat", pa.int64(), "from 0, where a question was asked several times"),
    _json("question", "the golden row: question, answer, gold mails, kind, split; or null"),
    Column("schema", _TEXT, "the form of all this"),
)
SCHEMA = pa.schema([(each.name, each.type) for each in COLUMNS])


def fields_of(trajectory: Trajectory) -> dict[str, Any]:
    """The fields by name, not copied as by `dataclasses.asdict`."""
    return {each.name: getattr(trajectory, each.name) for each in COLUMNS}


def to_row(trajectory: Trajectory) -> dict[str, Any]:
    """The row of a trajectory. None is null, and not JSON."""
    return {each.name: _cell(each, getattr(trajectory, each.name)) for each in COLUMNS}


def _cell(column: Column, value: Any) -> Any:
    if column.is_json and value is not None:
        # A lone surrogate becomes the JSON escape that it may have come from.
        return compact_json(value).encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [encodable(each) if isinstance(each, str) else each for each in value]
    return encodable(value) if isinstance(value, str) else value


def from_row(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a row that `datasets` loaded. Raises `ValueError` for any other row."""
    try:
        fields = {each.name: row[each.name] for each in COLUMNS}
        for each in COLUMNS:
            if each.is_json and fields[each.name] is not None:
                fields[each.name] = json.loads(fields[each.name])
    except (KeyError, TypeError) as error:
        raise ValueError(f"no row of rollouts: {error}") from None
    return Trajectory(**fields)


# ---- A trajectory as others may see it.


class Sharing:
    """Cleans the trajectories of one run; `redacted` counts those that held keys."""

    def __init__(self) -> None:
        self.redacted = 0
        self._keys = keys_in_mail()
        self._names: dict[str, str] = {}

    def shared(self, trajectory: Trajectory) -> Trajectory:
        """The trajectory as others may see it."""
        question, error = trajectory.question, trajectory.error
        if question is not None and "provenance" in question:
            question = {**question, "provenance": public_settings(question["provenance"])}
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
        clean = _without_keys(row, self._keys)
        self.redacted += clean != row
        return Trajectory(**clean)

    def _model(self, name: str) -> str:
        """A distinct public name for each model, also if two folders end alike."""
        if name not in self._names:
            shown = public_model(name)
            same = sum(each.partition(" (")[0] == shown for each in self._names.values())
            self._names[name] = f"{shown} ({same + 1})" if same else shown
        return self._names[name]


def _without_keys(value: Any, keys: re.Pattern[str]) -> Any:
    """A JSON value with `REDACTED` in place of keys. A text that is JSON stays JSON."""
    if isinstance(value, str):
        objects = list(json_lines(value))
        if not objects:
            return keys.sub(REDACTED, value)
        clean = [_without_keys(each, keys) for each in objects]
        return value if clean == objects else "\n".join(map(observation_json, clean))
    if isinstance(value, list):
        return [_without_keys(each, keys) for each in value]
    if isinstance(value, dict):
        return {_without_keys(k, keys): _without_keys(each, keys) for k, each in value.items()}
    return value


def _verdict(verdict: Any) -> Any:
    return verdict and {**verdict, "judge": public_model(str(verdict["judge"]))}


# ---- The export.

_MANIFEST = "run.json"
_MANIFEST_SCHEMA = "art-e/rollouts/1"
_NO_SPLIT = "rollouts"
_PARTS = (*SPLITS, _NO_SPLIT)
_FILES = tuple(f"{part}.parquet" for part in _PARTS)
_NAMES = frozenset({"README.md", _MANIFEST, *_FILES})
# Where a run has its episodes; the second is a training run's test.
_EPISODES = ("trajectories.jsonl", "test.jsonl")
# Settings of a run that are published.
_PUBLISHED = (
    "name", "kind", "seed", "questions", "split", "limit", "repeat", "judges", "prompt",
    "max_turns", "view", "temperature", "reasoning_effort", "tool_calls",
)  # fmt: skip
# Facts that the card shows in sections of their own.
_APART = frozenset({"schema", "run", "complete", "models", "episodes", "contents", "name", "kind"})
_RUNS = {
    "sft": "a warm start (SFT)",
    "grpo": "reinforcement learning (GRPO)",
    "eval": "an evaluation",
    "ask": "questions of a user",
}
# Rows that are written together.
_GROUP = 500


class Exported(NamedTuple):
    """The number of episodes of each part, and what is in them."""

    parts: dict[str, int]
    contents: Contents


def export(run: Run, to: Path, split: Split | None = None) -> Exported:
    """Write the run's episodes, or those on questions of one split, to the folder `to`.

    An earlier export there is replaced, whole or not at all. Raises `UserError` where the run has
    no such episode or can't be read, or the folder holds something else or can't be written.
    """
    config = _config(run)
    sharing, tally = Sharing(), _Tally()
    with replacing(to, _MANIFEST, _MANIFEST_SCHEMA, _NAMES.__contains__) as folder:
        episodes = ((_part(each), each) for each in _episodes(run))
        chosen = ((part, each) for part, each in episodes if split in (None, part))
        with contextlib.ExitStack() as opened:
            writers: dict[str, pq.ParquetWriter] = {}
            while group := list(itertools.islice(chosen, _GROUP)):
                rows = defaultdict(list)
                for part, episode in group:
                    clean = sharing.shared(episode)
                    tally.add(part, clean)
                    rows[part].append(to_row(clean))
                for part in rows.keys() - writers.keys():
                    path = folder / f"{part}.parquet"
                    writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")
                    writers[part] = opened.enter_context(writer)
                for part, found in rows.items():
                    writers[part].write_table(pa.Table.from_pylist(found, schema=SCHEMA))
        if not tally.parts:
            which = "" if split is None else f" on questions of the split {split}"
            raise UserError(f"{run.folder} has no episode{which}; art-e runs list shows the runs")
        parts = {name: tally.parts[name] for name in _PARTS if tally.parts[name]}
        contents = tally.contents(sharing.redacted)
        facts = {
            "schema": _MANIFEST_SCHEMA,
            "run": run.id,
            "complete": run.complete,
            "models": dict(tally.models),
            **_facts(config),
            "episodes": parts,
            "contents": contents.to_json(),
        }
        text = json.dumps(facts, indent=2, ensure_ascii=True)
        (folder / _MANIFEST).write_text(f"{text}\n", "utf-8")
        (folder / "README.md").write_text(_card(facts, tally.made_up), "utf-8")
    return Exported(parts, contents)


def _part(trajectory: Trajectory) -> str:
    split = (trajectory.question or {}).get("split")
    return split if split in SPLITS else _NO_SPLIT


class _Tally:
    """What is in the episodes that leave."""

    def __init__(self) -> None:
        self.parts: Counter[str] = Counter()
        self.models: Counter[str] = Counter()
        self.made_up = True
        self._questions: dict[tuple[str, str], bool] = {}
        self._shown: set[str] = set()
        self._read: set[str] = set()
        self._addresses = Addresses()

    def add(self, part: str, trajectory: Trajectory) -> None:
        self.parts[part] += 1
        self.models[trajectory.model] += 1
        row = trajectory.question or {}
        self.made_up &= (row.get("provenance") or {}).get("model") == "synthetic"
        texts = (each["content"] for each in trajectory.messages if each["role"] == "user")
        key = trajectory.inbox_address, str(next(texts, ""))
        self._questions[key] = bool(row.get("answer"))
        self._shown |= {*trajectory.mails_found, *trajectory.mails_read}
        self._read |= set(trajectory.mails_read)
        self._addresses.add(fields_of(trajectory))

    def contents(self, redacted: int) -> Contents:
        episodes = f"{self.parts.total():,} episodes, each with all messages and the answer given"
        notes = [episodes, f"mails that are in it as they were read: {len(self._read):,}"]
        if self.made_up:
            notes.append("the people and mails are made up")
        if redacted:
            notes.append(f"episodes with what looked like a key, which is cut out: {redacted:,}")
        return Contents(
            questions=len(self._questions),
            answers=sum(self._questions.values()),
            mails=len(self._shown),
            inboxes=len({inbox for inbox, _ in self._questions}),
            addresses=len(self._addresses),
            notes=tuple(notes),
        )


def _episodes(run: Run) -> Iterator[Trajectory]:
    for name in _EPISODES:
        path = run.folder / name
        if path.exists():
            number = 0
            try:
                for number, each in enumerate(read_trajectories(path), start=1):  # noqa: B007
                    yield each
            except ValueError as error:
                raise UserError(
                    f"line {number + 1} of {path} is no trajectory ({error}); make the run again"
                ) from None


def _config(run: Run) -> dict[str, Any]:
    config: Any = None
    with contextlib.suppress(OSError, ValueError):
        config = run.config
    if not isinstance(config, dict):
        raise UserError(f"the config.json of {run.folder} can't be read; name another run")
    return config


def _facts(config: dict[str, Any]) -> dict[str, Any]:
    """How the run was made, as far as others may know."""
    facts = {name: config[name] for name in _PUBLISHED if config.get(name) is not None}
    recipe = config.get("recipe")
    if isinstance(recipe, dict):
        facts["recipe"] = recipe.get("name")
        judging = recipe.get("judging") or {}
        facts["judges"] = [judging[each] for each in ("reward", "validation") if each in judging]
        base = (recipe.get("model") or {}).get("base")
        if base is not None:
            facts["base_model"] = base
    elif recipe is not None:
        facts["recipe"] = recipe
    facts["made_by"] = f"art-e {(config.get('versions') or {}).get('art-e', 'unknown')}"
    public: dict[str, Any] = public_settings(facts)
    return public


def _card(facts: Mapping[str, Any], made_up: bool) -> str:
    """The README.md of an export; `made_up`: all its mail is synthetic."""
    rows = sum(facts["episodes"].values())
    front_matter = dataset_card(
        "ART-E rollouts",
        {name: f"{name}.parquet" for name in facts["episodes"]},
        rows,
        license="unknown",
        tags=["art-e", "email", "agent", "rollouts"],
    )
    text = template("data_pipeline", "rollouts.md.j2").render(
        front_matter=Own(front_matter),
        facts=facts,
        what=_RUNS.get(str(facts.get("kind"))) or _RUNS.get(str(facts.get("name"))) or "a run",
        settings={
            name.replace("_", " "): _in_words(value)
            for name, value in facts.items()
            if name not in _APART and value is not None
        },
        total=rows,
        columns=COLUMNS,
        made_up=made_up,
    )
    return f"{text.rstrip()}\n"


def _in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return str(value)


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    "export",
    epilog=example(
        "art-e runs export 20260101-120000-eval --to rollouts",
        "art-e runs export trained --to rollouts --push me/rollouts --dry-run",
        "art-e runs export trained --to rollouts --push me/rollouts",
    ),
)
def export_command(
    name: Annotated[str, typer.Argument(metavar="RUN", help="Name of a run, or its folder.")],
    to: ToOption,
    split: Annotated[
        str | None,
        typer.Option("--split", help="Episodes on questions of train, validation or test alone."),
    ] = None,
    push: PushOption = None,
    private: PrivateOption = True,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Write a run's episodes as Parquet with a card, for datasets.load_dataset.

    They hold the text of mail. Keys and the paths of this machine are cut out.
    """
    target = destination(push, private, dry_run)
    run = find_run(name, runs_folder())
    parts, contents = export(run, to, chosen_split(split))
    if not json_output:
        for part, count in parts.items():
            print_line(f"{count:>7,}  {part}")
        note(f"{plural(sum(parts.values()), 'episode')} written to {to}")
        if not run.complete:
            note("the run is not complete; these are its episodes so far")
    pushed = send(
        to,
        target,
        "dataset",
        contents,
        replaces=_FILES,
        message="Rollouts",
        as_json=json_output,
    )
    if json_output:
        row = {"to": str(to), "episodes": parts, "contents": contents.to_json()}
        print_json({**row, **pushed})
