"""Made-up runs: a folder as `art-e eval run` leaves it, without a model or an inbox.

    write_run(tmp_path / "a", episodes("strong", rights=8, wrongs=2))
    write_run(tmp_path / "t", training([0, 20, 40]))

Every episode is a whole conversation whose rubric says what its messages show.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

from art_e.question import Difficulty, Kind, Question
from art_e.runs import Run, start_run
from art_e.trajectory import Trajectory
from tests import builders as said
from training.progress import Step, Validation, append_step

Outcome = Literal[
    "right",
    "wrong",  # the gold mail was read, and the answer is wrong
    "not read",  # it came up, another mail was read, and the answer is wrong
    "not found",
    "abstained",
    "out of turns",
    "lost",
    "failed",
    "unjudged",
]
OUTCOMES: tuple[Outcome, ...] = (
    "right", "wrong", "not read", "not found", "abstained", "out of turns", "lost", "failed",
    "unjudged",
)  # fmt: skip

ANSWERABLE: tuple[Kind, ...] = ("lookup", "latest-update", "multi-mail", "count")
DIFFICULTIES: tuple[Difficulty, ...] = ("easy", "medium", "hard")
INBOXES = 4
MAX_TURNS = 10


def question(number: int, *, kind: Kind | None = None, **fields: Any) -> Question:
    """The question of that number: every fifth can't be answered, where `kind` says nothing."""
    chosen = kind or ("unanswerable" if number % 5 == 4 else ANSWERABLE[number % 5])
    answerable = chosen != "unanswerable"
    made: dict[str, Any] = {
        "id": f"q{number}",
        "question": f"When does the lease of warehouse {number} end?",
        "inbox_address": f"owner{number % INBOXES}@test.example",
        "answer": f"On May {number % 28 + 1}." if answerable else None,
        "message_ids": (f"<gold-{number}@test.example>",) if answerable else (),
        "kind": chosen,
        "difficulty": DIFFICULTIES[number % 3],
        "answerable": answerable,
        "split": "test",
    }
    return Question(**{**made, **fields})


def episode(
    asked: Question,
    outcome: Outcome,
    *,
    model: str = "scripted",
    step: int | None = None,
    repeat: int = 0,
    second: bool | None = None,
    reward: dict[str, float] | None = None,
    cost: float | None = 0.002,
    seconds: float = 2.0,
    run_id: str = "r",
    **fields: Any,
) -> Trajectory:
    """An episode that ended like `outcome`; on a question without an answer, "abstained" is right.

    `second`: what a second judge says. `reward`: its components; their sum is the total.
    """
    gold = next(iter(asked.message_ids), "<none@test.example>")
    other = f"<other-{asked.id}@test.example>"
    shown = [each for each in (gold, other) if each == other or outcome != "not found"]
    reads = gold if outcome in ("right", "wrong", "unjudged", "abstained") else other
    if outcome == "right":
        answer: str | None = asked.answer or "I don't know"
    elif outcome == "abstained":
        answer = None
    else:
        answer = "On December 31."
    ends = outcome not in ("out of turns", "lost", "failed")
    messages = _conversation(asked, shown, reads, answer if ends else None, ends)
    turns = sum(each["role"] == "assistant" for each in messages)
    abstains = ends and (answer is None or (outcome == "right" and asked.answer is None))
    found = asked.answerable or None
    judged = outcome in ("right", "wrong", "not read", "not found", "abstained")
    correct = outcome == "right" or (outcome == "abstained" and not asked.answerable)
    sources = [reads] if ends and not abstains else []
    step_setting = {} if step is None else {"step": step}
    made: dict[str, Any] = {
        "run_id": run_id,
        "episode_id": f"{model}-{asked.id}-{repeat}" + ("" if step is None else f"-{step}"),
        "question_id": asked.id,
        "inbox_address": asked.inbox_address,
        "model": model,
        "policy": {"temperature": 0, "prompt_hash": "0123456789abcdef", **step_setting},
        "messages": messages,
        "handles": {f"m{number}": each for number, each in enumerate(shown, start=1)},
        "final_answer": answer if ends else None,
        "sources": sources,
        "rubric": {
            "max_turns": MAX_TURNS,
            "answerable": asked.answerable,
            "num_gold_sources": len(asked.message_ids) if asked.answerable else None,
            "answered": ends and not abstains,
            "abstained": abstains,
            "sources_correct": found and gold in sources,
            "num_sources": len(sources),
            "found_gold": found and gold in shown,
            "read_gold": found and (gold in shown and reads == gold),
            "turns": turns,
            "effort": turns + 1,
            "tool_calls": turns,
            "invalid_reads": 0,
            "unparseable_calls": 3 if outcome == "lost" else 0,
            "unknown_tool_calls": 0,
            "bad_argument_calls": 0,
            "lost_to_format": outcome == "lost",
            "ran_out_of_turns": outcome == "out of turns",
            "prompt_tokens": 1000,
            "completion_tokens": 100,
        },
        "usage": {
            "prompt_tokens": 1000,
            "cached_prompt_tokens": 0,
            "completion_tokens": 100,
            "reasoning_tokens": 0,
        },
        "cost_usd": cost,
        "seconds": {"total": seconds, "model": seconds * 0.9, "tools": seconds * 0.05},
        "call_seconds": [seconds * 0.9 / turns] * turns,
        "error": {"kind": "provider", "message": "503"} if outcome == "failed" else None,
        "repeat": repeat,
        "question": asked.to_row(),
    }
    if judged or outcome == "unjudged":
        made["verdict"] = _verdict(correct if judged else None, "offline/2")
    if second is not None and made.get("verdict"):
        made["other_verdicts"] = [_verdict(second, "second")]
    if reward is not None:
        made["reward"] = {"total": sum(reward.values()), "components": reward}
    return said.trajectory(**{**made, **fields})


