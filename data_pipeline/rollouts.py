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


class Column(NamedTuple):
    """A field of `Trajectory` as a column; its `form` is the type in words."""

    name: str
    form: str
    what: str


COLUMNS = (
    Column("run_id", "string", "the run"),
    Column("episode_id", "string", "the episode, unique in the run"),
    Column("question_id", "string", "the question, by its id in the golden set"),
    Column("inbox_address", "string", "whose inbox was asked about"),
    Column("as_of", "string", "the day of asking: later mail did not exist; null: all mail"),
    Column("model", "string", "who chose the messages"),
    Column("policy", "JSON", "sampling settings, hash of the system prompt; in training the step"),
    Column(
        "messages",
        "JSON",
        "the conversation in OpenAI's chat form, with tool calls and their results",
    ),
    Column(
        "handles", "JSON", "message ids by the handles (m1, m2, ...) that the conversation uses"
    ),
    Column("final_answer", "string", "what was answered; null where nothing was"),
    Column("sources", "list of string", "message ids of the mails that the answer cites"),
    Column("rubric", "JSON", "what happened, as facts: found, read, turns, malformed calls"),
    Column("usage", "JSON", "tokens"),
    Column("cost_usd", "double", "what was paid; null where it is not known"),
    Column("seconds", "JSON", "how long it took"),
    Column("started_at", "string", "when it began, in UTC"),
    Column("call_seconds", "list of double", "how long each call of the model took"),
    Column("retries", "int64", "calls that failed and were made again"),
    Column("error", "JSON", "the outside failure that ended it; null: none"),
    Column(
        "verdict", "JSON", "of the judge that decides: correct, grounded, judge, reason; or null"
    ),
    Column("other_verdicts", "JSON", "of the other judges"),
    Column("reward", "JSON", "total and components, in training; else null"),
    Column("repeat", "int64", "from 0, where a question was asked several times"),
    Column(
        "question", "JSON", "the golden row: question, answer, gold mails, kind, split; or null"
    ),
    Column("schema", "string", "the form of all this"),
)
_TYPES = {
    "string": pa.string(),
    "JSON": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "list of string": pa.list_(pa.string()),
    "list of double": pa.list_(pa.float64()),
}
SCHEMA = pa.schema([(each.name, _TYPES[each.form]) for each in COLUMNS])


def fields_of(trajectory: Trajectory) -> dict[str, Any]:
    """The fields by name, not copied as by `dataclasses.asdict`."""
    return {each.name: getattr(trajectory, each.name) for each in COLUMNS}


def to_row(trajectory: Trajectory) -> dict[str, Any]:
    """The row of a trajectory. None is null, and not JSON."""
    row = fields_of(trajectory)
    for name, form, _ in COLUMNS:
        if form == "JSON" and row[name] is not None:
            # A lone surrogate becomes the JSON escape that it may have come from.
            row[name] = compact_json(row[name]).encode("utf-8", "backslashreplace").decode("utf-8")
        elif form == "string" and row[name] is not None:
            row[name] = encodable(row[name])
        elif form == "list of string":
            row[name] = [encodable(each) for each in row[name]]
    return row


def from_row(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a row that `datasets` loaded. Raises `ValueError` for any other row."""
    try:
        fields = {each.name: row[each.name] for each in COLUMNS}
        for each in COLUMNS:
            if each.form == "JSON" and fields[each.name] is not None:
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
        verdict, *others = [
            each and {**each, "judge": public_model(str(each["judge"]))}
            for each in (trajectory.verdict, *trajectory.other_verdicts)
        ]
        if question is not None and "provenance" in question:
            question = {**question, "provenance": public_settings(question["provenance"])}
        if error is not None:
            error = {**error, "message": redact(public_text(error["message"]))}
        row = {
            **fields_of(trajectory),
            "model": self._model(trajectory.model),
            "policy": public_settings(trajectory.policy),
            "error": error,
            "verdict": verdict,
            "other_verdicts": others,
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
    config: Any = None
    with contextlib.suppress(OSError, ValueError):
        config = run.config
    if not isinstance(config, dict):
        raise UserError(f"the config.json of {run.folder} can't be read; name another run")
    sharing, tally = Sharing(), _Tally()
    with replacing(to, _MANIFEST, _MANIFEST_SCHEMA, _NAMES.__contains__) as folder:
        chosen = (each for each in _episodes(run) if split in (None, each[0]))
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


def _episodes(run: Run) -> Iterator[tuple[str, Trajectory]]:
    """The episodes, each with the part that it belongs to."""
    for name in _EPISODES:
        path = run.folder / name
        number = 0
        try:
            for number, each in enumerate(read_trajectories(path), start=1):  # noqa: B007
                split = (each.question or {}).get("split")
                yield split if split in SPLITS else _NO_SPLIT, each
        except ValueError as error:
            raise UserError(
                f"line {number + 1} of {path} is no trajectory ({error}); make the run again"
            ) from None


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
    settings = {
        name.replace("_", " "): _in_words(value)
        for name, value in facts.items()
        if name not in _APART and value is not None
    }
    text = template("data_pipeline", "rollouts.md.j2").render(
        front_matter=Own(front_matter),
        facts=facts,
        what=_RUNS.get(str(facts.get("kind"))) or _RUNS.get(str(facts.get("name"))) or "a run",
        settings=settings,
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
