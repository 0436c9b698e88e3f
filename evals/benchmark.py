"""The benchmark: ask models a set of questions, judge the answers, measure.

Each question and repeat is one episode, over the inbox's mail up to the question's `query_date`.
Each model has its own workers. A worker writes the trajectory with its verdicts to disk before it
takes the next question. Hosted models run in parallel. Models on this machine run one after the
other, so that they don't slow each other down. Turns of hosted models are also written as they
arrive, so that a resumed run does not pay for them again."""

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, TypeAdapter

from art_e.agent import run_episode
from art_e.episode import Episode, EpisodeForm, default_prompt
from art_e.errors import UserError, explained
from art_e.inbox.file import InboxFile
from art_e.message import ChatMessage, compact_json
from art_e.models.base import MAX_FAILURES, REFUSED, Effort, Policy, PolicyStep, kind_of
from art_e.models.providers import KNOWN
from art_e.publish import public_name
from art_e.question import Question
from art_e.runs import Run, locked_run, read_trajectories, runs_of
from art_e.storage import AppendLog, whole_lines
from art_e.text import digest, prompt_text, toml_table
from art_e.tools import WHOLE_VIEW, View
from evals.metrics import model_metrics, run_metrics, servings
from evals.scored import Judge, Key, Scored, judge_episode, limited_gather, load_run

_TURNS, _STEP = "turns.jsonl", TypeAdapter(PolicyStep)  # in the run's folder, a line per turn

# ---- Resuming a killed run.


class BenchmarkConfig(BaseModel):
    """The configuration of a benchmark run, as in its `config.json`."""

    model_config = ConfigDict(frozen=True)

    models: list[str]
    questions: str
    questions_hash: str
    split: str | None = None
    limit: int | None = None
    preset: str | None = None
    differences: list[str] = []
    repeat: int = 1
    judges: list[str]
    prompt: dict[str, str]
    recipe: str | None = None
    max_turns: int
    view: View
    concurrency: dict[str, int]
    reasoning_effort: Effort | None = None
    temperature: float | None = None
    max_cost_usd: float | None = None
    tool_calls: Literal["auto", "native", "text"] = "auto"
    timeout_s: float | None = None
    retries: int | None = None
    gpu_usd_per_hour: float | None = None
    self_hosted: list[str] | None = None
    db: str
    inbox: str
    command: str


# Options that a resumed run may change: a higher limit, for example, or a moved inbox file.
_MAY_DIFFER = ("differences", "max_cost_usd", "command", "db", "timeout_s", "retries")


def find_unfinished(config: BenchmarkConfig, parent: Path, out: Path | None) -> Run | None:
    """Return the run at `out`, or else the newest unfinished benchmark in `parent`, if any. Raises
    `UserError`, naming the differences, if it has another configuration."""
    unfinished = (run for run in runs_of("eval", parent) if not run.complete)
    run = next(unfinished, None) if out is None else Run(out)
    if run is None or not run.started:
        return None
    old, new = run.config, config.model_dump(mode="json")
    as_json = partial(json.dumps, ensure_ascii=False)
    names = [name for name in new if name not in _MAY_DIFFER and old.get(name) != new[name]]
    changes = [f"{name} {as_json(old.get(name))}, not {as_json(new[name])}" for name in names]
    if changes:
        why = f"{run.folder} can't be resumed: it was made with {'; '.join(changes)}"
        raise UserError(f"{why}; give the same options, or another --out")
    return run


def stored_episodes(run: Run, questions: Sequence[Question]) -> dict[Key, Scored]:
    """Return the last try of each of the run's episodes."""
    by_id = {each.id: each for each in questions}
    scored = (Scored(by_id[row.question_id], row) for row in read_trajectories(run.trajectories))
    return {each.key: _without_messages(each) for each in scored}


def _without_messages(scored: Scored) -> Scored:
    """Drop what the figures don't need, to save memory in runs of many thousands of episodes."""
    bare = replace(scored.trajectory, messages=[], events=[], handles={}, question=None)
    return replace(scored, trajectory=bare)


def stored_turns(run: Run) -> dict[Key, list[PolicyStep]]:
    """Return the run's stored turns of hosted models, including those of unfinished episodes."""
    turns: dict[Key, list[PolicyStep]] = {}
    for row in map(json.loads, whole_lines(run.folder / _TURNS)):
        key, step = Key(*row.pop("key")), _STEP.validate_python(row)
        turns.setdefault(key, []).append(step)
    return turns


class ReplayPolicy:
    """A policy for one episode that replays its stored turns, then calls `policy` and stores each
    new turn with its latency, retries included. `replayed_s` is the latency of replayed turns."""

    def __init__(
        self, policy: Policy, key: Key, turns: dict[Key, list[PolicyStep]], log: AppendLog
    ) -> None:
        self.model, self._policy, self._key, self._log = policy.model, policy, key, log
        self._turns = turns.setdefault(key, [])
        self._stored = iter([*self._turns])
        self.replayed_s = sum(step.seconds or 0.0 for step in self._turns)

    @property
    def settings(self) -> dict[str, Any]:
        return self._policy.settings

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        if (stored := next(self._stored, None)) is not None:
            return stored
        before = time.perf_counter()
        step = await self._policy.act(messages, tools)
        timed = replace(step, seconds=time.perf_counter() - before)
        self._log.append(compact_json({"key": self._key, **asdict(timed)}))
        self._turns.append(timed)
        return step


