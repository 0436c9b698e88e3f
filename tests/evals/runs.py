"""Invented runs: folders like those of `art-e eval run`, without a model or an inbox.

Every episode is a whole conversation, and its rubric fits its messages."""

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Any, Literal, get_args

from art_e.models.base import Usage
from art_e.question import Difficulty, Kind, Question
from art_e.runs import Run, start_run
from art_e.storage import append_line
from art_e.trajectory import Trajectory
from evals.scored import Scored
from tests import builders
from training.run import STEPS, Step, Validation

# "wrong" has read the gold mail; in "not read" a search found it, but another mail was read.
Outcome = Literal[
    "right", "wrong", "not read", "not found", "abstained", "out of turns", "lost", "failed",
    "unjudged",
]  # fmt: skip
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
ANSWERABLE: tuple[Kind, ...] = ("lookup", "latest-update", "multi-mail", "count")
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")
INBOXES = 4
MAX_TURNS = 10


def question(number: int, *, kind: Kind | None = None, **replaced: Any) -> Question:
    """Return question `number`; without `kind`, every fifth is unanswerable."""
    chosen = kind or ("unanswerable" if number % 5 == 4 else ANSWERABLE[number % 5])
    answerable = chosen != "unanswerable"
    fields: dict[str, Any] = {
        "id": f"q{number}", "question": f"When does the lease of warehouse {number} end?",
        "inbox_address": f"owner{number % INBOXES}@test.example",
        "answer": f"On May {number % 28 + 1}." if answerable else None,
        "message_ids": (f"<gold-{number}@test.example>",) if answerable else (),
        "kind": chosen, "difficulty": DIFFICULTIES[number % 3], "answerable": answerable,
        "split": "test",
    }  # fmt: skip
    return Question(**{**fields, **replaced})


def episode(
    item: Question, outcome: Outcome, *, model: str = "scripted", step: int | None = None,
    repeat: int = 0, second: bool | None = None, reward: dict[str, float] | None = None,
    cost: float | None = 0.002, seconds: float = 2.0, run_id: str = "r", **replaced: Any,
) -> Trajectory:  # fmt: skip
    """Return an episode with this `outcome`; "abstained" is right for an unanswerable question.
    `second` is a second judge's verdict, `reward` has the components of the reward."""
    gold = next(iter(item.message_ids), "<none@test.example>")
    other = f"<other-{item.id}@test.example>"
    hits = [each for each in (gold, other) if each == other or outcome != "not found"]
    reads = gold if outcome in ("right", "wrong", "unjudged", "abstained") else other
    ends = outcome not in ("out of turns", "lost", "failed")
    answer: str | None = None
    if ends and outcome != "abstained":
        answer = (item.answer or "I don't know") if outcome == "right" else "On December 31."
    messages = _conversation(item, hits, reads, answer, ends)
    turns = sum(each["role"] == "assistant" for each in messages)
    abstains = ends and (answer is None or (outcome == "right" and item.answer is None))
    gold_known = item.answerable or None
    correct = outcome == "right" or (outcome == "abstained" and not item.answerable)
    sources = [reads] if ends and not abstains else []
    verdicts = [_verdict(None if outcome == "unjudged" else correct, "offline/9")] if ends else []
    if ends and second is not None:
        verdicts.append(_verdict(second, "second"))
    policy = {"temperature": 0, "prompt_hash": "0123456789abcdef"}
    events: list[dict[str, Any]] = [
        {"turn": 1, "tool": "search_emails", "arguments": {}, "found": hits},
        {"turn": 2, "tool": "read_email", "arguments": {}, "read": reads},
        {"turn": 3, "tool": "return_final_answer", "arguments": {}, "cited": sources},
    ][: 2 + ends]
    rubric = {
        "max_turns": MAX_TURNS, "turns": turns, "effort": turns + 1, "tool_calls": turns,
        "answered": ends and not abstains, "abstained": abstains,
        "sources_correct": gold_known and gold in sources, "num_sources": len(sources),
        "found_gold": gold_known and gold in hits,
        "read_gold": gold_known and (gold in hits and reads == gold),
        "unparseable_calls": 3 if outcome == "lost" else 0, "bad_argument_calls": 0,
        "lost_to_format": outcome == "lost", "ran_out_of_turns": outcome == "out of turns",
    }  # fmt: skip
    fields: dict[str, Any] = {
        "run_id": run_id, "question_id": item.id, "question": item.to_row(), "repeat": repeat,
        "episode_id": f"{model}-{item.id}-{repeat}" + ("" if step is None else f"-{step}"),
        "inbox_address": item.inbox_address, "model": model,
        "policy": policy if step is None else {**policy, "step": step},
        "messages": messages, "events": events,
        "handles": {f"m{number}": each for number, each in enumerate(hits, start=1)},
        "final_answer": answer, "sources": sources, "rubric": rubric,
        "usage": asdict(Usage(1000, 0, 100, 0)), "cost_usd": cost,
        "seconds": {"total": seconds, "model": seconds * 0.9, "tools": seconds * 0.05},
        "call_seconds": [seconds * 0.9 / turns] * turns,
        "error": {"kind": "provider", "message": "503"} if outcome == "failed" else None,
        "verdict": next(iter(verdicts), None), "other_verdicts": verdicts[1:],
    }  # fmt: skip
    if reward is not None:
        fields["reward"] = {"total": sum(reward.values()), "components": reward}
    return builders.trajectory(**{**fields, **replaced})


