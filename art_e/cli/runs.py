"""`art-e runs`: lists runs, and shows one.

A run may have been killed at any time: its readable parts are shown, and the fault is named."""

import contextlib
import dataclasses
import datetime as dt
from typing import Annotated, Any, NamedTuple

from typer import Option, Typer

from art_e.cli import output
from art_e.cli.conversation import failure_reason, format_turn
from art_e.cli.options import JsonOption, RunArgument, integer
from art_e.errors import UserError
from art_e.message import compact_json
from art_e.runs import Run, find_run, list_runs, read_trajectories
from art_e.storage import runs_folder
from art_e.trajectory import Trajectory, exchanges

QUESTION_WIDTH = 60
# The fields of a configuration to show; --json has them all.
_SETTINGS = (
    "name", "command", "model", "models", "question", "questions", "inbox_address", "as_of",
    "split", "limit", "repeat", "preset", "judges", "prompt", "db", "started_at", "commit",
)  # fmt: skip

app = Typer(rich_markup_mode=None)


class Record(NamedTuple):
    """The readable parts of a run: its entry in the list, its configuration and its episodes."""

    entry: dict[str, Any]
    config: dict[str, Any]
    trajectories: list[Trajectory]

    @property
    def state(self) -> str:
        if self.entry["broken"] is not None:
            return f"broken: {self.entry['broken']}"
        return "complete" if self.entry["complete"] else "incomplete"

    @property
    def row(self) -> tuple[str, ...]:
        """The run's row in a table of runs, with its start in local time."""
        entry, when = self.entry, ""
        with contextlib.suppress(TypeError, ValueError):
            when = f"{dt.datetime.fromisoformat(entry['started_at']).astimezone():%Y-%m-%d %H:%M}"
        accuracy = ", ".join(_percent(share, 0) for share in entry["accuracy"].values())
        figures = (f"{entry['episodes']:,}", accuracy, output.format_usd(entry["cost_usd"], 2))
        return (entry["run"], when, entry["model"], _cut(entry["question"]), *figures, self.state)


@app.command("list")
def list_all(
    limit: Annotated[int, integer("Number of runs to list.")] = 20, as_json: JsonOption = False
) -> None:
    """List the runs, the newest first."""
    runs = list_runs(runs_folder())
    records = [read_run(run) for run in runs[:limit]]
    if as_json:
        output.print_json([record.entry for record in records])
        return
    if not records:
        output.note(f"no runs in {runs_folder()} yet; art-e ask makes one")
        return
    headings = "run when model question episodes accuracy cost state".split()
    rows = [record.row for record in records]
    output.print_table(headings, rows, left=(0, 1, 2, 3, 7), lines=False)
    if len(runs) > limit:
        output.note(f"{len(runs) - limit:,} more; --limit {len(runs)} shows all")