def episodes(
    model: str,
    counts: dict[Outcome, int],
    *,
    questions: Iterable[Question] | None = None,
    **options: Any,
) -> list[Trajectory]:
    """So many episodes of each outcome, on the questions 0, 1, 2 ... (or on `questions`)."""
    asked = iter(questions) if questions is not None else map(question, count())
    outcomes = [outcome for outcome, number in counts.items() for _ in range(number)]
    return [
        episode(next(asked), outcome, model=model, **{"seconds": 1.0 + number % 7, **options})
        for number, outcome in enumerate(outcomes)
    ]


def training(steps: Sequence[int], *, model: str = "trained", n: int = 20) -> list[Trajectory]:
    """A training run's validations: more right answers, fewer abstentions from step to step."""
    made: list[Trajectory] = []
    for place, step in enumerate(steps):
        rights = n * (place + 1) // (len(steps) + 1)
        abstained = (n - rights) // 2
        outcomes: dict[Outcome, int] = {
            "right": rights,
            "abstained": abstained,
            "wrong": n - rights - abstained,
        }
        reward = {"correctness": 1.0 * rights / n, "effort": -0.1}
        made += episodes(model, outcomes, step=step, reward=reward)
    return made


def write_run(
    folder: Path, trajectories: Sequence[Trajectory], *, complete: bool = True, **config: Any
) -> Run:
    """The run's folder, which must be new or empty; `config` replaces what its command chose."""
    models = list(dict.fromkeys(each.model for each in trajectories))
    chosen = {
        "models": models,
        "questions": "world.questions.jsonl",
        "split": "test",
        "judges": ["offline/2"],
        "prompt": {"name": "default", "hash": "0123456789abcdef"},
        "concurrency": dict.fromkeys(models, 1),
        "max_turns": MAX_TURNS,
        **config,
    }
    run = start_run("eval", chosen, folder.parent, folder)
    with run.log() as log:
        for each in trajectories:
            log.append(each.to_line())
    if complete:
        run.finish()
    return run


def _conversation(
    asked: Question, shown: Sequence[str], reads: str, answer: str | None, ends: bool
) -> list[dict[str, Any]]:
    hits = [
        {
            "message_id": f"m{number}",
            "date": "2020-01-31",
            "from": "Ann Alder <ann@test.example>",
            "subject": f"Lease, part {number}",
            "snippet": "The lease of the warehouse",
        }
        for number in range(1, len(shown) + 1)
    ]
    handle = f"m{shown.index(reads) + 1}" if reads in shown else reads
    mail = {
        "message_id": handle,
        "date": "2020-01-31",
        "from": "Ann Alder <ann@test.example>",
        "to": [asked.inbox_address],
        "subject": "Lease",
        "body": f"The lease ends. {asked.answer or ''}",
    }
    exchanges = [
        (said.message(said.search_episodes("warehouse", "lease")), {"hits": hits}),
        (said.message(said.read_episodes(handle), text="The first hit looks right."), mail),
    ]
    if ends:
        final = said.answer(answer, *([handle] if answer else []))
        exchanges.append((said.message(final), {"done": True}))
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": f"You answer questions about {asked.inbox_address}."},
        {"role": "user", "content": asked.question},
    ]
    for message, observation in exchanges:
        messages.append(message.to_chat())
        messages.append(
            {
                "role": "tool",
                "tool_call_id": message.tool_calls[0].id,
                "content": json.dumps(observation),
            }
        )
    return messages


def _verdict(correct: bool | None, judge: str) -> dict[str, Any]:
    reason = {True: "agrees with the gold answer", False: "contradicts the gold answer"}
    return {
        "correct": correct,
        "grounded": None,
        "judge": judge,
        "reason": "unparseable: no verdict" if correct is None else reason[correct],
    }


def step(number: int, **figures: Any) -> Step:
    """A row of `steps.jsonl`."""
    made: dict[str, Any] = {
        "loss": 0.5,
        "reward": 0.3,
        "components": {"correctness": 0.4, "format": -0.1},
        "format_errors": 0.2,
        "entropy": 0.25,
        "groups": 8,
        "flat_groups": 2,
    }
    return Step(number, seconds=2.0 * number, tokens=1_000 * number, **{**made, **figures})


def validation(number: int, accuracy: float | None = 0.5) -> Validation:
    """A validation of 200 questions."""
    return Validation(
        step=number,
        n=200,
        correct=0.6,
        accuracy=accuracy,
        hallucination=0.3,
        hallucination_unanswerable=0.4,
        abstention=0.2,
        turns=3.0,
        effort=3.4,
        turns_when_correct=2.9,
        effort_when_correct=3.2,
        format_errors=0.1,
        reward=0.35,
    )


def trained(
    folder: Path,
    steps: Sequence[Step],
    validations: Sequence[Validation] = (),
    alarms: Sequence[dict[str, Any]] = (),
    *,
    complete: bool = True,
) -> Run:
    """A run's folder as training leaves it."""
    run = write_run(folder, training([0, 10], n=10), complete=complete)
    for each in steps:
        append_step(folder, each)
    rows = [each.to_row() for each in validations]
    run.write_json("metrics.json", {"validation": rows, "alarms": list(alarms)})
    return run
