"""The benchmark: ask models a set of questions, judge the answers, measure.

There is one episode for each question and repeat, over the inbox's mail up to the question's
`query_date`. Each model's workers take the questions in turn; each trajectory is on disk, with its
verdicts, before its worker takes the next question. Hosted models work side by side. Models on this
machine follow one after the other, so that none slows another. The turns of hosted models are on
disk as they arrive, too: a resumed run asks only what is not there yet."""

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
from art_e.runs import Run, held, read_trajectories, runs_of
from art_e.storage import AppendLog, whole_lines
from art_e.text import digest, prompt_text, toml_table
from art_e.tools import WHOLE_VIEW, View
from evals.metrics import model_metrics, run_metrics, servings
from evals.scored import Judge, Key, Scored, judged, limited_gather, load_run

_TURNS, _STEP = "turns.jsonl", TypeAdapter(PolicyStep)  # beside the run's trajectories, a line each

# ---- Resuming a killed run.


class BenchmarkConfig(BaseModel):
    """What a benchmark asks, of which models and how: its `config.json`."""

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


# A stopped run may resume with a higher limit, and the same mail may lie elsewhere.
_MAY_DIFFER = ("differences", "max_cost_usd", "command", "db", "timeout_s", "retries")


def find_killed(config: BenchmarkConfig, parent: Path, out: Path | None) -> Run | None:
    """The run at `out`, else the newest unfinished benchmark in `parent`; None without one. Raises
    `UserError`, naming what differs, if it has another configuration."""
    unfinished = (run for run in runs_of("eval", parent) if not run.complete)
    run = next(unfinished, None) if out is None else Run(out)
    if run is None or not run.begun:
        return None
    had, now = run.config, config.model_dump(mode="json")
    shown = partial(json.dumps, ensure_ascii=False)
    names = [name for name in now if name not in _MAY_DIFFER and had.get(name) != now[name]]
    differing = [f"{name} {shown(had.get(name))}, not {shown(now[name])}" for name in names]
    if differing:
        why = f"{run.folder} can't be resumed: it was made with {'; '.join(differing)}"
        raise UserError(f"{why}; give the same options, or another --out")
    return run


def on_disk(run: Run, questions: Sequence[Question]) -> dict[Key, Scored]:
    """The run's episodes with their questions, each key's last: none follows a measured one."""
    by_id = {each.id: each for each in questions}
    scored = (Scored(by_id[row.question_id], row) for row in read_trajectories(run.trajectories))
    return {each.key: _stripped(each) for each in scored}


def _stripped(scored: Scored) -> Scored:
    """What the figures need: messages are most of an episode, and a run may have many thousands."""
    bare = replace(scored.trajectory, messages=[], events=[], handles={}, question=None)
    return replace(scored, trajectory=bare)


def stored_turns(run: Run) -> dict[Key, list[PolicyStep]]:
    """What hosted models have said in the run so far, of episodes that have ended and others."""
    turns: dict[Key, list[PolicyStep]] = {}
    for row in map(json.loads, whole_lines(run.folder / _TURNS)):
        key, step = Key(*row.pop("key")), _STEP.validate_python(row)
        turns.setdefault(key, []).append(step)
    return turns


class Paid:
    """A policy for one episode: it repeats the stored turns, and stores each further one with the
    seconds until it was there, retries too. `repeated_s` are those of the repeated turns."""

    def __init__(
        self, policy: Policy, key: Key, turns: dict[Key, list[PolicyStep]], log: AppendLog
    ) -> None:
        self.model, self._policy, self._key, self._log = policy.model, policy, key, log
        self._turns = turns.setdefault(key, [])
        self._stored = iter([*self._turns])
        self.repeated_s = sum(step.seconds or 0.0 for step in self._turns)

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


# ---- The benchmark itself.


class Prompt(NamedTuple):
    """A system prompt's template; see `Episode` for its placeholders."""

    name: str
    text: str

    @property
    def facts(self) -> dict[str, str]:
        """What the configuration and the metrics say of it; trajectories record the hash, too."""
        return {"name": self.name, "hash": digest(self.text)}


class Entrant(NamedTuple):
    """A model, its questions at a time, and whether it runs alone, sharing hardware with others."""

    policy: Policy
    concurrency: int = 1
    alone: bool = True


def read_prompt(
    path: Path | None = None, form: EpisodeForm | None = None, *, closed_book: bool = False
) -> Prompt:
    """The template of a form of episode or of that file, by default the one that all commands use
    in that form, or the closed book's. Raises `UserError` if it can't be read."""
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


def drawn(questions: Sequence[Question], count: int | None) -> list[Question]:
    """A fixed sample of `count` questions (None: all) by inbox and kind; smaller ones lie in it."""
    rng = Random(0)

    def spread(part: list[Question], of: Callable[[Question], object]) -> list[Question]:
        """Systematic sampling: any first part has each stratum in its proportion."""
        strata: dict[object, list[Question]] = {}
        for each in part:
            strata.setdefault(of(each), []).append(each)
        placed = []
        for stratum in strata.values():
            offset = rng.random()
            placed += [((n + offset) / len(stratum), each) for n, each in enumerate(stratum)]
        return [each for _, each in sorted(placed, key=lambda pair: pair[0])]

    order = sorted(questions, key=lambda each: each.id)
    rng.shuffle(order)
    order = spread(spread(order, lambda each: each.kind), lambda each: each.inbox_address)
    chosen = {each.id for each in order[:count]}
    return [each for each in questions if each.id in chosen]