@app.command()
def show(
    name: RunArgument,
    episode: Annotated[
        str | None, Option(metavar="ID", help="Show one episode in full, by the start of its id.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run's main settings, figures and episodes, or one episode in full."""
    record = read_run(find_run(name, runs_folder()))
    if record.entry["broken"] is not None:
        output.note(f"this run is {record.state}; what can be read of it is shown")
    if episode is not None:
        matches = [each for each in record.trajectories if each.episode_id.startswith(episode)]
        if len(matches) != 1:
            why = f"{len(matches)} episodes begin with {episode!r}"
            raise UserError(f"{why}; art-e runs show {name} lists them")
        _show_episode(matches[0], as_json)
    elif as_json:
        episodes = [
            {
                "episode_id": trajectory.episode_id, "question_id": trajectory.question_id,
                "question": _question(trajectory), "inbox_address": trajectory.inbox_address,
                "answer": trajectory.final_answer, "abstained": trajectory.rubric.get("abstained"),
                "sources": trajectory.sources, "turns": trajectory.rubric.get("turns"),
                "verdict": trajectory.verdict, "error": trajectory.error,
            }
            for trajectory in record.trajectories
        ]  # fmt: skip
        output.print_json({**record.entry, "config": record.config, "episodes": episodes})
    else:
        _show_record(record)


def read_run(run: Run) -> Record:
    """Read as much of a run as possible."""
    broken = None
    config: dict[str, Any] = {}
    trajectories: list[Trajectory] = []
    try:
        config = run.config
        if not isinstance(config, dict):
            config, broken = {}, "config.json is not a JSON object"
    except (OSError, ValueError) as error:
        broken = f"config.json can't be read ({error})"
    try:
        for trajectory in read_trajectories(run.trajectories):
            trajectories.append(trajectory)  # noqa: PERF402 - keeps those before an error
    except FileNotFoundError:
        if run.complete:
            broken = broken or "trajectories.jsonl is missing"
    except (OSError, ValueError) as error:
        broken = broken or f"line {len(trajectories) + 1} of trajectories.jsonl ({error})"
    models = config.get("models") or config.get("model") or config.get("name", "unknown")
    model = ", ".join(map(str, models)) if isinstance(models, list) else str(models)
    entry = {
        "run": run.id, "folder": str(run.folder), "name": config.get("name"), "model": model,
        "question": str(config.get("question") or config.get("questions") or ""),
        "started_at": config.get("started_at"), "episodes": len(trajectories),
        "accuracy": _accuracy(run, model), "complete": run.complete, "broken": broken,
        "cost_usd": output.total_usd(each.cost_usd for each in trajectories),
    }  # fmt: skip
    return Record(entry, config, trajectories)


def _accuracy(run: Run, model: str) -> dict[str, float | list[float]]:
    """Return each model's accuracy (the last of a training); [min, max] if answers are unjudged."""
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError):
        metrics: dict[str, Any] = run.metrics
        if "models" not in metrics:
            return {model: float(metrics["validation"][-1]["accuracy"])}
        shares: dict[str, float | list[float]] = {}
        for name, figures in metrics["models"].items():
            if (share := figures["accuracy"]["value"]) is not None:
                shares[name] = float(share)
            elif figures["measured"]:
                shares[name] = [float(end) for end in figures["accuracy"]["range"]]
        return shares
    return {}


def _percent(share: float | list[float], digits: int) -> str:
    ends = share if isinstance(share, list) else [share]
    return " to ".join(f"{100 * end:.{digits}f}" for end in ends) + "%"


def _cut(line: str) -> str:
    line = output.one_line(line)
    return line if len(line) <= QUESTION_WIDTH else f"{line[: QUESTION_WIDTH - 1]}…"


def _question(trajectory: Trajectory) -> str:
    texts = (each.get("content") for each in trajectory.messages if each.get("role") == "user")
    return str(next(texts, ""))


def _show_record(record: Record) -> None:
    entry = record.entry
    output.print_text((entry["run"], "bold"), f"  {output.one_line(record.state)}")
    for key in filter(record.config.get, _SETTINGS):
        value = record.config[key]
        line = output.one_line(value if isinstance(value, str) else compact_json(value))
        output.print_text((f"  {key}: ", "dim"), line)
    episodes = output.plural(len(record.trajectories), "episode")
    output.print_text(f"{episodes}, {output.format_usd(entry['cost_usd'])}")
    for model, share in entry["accuracy"].items():
        output.print_text(f"accuracy of {output.one_line(model)}: {_percent(share, 1)}")
    for trajectory in record.trajectories:
        turns = output.plural(int(trajectory.rubric.get("turns", 0)), "turn")
        name = (f"  {output.one_line(trajectory.episode_id)[:8]}  ", "cyan")
        question = f"{_cut(_question(trajectory)):<{QUESTION_WIDTH}}  {turns:>8}  "
        output.print_text(name, question, (_answer(trajectory), "bold"))


def _answer(trajectory: Trajectory) -> str:
    reason = failure_reason(trajectory)
    return f"no answer: {reason}" if reason else output.one_line(trajectory.final_answer or "")


def _show_episode(trajectory: Trajectory, as_json: bool) -> None:
    if as_json:
        output.print_json(dataclasses.asdict(trajectory))
        return
    output.print_text((output.one_line(_question(trajectory)), "bold"))
    as_of = f", up to {trajectory.as_of}" if trajectory.as_of else ""
    about = f"{trajectory.inbox_address}{as_of}, {trajectory.model}, {trajectory.episode_id}\n"
    output.print_text((about, "dim"))
    for number, exchange in enumerate(exchanges(trajectory.messages), start=1):
        output.print_text(format_turn(number, exchange))
    output.print_line()
    output.print_text((_answer(trajectory), "bold"))
    for message_id in trajectory.sources:
        output.print_text((f"  {output.one_line(message_id)}", "dim"))