# ---- The benchmark.


class Prompt(NamedTuple):
    """A system prompt's template; see `Episode` for its placeholders."""

    name: str
    text: str

    @property
    def facts(self) -> dict[str, str]:
        return {"name": self.name, "hash": digest(self.text)}


class Entrant(NamedTuple):
    """A model, its number of concurrent questions, and whether it must run alone."""

    policy: Policy
    concurrency: int = 1
    alone: bool = True


def read_prompt(
    path: Path | None = None, form: EpisodeForm | None = None, *, closed_book: bool = False
) -> Prompt:
    """Return the prompt of the recipe's `form`, or else of the file at `path`, or else the default
    prompt of that form (or of `closed_book`). Raises `UserError` if the file can't be read."""
    if form is not None and form.prompt is not None:
        return Prompt("recipe", form.prompt)
    if path is None:
        text = default_prompt(closed_book, lean=form is not None and form.lean)
        return Prompt("closed-book" if closed_book else "default", text)
    with explained(f"can't read {path}", "name a text file with --prompt"):
        text = path.read_text(encoding="utf-8")
    if not text.strip():
        raise UserError(f"{path} is empty; write the system prompt into it")
    return Prompt(path.stem, text)


def sample_questions(questions: Sequence[Question], count: int | None) -> list[Question]:
    """Return `count` questions (None: all), always the same, stratified by inbox and kind."""
    rng = Random(0)

    def interleave(part: list[Question], key: Callable[[Question], object]) -> list[Question]:
        """Sort so that any prefix has the strata in proportion, by systematic sampling."""
        strata: dict[object, list[Question]] = {}
        for question in part:
            strata.setdefault(key(question), []).append(question)
        placed = []
        for stratum in strata.values():
            offset = rng.random()  # random start; a stratum's n-th is at (n + offset) / size
            placed += [((n + offset) / len(stratum), each) for n, each in enumerate(stratum)]
        return [each for _, each in sorted(placed, key=lambda pair: pair[0])]

    order = sorted(questions, key=lambda each: each.id)
    rng.shuffle(order)
    order = interleave(interleave(order, lambda each: each.kind), lambda each: each.inbox_address)
    chosen = {each.id for each in order[:count]}
    return [each for each in questions if each.id in chosen]


# ---- The setup of the published figures: `--preset published-100`.

# The reference finds mails that have every keyword, newest first, and takes one call a turn.
PUBLISHED_VIEW = View(handles=False, all_words=True, calls=1)
PUBLISHED_JUDGE = KNOWN["gemini/gemini-2.0-flash"]
PUBLISHED_PROMPT = Prompt("published-100", prompt_text("evals", "published"))
_PUBLISHED = toml_table("evals", "published.toml")
PUBLISHED_N: int = _PUBLISHED["n"]
PUBLISHED_SET: str = _PUBLISHED["set"]


def published_100(
    questions: Sequence[Question], source: str, limit: int | None = None
) -> list[Question]:
    """Return the 100 (or `limit`) test questions of the reference. Raises `UserError` for fewer."""
    test = [each for each in questions if each.split == "test" and each.answerable]
    single = [each for each in test if len(each.message_ids) == 1]
    suitable = [each for each in single if each.id not in _PUBLISHED["left_out"]]
    count = min(limit or PUBLISHED_N, PUBLISHED_N)
    if len(suitable) < count:
        fewer = f", or --limit {len(suitable)}, which is not published-100" if suitable else ""
        why = f"published-100 asks {count} questions of the split test with one source each"
        has = f"{source} has {len(suitable)}"
        raise UserError(f"{why}, and {has}: give --questions {PUBLISHED_SET}{fewer}")
    return suitable[:count]


def published_differences(source: str, count: int, judge: str, recipe: str | None) -> list[str]:
    """Return how a run with the preset differs from the published one, a line each."""
    old = PUBLISHED_JUDGE
    lines = {
        f"questions: {public_name(source)}, not {PUBLISHED_SET}": source != PUBLISHED_SET,
        f"{count} questions, not {PUBLISHED_N}": count != PUBLISHED_N,
        f"judge: {judge}; the published {old.model} ended on {old.ends}": judge != old.model,
        f"prompt and tools: those of --recipe {public_name(recipe or '')}": recipe is not None,
    }
    own_form = _PUBLISHED["own_form"] if recipe is None else []
    return [*(line for line, holds in lines.items() if holds), *own_form, *_PUBLISHED["always"]]