def episodes(
    model: str, counts: dict[Outcome, int], *, questions: Iterable[Question] | None = None,
    **options: Any,
) -> list[Trajectory]:  # fmt: skip
    """Return episodes by outcome and count, on questions 0, 1, 2 ... (or on `questions`)."""
    item = iter(questions or map(question, count()))
    outcomes = [outcome for outcome, number in counts.items() for _ in range(number)]
    return [
        episode(next(item), outcome, model=model, **{"seconds": 1.0 + number % 7, **options})
        for number, outcome in enumerate(outcomes)
    ]


def changed(scored: Scored, *, rubric: dict[str, Any] | None = None, **fields: Any) -> Scored:
    """Return the episode with other fields in its trajectory and rubric."""
    facts = {**scored.trajectory.rubric, **(rubric or {})}
    trajectory = dataclasses.replace(scored.trajectory, rubric=facts, **fields)
    return Scored(scored.question, trajectory)


def training(steps: Sequence[int], *, model: str = "trained", n: int = 20) -> list[Trajectory]:
    """Return a training run's validations, with more right answers from step to step."""
    validations: list[Trajectory] = []
    for place, step in enumerate(steps):
        right = n * (place + 1) // (len(steps) + 1)
        rest = n - right
        outcomes: dict[Outcome, int] = {"right": right, "abstained": rest // 2}
        outcomes["wrong"] = rest - rest // 2
        reward = {"correctness": 1.0 * right / n, "effort": -0.1}
        validations += episodes(model, outcomes, step=step, reward=reward)
    return validations


def write_questions(path: Path, questions: Iterable[Question]) -> Path:
    return builders.write_lines(path, *(each.to_row() for each in questions))


def write_run(
    folder: Path, trajectories: Sequence[Trajectory], *, complete: bool = True, **config: Any
) -> Run:
    """Write a run into `folder`, which must be new or empty; `config` replaces its defaults."""
    models = list(dict.fromkeys(each.model for each in trajectories))
    chosen = {
        "models": models, "questions": "world.questions.jsonl", "split": "test",
        "judges": ["offline/9"], "prompt": {"name": "default", "hash": "0123456789abcdef"},
        "concurrency": dict.fromkeys(models, 1), "max_turns": MAX_TURNS,
    }  # fmt: skip
    run = start_run("eval", {**chosen, **config}, folder.parent, folder)
    with run.log() as log:
        for trajectory in trajectories:
            log.append(trajectory.to_line())
    if complete:
        run.finish()
    return run


def _conversation(
    item: Question, ids: Sequence[str], reads: str, answer: str | None, ends: bool
) -> list[dict[str, Any]]:
    head = {"date": "2020-01-31", "from": "Ann Alder <ann@test.example>"}
    text = "The lease of the warehouse"
    hits = [
        {"message_id": f"m{number}", **head, "subject": f"Lease, part {number}", "snippet": text}
        for number in range(1, len(ids) + 1)
    ]
    handle = f"m{ids.index(reads) + 1}" if reads in ids else reads
    body = f"The lease ends. {item.answer or ''}"
    to = [item.inbox_address]
    mail = {"message_id": handle, **head, "to": to, "subject": "Lease", "body": body}
    exchanges = [
        (builders.message(builders.search("warehouse", "lease")), {"hits": hits}),
        (builders.message(builders.read(handle), text="The first hit looks right."), mail),
    ]
    if ends:
        final = builders.answer(answer, *([handle] if answer else []))
        exchanges.append((builders.message(final), {"done": True}))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"You answer questions about {item.inbox_address}."},
        {"role": "user", "content": item.question},
    ]
    for message, observation in exchanges:
        call = message.tool_calls[0].id
        content = json.dumps(observation)
        messages += [message.to_chat(), {"role": "tool", "tool_call_id": call, "content": content}]
    return messages


def _verdict(correct: bool | None, judge: str) -> dict[str, Any]:
    reasons = {True: "agrees with the gold answer", False: "contradicts the gold answer"}
    reason = "unparseable: no verdict" if correct is None else reasons[correct]
    return {"correct": correct, "grounded": None, "judge": judge, "reason": reason}


def step(number: int, **figures: Any) -> Step:
    fields: dict[str, Any] = {
        "loss": 0.5, "reward": 0.3, "components": {"correctness": 0.4, "format": -0.1},
        "format_errors": 0.2, "entropy": 0.25, "groups": 8, "flat_groups": 2,
    }  # fmt: skip
    return Step(number, seconds=2.0 * number, tokens=1_000 * number, **{**fields, **figures})


def validation(number: int, accuracy: float | None = 0.5) -> Validation:
    others = [each.name for each in dataclasses.fields(Validation)][3:]
    return Validation(number, 200, 0.6, **{**dict.fromkeys(others, 0.25), "accuracy": accuracy})


def trained(
    folder: Path, steps: Sequence[Step], validations: Sequence[Validation] = (),
    alarms: Sequence[dict[str, Any]] = (), *, complete: bool = True, **config: Any,
) -> Run:  # fmt: skip
    run = write_run(folder, training([0, 10], n=10), complete=complete, **config)
    for row in steps:
        append_line(folder / STEPS, json.dumps(asdict(row)))
    rows = [asdict(each) for each in validations]
    run.write_json("metrics.json", {"validation": rows, "alarms": list(alarms)})
    return run
