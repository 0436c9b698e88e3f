"""A benchmark of a scripted policy on a small inbox: every figure is known in advance."""

import asyncio
import datetime as dt
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.models.base import PolicyError, PolicyStep, Usage
from art_e.question import KINDS, Kind, Question
from art_e.runs import Run, read_trajectories, start_run
from evals.benchmark import Entrant, run_benchmark, sample_questions
from evals.judges.offline import OfflineJudge
from evals.scored import Scored, check_questions, load_run
from tests.builders import BOB, CREW, LEASE, PRICE, answer, message, read, search, the_error


def question(name: str, text: str, gold: str | None, *ids: str, kind: Kind) -> Question:
    day, answerable = dt.date(2020, 1, 31), gold is not None
    return Question(name, text, BOB, day, gold, ids, kind=kind, answerable=answerable)


# Each question with the policy's messages.
CASES: list[tuple[Question, list[AssistantMessage | Exception]]] = [
    (question("right", "When does the lease end?", "May 3", LEASE, kind="lookup"),
     [message(search("lease")), message(read("m1")), message(answer("On May 3.", "m1"))]),
    (question("wrong", "What does the crane cost?", "$4,000", PRICE, kind="lookup"),
     [message(search("crane")), message(answer("$9,000", PRICE))]),
    (question("abstained", "How many are in the crew?", "2", CREW, kind="count"),
     [message(answer("I don't know."))]),
    (question("failed", "When does the lease stop?", "May 3", LEASE, kind="lookup"),
     [message(search("lease")), PolicyError("provider", "503")]),
    (question("lost", "Who is the crew?", "Dora and Emil", CREW, PRICE, kind="multi-mail"),
     [AssistantMessage("Hm.")] * 3),
    (question("right to abstain", "Where is the zeppelin?", None, kind="unanswerable"),
     [message(answer(None))]),
    (question("made up", "Who flies the zeppelin?", None, kind="unanswerable"),
     [message(search("zeppelin"), answer("Dora", "m1"))]),
    (question("out of turns", "What does the zeppelin cost?", None, kind="unanswerable"),
     [message(search("zeppelin"))] * 4),
]  # fmt: skip
QUESTIONS = [each for each, _ in CASES]