def run_benchmark(
    questions: Sequence[Question], entrants: Sequence[Entrant], inbox_file: InboxFile,
    judges: Sequence[Judge], run: Run, *, max_turns: int, prompt: Prompt | None = None,
    view: View = WHOLE_VIEW, repeats: int = 1, on_scored: Callable[[Scored], None] = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Ask every model every question; write the metrics into `run` and return them. The questions
    must have passed `check_questions`. The first judge decides. `on_scored` is called for measured
    episodes, including stored ones. A model gets no more questions once it refuses every call, hits
    its cost limit, or fails `MAX_FAILURES` times in a row; the run then stays incomplete. Raises
    `UserError` if another process works on the run."""
    chosen = prompt or read_prompt()

    async def ask(policy: Policy, question: Question, repeat: int) -> Scored:
        inbox, text = inbox_file.inbox_of(question), chosen.text
        episode = Episode(inbox, question, max_turns=max_turns, view=view, system_prompt=text)
        replayed_s = 0.0
        if turns_log is not None and kind_of(policy.model) == "hosted":
            policy = ReplayPolicy(policy, Key(policy.model, question.id, repeat), turns, turns_log)
            replayed_s = policy.replayed_s
        trajectory = await run_episode(episode, policy, run.id)
        for part in ("total", "model"):
            trajectory.seconds[part] += replayed_s
        trajectory = replace(trajectory, repeat=repeat, question=question.to_row())
        trajectory.policy["prompt"] = chosen.name
        return await judge_episode(Scored(question, trajectory), judges, inbox)

    async def ask_all(entrant: Entrant, log: AppendLog) -> None:
        model = entrant.policy.model
        tries = itertools.product(range(repeats), questions)
        waiting = deque((each, n) for n, each in tries if Key(model, each.id, n) not in done)
        failures = 0  # in a row

        async def work() -> None:
            nonlocal failures
            while waiting:
                question, repeat = waiting.popleft()
                scored = await ask(entrant.policy, question, repeat)
                log.append(scored.trajectory.to_line())
                episodes[scored.key] = _without_messages(scored)
                error = scored.trajectory.error
                failures = 0 if error is None else failures + 1
                if error is None:
                    turns.pop(scored.key, None)
                    on_scored(scored)
                elif error["kind"] == "budget":
                    # Ask it again later: running calls may cost less than was reserved for them.
                    waiting.appendleft((question, repeat))
                    return
                elif error["kind"] in REFUSED or failures >= MAX_FAILURES:
                    waiting.clear()

        await asyncio.gather(*(work() for _ in range(entrant.concurrency)))

    async def run_all(log: AppendLog) -> None:
        await asyncio.gather(*(ask_all(each, log) for each in entrants if not each.alone))
        for entrant in entrants:
            if entrant.alone:
                await ask_all(entrant, log)

    hosted = any(kind_of(each.policy.model) == "hosted" for each in entrants)
    open_turns = AppendLog(run.folder / _TURNS) if hosted else nullcontext()
    with locked_run(run), run.log() as log, open_turns as turns_log:
        turns = stored_turns(run)
        episodes = stored_episodes(run, questions)
        done = {key for key, scored in episodes.items() if scored.measured}
        for key in done:
            on_scored(episodes[key])
        asyncio.run(run_all(log))
        facts: dict[str, dict[str, Any]] = {}
        for policy, concurrency, _ in entrants:
            left = len(questions) * repeats - sum(key.model == policy.model for key in episodes)
            facts[policy.model] = {"concurrency": concurrency, "not_asked": left}
        return _write_metrics(run, list(episodes.values()), judges, facts, chosen.facts)


def rejudge(
    source: Run, judges: Sequence[Judge], inbox_file: InboxFile, run: Run, *,
    on_judged: Callable[[], object] = lambda: None,
) -> dict[str, Any]:  # fmt: skip
    """Judge a run's answers again, into `run`. Raises `UserError` if an inbox is missing."""
    metrics, names = source.metrics, ("concurrency", "not_asked")
    facts = {name: {key: row[key] for key in names} for name, row in metrics["models"].items()}
    with locked_run(run), run.log() as log:

        async def judge_again(scored: Scored) -> Scored:
            bare = replace(scored.trajectory, run_id=run.id, verdict=None, other_verdicts=[])
            inbox = inbox_file.inbox_of(scored.question)
            scored = await judge_episode(Scored(scored.question, bare), judges, inbox)
            log.append(scored.trajectory.to_line())
            return scored

        rejudged = limited_gather(8, judge_again, load_run(source), on_judged)
        return _write_metrics(run, asyncio.run(rejudged), judges, facts, metrics["prompt"])


def _write_metrics(
    run: Run, scored: Sequence[Scored], judges: Sequence[Judge],
    facts: Mapping[str, Mapping[str, Any]], prompt: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """Write and return the run's metrics; mark it complete if every question was measured."""
    names, figures = [each.name for each in judges], {}
    for model, more in facts.items():
        episodes = [each for each in scored if each.trajectory.model == model]
        figures[model] = {**model_metrics(episodes, names, servings(run.config).get(model)), **more}
    metrics = run_metrics(scored, names, figures) | {"prompt": prompt}
    run.write_json("metrics.json", metrics)
    if not any(each["not_asked"] or each["errors"] for each in figures.values()):
        run.finish()
    return metrics
