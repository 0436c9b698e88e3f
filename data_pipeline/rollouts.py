"""`art-e runs export`: a run's episodes as a data set for others, and on the hub if asked."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from huggingface_hub import DatasetCardData

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
from data_pipeline.golden.export import size_category
from data_pipeline.sharing import (
    Addresses,
    Contents,
    DryRunOption,
    PrivateOption,
    PushOption,
    ToOption,
    destination,
    json_lines,
    replacing,
    send,
)

# ---- A trajectory as others may see it: no paths of this machine, and no keys.


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


# ---- A trajectory as a row of a table, and back.

_TEXT = pa.string()


class Column(NamedTuple):
    """A field of `Trajectory` as a column; `is_json` says that its texts are JSON."""

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
    """The fields by their names, as they are: `dataclasses.asdict` would copy them all."""
    return {each.name: getattr(trajectory, each.name) for each in COLUMNS}


def to_row(trajectory: Trajectory) -> dict[str, Any]:
    """The row of a trajectory. What is None is null, and no JSON."""
    return {each.name: _cell(each, getattr(trajectory, each.name)) for each in COLUMNS}


def from_row(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a row as `datasets` gives it. Raises `ValueError` for what is none."""
    try:
        fields = {
            each.name: json.loads(row[each.name])
            if each.is_json and row[each.name] is not None
            else row[each.name]
            for each in COLUMNS
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"no row of rollouts: {error}") from None
    return Trajectory(**fields)


def _cell(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.is_json:
        # A lone surrogate becomes the JSON escape that it may have come from.
        return compact_json(value).encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _plain(value)


def _plain(value: Any) -> Any:
    return encodable(value) if isinstance(value, str) else value


# ---- The card of exported rollouts: its README.md, in the form of the Hugging Face hub.

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
    text = template("data_pipeline", "rollouts.md.j2").render(
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


# ---- `export`: the episodes of a run as others load them with `datasets`.

MANIFEST = "run.json"
MANIFEST_SCHEMA = "art-e/rollouts/1"
NO_SPLIT = "rollouts"
PARTS = (*SPLITS, NO_SPLIT)
FILES = tuple(f"{part}.parquet" for part in PARTS)
_NAMES = frozenset({"README.md", MANIFEST, *FILES})
# Where a run has its episodes; the second is a training run's test (`training.validation`).
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
        self._shown |= set(trajectory.mails_found)
        self._read |= set(trajectory.mails_read)
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


# ---- `art-e runs export`: a run's episodes as a data set for others, and on the hub if asked.


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
    chosen = destination(push, private, dry_run)
    wanted = chosen_split(split)

    run = find_run(name, runs_folder())
    exported = export(run, to, wanted)
    if not json_output:
        for part, count in exported.parts.items():
            print_line(f"{count:>7,}  {part}")
        note(f"{plural(sum(exported.parts.values()), 'episode')} written to {to}")
        if not run.complete:
            note("the run is not complete; these are its episodes so far")
    pushed = send(
        to,
        chosen,
        "dataset",
        exported.contents,
        replaces=FILES,
        message="Rollouts",
        as_json=json_output,
    )
    if json_output:
        told = {"to": str(to), "episodes": exported.parts}
        print_json({**told, "contents": exported.contents.to_json(), **pushed})