class Rehearsed:
    """Plays the messages of `CASES`, at a cent per turn."""

    settings: dict[str, Any] = {}  # noqa: RUF012 - the protocol's property

    def __init__(self, model: str) -> None:
        self.model = model
        self.script = {each.question: list(script) for each, script in CASES}

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        turn = sum(each["role"] == "assistant" for each in messages)
        step = self.script[messages[1]["content"]][turn]
        if isinstance(step, Exception):
            raise step
        return PolicyStep(step, Usage(10, 0, 1), 0.01, seconds=0.1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return start_run("eval", {}, tmp_path)


def test_run_measures_its_episodes_and_asks_failures_again(inbox_file: InboxFile, run: Run) -> None:
    on_disk: list[int] = []

    def on_scored(_: Scored) -> None:
        on_disk.append(len(list(read_trajectories(run.trajectories))))

    entrants, judges = [Entrant(policy := Rehearsed("rehearsed"))], [OfflineJudge()]
    options: Any = {"max_turns": 4, "on_scored": on_scored}
    metrics = run_benchmark(QUESTIONS, entrants, inbox_file, judges, run, **options)
    # A trajectory is on disk before the next question; a failed one is left out of figures.
    assert on_disk == [1, 2, 3, 5, 6, 7, 8]
    figures = metrics["models"]["rehearsed"]

    def share(name: str) -> tuple[int, int]:
        return round(figures[name]["value"] * figures[name]["n"]), figures[name]["n"]

    shares = {
        "accuracy": (1, 4), "unanswerable_accuracy": (1, 3), "hallucination": (2, 7),
        "abstention": (2, 7), "found_gold": (2, 4), "read_gold": (1, 4), "sources_correct": (2, 4),
    }  # fmt: skip
    assert {name: share(name) for name in shares} == shares
    assert (figures["n"], figures["errors_by_kind"]) == (7, {"provider": 1})
    assert figures["turns"]["value"] == (3 + 2 + 1 + 2 + 1 + 1 + 4) / 7
    assert figures["effort"]["value"] == (3 + 2 + 1 + 2 + 1 + 2 + 4) / 7
    assert figures["turns_when_correct"]["value"] == 3
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(1000 * 0.14 / 7)
    assert json.loads((run.folder / "metrics.json").read_text("utf-8")) == metrics
    assert [each.question for each in load_run(run)] == QUESTIONS
    trajectories = {each.question_id: each for each in read_trajectories(run.trajectories)}
    # Episodes that neither answered nor abstained are not judged.
    verdicts = {name: each.verdict for name, each in trajectories.items() if each.verdict}
    assert verdicts.keys() == {"right", "wrong", "abstained", "right to abstain", "made up"}
    right = [name for name, verdict in verdicts.items() if verdict["correct"]]
    assert right == ["right", "right to abstain"]
    # The judge gets the mails that were read: one, in one episode.
    assert [name for name, each in verdicts.items() if each["grounded"]] == ["right"]
    assert trajectories["failed"].error == {"kind": "provider", "message": "503"}
    right_one = trajectories["right"]
    facts = right_one.run_id, right_one.as_of, right_one.policy["prompt"]
    assert facts == (run.id, "2020-01-31", "default")
    # Only the failed question is asked again; its first turn is stored.
    assert not run.complete
    policy.script["When does the lease stop?"][1] = message(answer("On May 3.", "m1"))
    metrics = run_benchmark(QUESTIONS, entrants, inbox_file, judges, run, max_turns=4)
    figures = metrics["models"]["rehearsed"]
    assert (figures["n"], figures["errors_by_kind"], len(load_run(run))) == (8, {}, 8)
    assert run.complete and len(list(read_trajectories(run.trajectories))) == 9


def test_model_that_always_fails_gets_no_more_questions(inbox_file: InboxFile, run: Run) -> None:
    down = Rehearsed("down")
    down.script = {name: [PolicyError("rate-limit", "No.")] for name in down.script}
    judges, entrants = [OfflineJudge()], [Entrant(down)]
    metrics = run_benchmark(QUESTIONS, entrants, inbox_file, judges, run, max_turns=4, repeats=2)
    figures = metrics["models"]["down"]
    assert (figures["n"], figures["measured"], figures["not_asked"]) == (0, False, 6)
    assert figures["reservations"] == ["not measured: 10 (rate-limit 10): No."]


def test_only_hosted_models_run_in_parallel(inbox_file: InboxFile, run: Run) -> None:
    asking: list[str] = []
    together: set[frozenset[str]] = set()

    class Meeting(Rehearsed):
        async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
            asking.append(self.model)
            for _ in range(5):
                await asyncio.sleep(0)
            together.add(frozenset(asking))
            asking.remove(self.model)
            return await super().act(messages, tools)

    models = {"here": (1, True), "far": (2, False), "also here": (1, True), "far too": (1, False)}
    entrants = [Entrant(Meeting(name), n, alone=alone) for name, (n, alone) in models.items()]
    metrics = run_benchmark(QUESTIONS, entrants, inbox_file, [OfflineJudge()], run, max_turns=4)
    assert frozenset({"far", "far too"}) in together
    assert all({"far", "far too"} >= each for each in together if len(each) > 1)
    order = [each.model for each in read_trajectories(run.trajectories)]
    assert order[-16:] == ["here"] * 8 + ["also here"] * 8
    # The report has them in the order of the options.
    assert list(metrics["models"]) == list(models)
    assert metrics["models"]["far"]["concurrency"] == 2


def test_invalid_questions_are_refused(inbox_file: InboxFile) -> None:
    check_questions(QUESTIONS, inbox_file)
    for bad, reason in (
        (Question("own", "Why?", BOB), "1 questions have no answer, such as 'own'"),
        (Question("own", "Why?", BOB, answerable=True), "no answer"),
        (QUESTIONS[0], "2 questions have the id 'right'"),
        (Question("q", "Why?", "bop@test.example", answer="So.", answerable=True), BOB),
    ):
        assert reason in the_error(check_questions, [*QUESTIONS, bad], inbox_file)


ROWS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*KINDS, None])), min_size=1)


@given(ROWS, st.integers(1, 70), st.randoms(use_true_random=False))
def test_samples_are_nested(rows: list[tuple[int, Any]], count: int, rng: Random) -> None:
    questions = [
        Question(f"q{number}", "Who?", f"p{inbox}@x.example", kind=kind)
        for number, (inbox, kind) in enumerate(rows)
    ]

    def sample_ids(population: list[Question], n: int) -> set[str]:
        return {each.id for each in sample_questions(population, n)}

    sample = sample_questions(questions, count)
    assert len(sample) == min(count, len(questions))
    assert sample == [each for each in questions if each in sample]
    # The order of the file does not matter, and a larger sample contains the smaller one.
    assert sample_ids(rng.sample(questions, len(questions)), count) == {e.id for e in sample}
    assert {each.id for each in sample} <= sample_ids(questions, count + 3)
    share = min(1.0, count / len(questions))
    sizes = Counter(each.inbox_address for each in sample)
    for inbox, size in Counter(each.inbox_address for each in questions).items():
        # A systematic sample misses a stratum's share by the rounding of it and others, at most.
        assert abs(sizes[inbox] - share * size) < 3