# ---- The form of the published figures: `--preset published-100`.

# The reference shows mail with every word of a search, newest first, by its id; one call a turn.
PUBLISHED_VIEW = View(handles=False, all_words=True, calls=1)
PUBLISHED_JUDGE = KNOWN["gemini/gemini-2.0-flash"]
PUBLISHED_PROMPT = Prompt("published-100", prompt_text("evals", "published"))
_PUBLISHED = toml_table("evals", "published.toml")
PUBLISHED_N: int = _PUBLISHED["n"]
PUBLISHED_SET: str = _PUBLISHED["set"]


def published_100(
    questions: Sequence[Question], source: str, limit: int | None = None
) -> list[Question]:
    """The first 100 test questions with one source, but for seven, or `limit`; or `UserError`."""
    test = [each for each in questions if each.split == "test" and each.answerable]
    single = [each for each in test if len(each.message_ids) == 1]
    fitting = [each for each in single if each.id not in _PUBLISHED["left_out"]]
    count = min(limit or PUBLISHED_N, PUBLISHED_N)
    if len(fitting) < count:
        fewer = f", or --limit {len(fitting)}, which is not published-100" if fitting else ""
        why = f"published-100 asks {count} questions of the split test with one source each"
        has = f"{source} has {len(fitting)}"
        raise UserError(f"{why}, and {has}: give --questions {PUBLISHED_SET}{fewer}")
    return fitting[:count]


def published_differences(source: str, count: int, judge: str, recipe: str | None) -> list[str]:
    """How a run with the preset differs from what was published."""
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
    """Ask every model every question; return the metrics, and write them into `run`. The questions
    must have passed `check_questions`. The first judge decides. `on_scored` is called for measured
    episodes, on disk too. A model that refuses every call, that a cost limit stops, or that fails
    `MAX_FAILURES` times in a row is asked no further; the run stays incomplete while a question is
    left. Raises `UserError` if another process works on it."""
    chosen = prompt or read_prompt()

    async def ask(policy: Policy, question: Question, repeat: int) -> Scored:
        inbox, text = inbox_file.inbox_of(question), chosen.text
        episode = Episode(inbox, question, max_turns=max_turns, view=view, system_prompt=text)
        repeated_s = 0.0
        if turns_log is not None and kind_of(policy.model) == "hosted":
            policy = Paid(policy, Key(policy.model, question.id, repeat), turns, turns_log)
            repeated_s = policy.repeated_s
        made = await run_episode(episode, policy, run.id)
        for part in ("total", "model"):
            made.seconds[part] += repeated_s
        made = replace(made, repeat=repeat, question=question.to_row())
        made.policy["prompt"] = chosen.name
        return await judged(Scored(question, made), judges, inbox)

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
                ran[scored.key] = _stripped(scored)
                error = scored.trajectory.error
                failures = 0 if error is None else failures + 1
                if error is None:
                    turns.pop(scored.key, None)
                    on_scored(scored)
                elif error["kind"] == "budget":
                    # Calls under way may cost less than the budget reserved for them.
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
    kept = AppendLog(run.folder / _TURNS) if hosted else nullcontext()
    with held(run), run.log() as log, kept as turns_log:
        turns = stored_turns(run)
        ran = on_disk(run, questions)
        done = {key for key, scored in ran.items() if scored.measured}
        for key in done:
            on_scored(ran[key])
        asyncio.run(run_all(log))
        facts: dict[str, dict[str, Any]] = {}
        for policy, concurrency, _ in entrants:
            left = len(questions) * repeats - sum(key.model == policy.model for key in ran)
            facts[policy.model] = {"concurrency": concurrency, "not_asked": left}
        return _measured(run, list(ran.values()), judges, facts, chosen.facts)


def rejudge(
    source: Run, judges: Sequence[Judge], inbox_file: InboxFile, run: Run, *,
    on_judged: Callable[[], object] = lambda: None,
) -> dict[str, Any]:  # fmt: skip
    """Judge a measured run's answers again, into `run`; `UserError` if the file lacks an inbox."""
    metrics, names = source.metrics, ("concurrency", "not_asked")
    facts = {model: {name: of[name] for name in names} for model, of in metrics["models"].items()}
    with held(run), run.log() as log:

        async def judge_again(scored: Scored) -> Scored:
            bare = replace(scored.trajectory, run_id=run.id, verdict=None, other_verdicts=[])
            inbox = inbox_file.inbox_of(scored.question)
            scored = await judged(Scored(scored.question, bare), judges, inbox)
            log.append(scored.trajectory.to_line())
            return scored

        found = limited_gather(8, judge_again, load_run(source), on_judged)
        return _measured(run, asyncio.run(found), judges, facts, metrics["prompt"])


def _measured(
    run: Run, found: Sequence[Scored], judges: Sequence[Judge],
    facts: Mapping[str, Mapping[str, Any]], prompt: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """The run's metrics, also written; the run is complete if all of every model is measured."""
    names, figures = [each.name for each in judges], {}
    for model, more in facts.items():
        episodes = [each for each in found if each.trajectory.model == model]
        figures[model] = {**model_metrics(episodes, names, servings(run.config).get(model)), **more}
    metrics = run_metrics(found, names, figures) | {"prompt": prompt}
    run.write_json("metrics.json", metrics)
    if not any(each["not_asked"] or each["errors"] for each in figures.values()):
        run.finish()
    return metrics
