"""A scripted policy put to a small inbox: every figure is known beforehand."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import ChatMessage
from art_e.models.base import PolicyStep
from art_e.question import Question
from art_e.runs import Run, start_run
from art_e.trajectory import read_trajectories
from evals.benchmark import Entrant, check_questions, run_benchmark
from evals.judges.offline import OfflineJudge
from evals.scored import Scored, load_run
from tests import builders as episodes
from tests.evals.rehearsed import QUESTIONS, Rehearsed, ask


@pytest.fixture(scope="module")
def inbox_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    with episodes.write_inbox(tmp_path_factory.mktemp("benchmark") / "inbox.duckdb") as file:
        yield file


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return start_run("eval", {}, tmp_path)


def test_figures_are_those_of_what_happened(inbox_file: InboxFile, run: Run) -> None:
    scored: list[Scored] = []
    policy = Rehearsed("rehearsed", 0.01)
    metrics = ask(inbox_file, run, QUESTIONS, policy, on_scored=scored.append)
    figures = metrics["models"]["rehearsed"]

    def share(name: str, of: dict[str, Any] = figures) -> tuple[int, int]:
        return round((of[name]["value"] or 0) * of[name]["n"]), of[name]["n"]

    assert metrics["judges"] == [OfflineJudge().name]
    assert figures["n"] == 8
    assert share("accuracy") == (1, 5)
    assert share("unanswerable_accuracy") == (1, 3)
    assert share("hallucination") == (2, 8)
    assert share("abstention") == (2, 8)
    assert share("found_gold") == (3, 5)
    assert share("read_gold") == (1, 5)
    assert share("sources_correct") == (2, 5)
    assert figures["turns"]["value"] == (3 + 2 + 1 + 1 + 3 + 1 + 1 + 4) / 8
    assert figures["effort"]["value"] == (3 + 2 + 1 + 1 + 3 + 1 + 2 + 4) / 8
    assert figures["turns_when_correct"]["value"] == 3
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(1000 * 0.16 / 8)
    assert figures["errors"] == 1
    by_kind = figures["by_kind"]
    assert list(by_kind) == ["lookup", "multi-mail", "count", "unanswerable"]
    assert share("accuracy", by_kind["lookup"]) == (1, 3)
    assert share("accuracy", by_kind["multi-mail"]) == (0, 1)
    assert share("abstention", by_kind["count"]) == (1, 1)
    assert share("hallucination", by_kind["unanswerable"]) == (1, 3)
    assert [each.question for each in scored] == QUESTIONS
    assert [each.correct for each in scored].count(True) == 2


def test_the_run_holds_all_of_it(inbox_file: InboxFile, run: Run) -> None:
    metrics = ask(inbox_file, run, QUESTIONS, Rehearsed("rehearsed", 0.01))
    assert json.loads((run.folder / "metrics.json").read_text("utf-8")) == metrics
    assert run.complete
    trajectories = {each.question_id: each for each in read_trajectories(run.trajectories)}
    assert list(trajectories) == [each.id for each in QUESTIONS]
    assert all(each.run_id == run.id for each in trajectories.values())
    verdicts = {name: each.verdict for name, each in trajectories.items()}
    judged = {name: verdict["correct"] for name, verdict in verdicts.items() if verdict}
    # Neither answered nor abstained: there is nothing to judge.
    assert judged == {
        "right": True,
        "wrong": False,
        "abstained": False,
        "right to abstain": True,
        "made up": False,
    }
    assert trajectories["failed"].error == {"kind": "provider", "message": "503"}
    assert trajectories["right"].as_of == "2020-01-31"
    assert trajectories["right"].policy["prompt"] == "default"


def test_a_trajectory_is_on_disk_before_the_next_question(inbox_file: InboxFile, run: Run) -> None:
    on_disk: list[int] = []
    ask(
        inbox_file,
        run,
        QUESTIONS,
        Rehearsed("rehearsed", None),
        on_scored=lambda _: on_disk.append(len(list(read_trajectories(run.trajectories)))),
    )
    assert on_disk == list(range(1, 9))


def test_models_are_measured_apart(inbox_file: InboxFile, run: Run) -> None:
    metrics = ask(
        inbox_file, run, QUESTIONS[:3], Rehearsed("priced", 0.5), Rehearsed("unpriced", None)
    )
    assert list(metrics["models"]) == ["priced", "unpriced"]
    assert metrics["models"]["priced"]["cost_per_1000_usd"]["value"] == pytest.approx(1000)
    assert metrics["models"]["unpriced"]["cost_per_1000_usd"]["value"] is None
    models = [each.model for each in read_trajectories(run.trajectories)]
    assert models == ["priced"] * 3 + ["unpriced"] * 3


class Waiting(Rehearsed):
    """Answers only when `at_once` episodes have asked it at the same time, or all the rest."""

    def __init__(self, at_once: int) -> None:
        super().__init__("waiting", 0.01)
        self.most = 0
        self._at_once = at_once
        self._asking = 0

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        self._asking += 1
        self.most = max(self.most, self._asking)
        for _ in range(1000):
            if self._asking >= self._at_once:
                break
            await asyncio.sleep(0)
        try:
            return await super().act(messages, tools)
        finally:
            await asyncio.sleep(0)
            self._asking -= 1


def test_so_many_questions_at_a_time_and_the_same_figures(
    inbox_file: InboxFile, run: Run, tmp_path: Path
) -> None:
    policy = Waiting(3)
    on_disk: list[tuple[str, int]] = []

    def scored(each: Scored) -> None:
        written = [one.question_id for one in read_trajectories(run.trajectories)]
        on_disk.append((written[-1], len(written)))
        assert written[-1] == each.question.id

    metrics = ask(inbox_file, run, QUESTIONS, policy, concurrency=3, on_scored=scored)
    assert policy.most == 3
    assert metrics["models"]["waiting"]["concurrency"] == 3
    # Each line once, and on disk before its worker goes on.
    assert [count for _, count in on_disk] == list(range(1, 9))
    assert sorted(name for name, _ in on_disk) == sorted(each.id for each in QUESTIONS)
    alone = ask(
        inbox_file, start_run("eval", {}, tmp_path / "alone"), QUESTIONS, Rehearsed("waiting", 0.01)
    )
    first, second = (each["models"]["waiting"] for each in (metrics, alone))
    for name in ("latency_p50_s", "latency_p95_s", "latency_parts_s", "concurrency"):
        assert first.pop(name) and second.pop(name)
    assert first == second


class Meeting(Rehearsed):
    """Notes which models are being asked at the time when it is."""

    asking: list[str] = []  # noqa: RUF012 - shared on purpose
    together: set[frozenset[str]] = set()  # noqa: RUF012

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        Meeting.asking.append(self.model)
        for _ in range(5):
            await asyncio.sleep(0)
        Meeting.together.add(frozenset(Meeting.asking))
        Meeting.asking.remove(self.model)
        return await super().act(messages, tools)


def test_models_elsewhere_work_side_by_side_those_here_alone(
    inbox_file: InboxFile, run: Run
) -> None:
    Meeting.together.clear()
    entrants = [
        Entrant(Meeting("here", 0.01)),
        Entrant(Meeting("far", 0.01), 2, alone=False),
        Entrant(Meeting("also here", 0.01)),
        Entrant(Meeting("far too", 0.01), 1, alone=False),
    ]
    metrics = run_benchmark(QUESTIONS, entrants, inbox_file, [OfflineJudge()], run, max_turns=4)
    assert frozenset({"far", "far too"}) in Meeting.together
    assert all({"far", "far too"} >= each for each in Meeting.together if len(each) > 1)
    models = [each.model for each in read_trajectories(run.trajectories)]
    assert models[-16:] == ["here"] * 8 + ["also here"] * 8
    # However they worked, they are reported in the order in which they were named.
    assert [(name, each["concurrency"]) for name, each in metrics["models"].items()] == [
        ("here", 1),
        ("far", 2),
        ("also here", 1),
        ("far too", 1),
    ]


def test_a_run_can_be_read_without_its_questions(inbox_file: InboxFile, run: Run) -> None:
    ask(inbox_file, run, QUESTIONS, Rehearsed("rehearsed", 0.01))
    assert [each.question for each in load_run(run)] == QUESTIONS


def test_what_is_on_disk_is_not_asked_again(inbox_file: InboxFile, tmp_path: Path) -> None:
    whole = start_run("eval", {}, tmp_path, tmp_path / "whole")
    expected = ask(inbox_file, whole, QUESTIONS, Rehearsed("rehearsed", 0.01), timed=False)
    lines = whole.trajectories.read_bytes().splitlines(keepends=True)
    killed = start_run("eval", {}, tmp_path, tmp_path / "killed")
    # Three episodes, and half of the line of a fourth.
    killed.trajectories.write_bytes(b"".join(lines[:3]) + lines[3][:50])
    asked: list[str] = []

    class Watched(Rehearsed):
        async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
            asked.append(messages[1]["content"])
            return await super().act(messages, tools)

    seen: list[Scored] = []
    metrics = ask(
        inbox_file,
        killed,
        QUESTIONS,
        Watched("rehearsed", 0.01),
        timed=False,
        on_scored=seen.append,
    )
    assert metrics == expected
    assert set(asked) == {each.question for each in QUESTIONS[3:]}
    assert [each.question for each in seen] == QUESTIONS
    assert [each.question_id for each in read_trajectories(killed.trajectories)] == [
        each.id for each in QUESTIONS
    ]


def test_a_fault_of_ours_ends_all_workers(inbox_file: InboxFile, run: Run) -> None:
    class Faulty(Waiting):
        async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
            if messages[1]["content"] == QUESTIONS[2].question:
                raise ZeroDivisionError
            return await super().act(messages, tools)

    with pytest.raises(ZeroDivisionError):
        ask(inbox_file, run, QUESTIONS, Faulty(2), concurrency=2)
    assert not run.complete


def test_a_cache_leaves_latency_unmeasured(inbox_file: InboxFile, run: Run) -> None:
    metrics = ask(inbox_file, run, QUESTIONS[:2], Rehearsed("rehearsed", 0.01), timed=False)
    assert metrics["models"]["rehearsed"]["latency_p50_s"]["value"] is None


@pytest.mark.parametrize(
    "bad",
    [
        Question("own", "Why?", episodes.BOB),
        Question("own", "Why?", episodes.BOB, answerable=True),
    ],
)
def test_a_question_without_an_answer_is_refused(inbox_file: InboxFile, bad: Question) -> None:
    with pytest.raises(UserError, match="1 questions have no answer, such as 'own'"):
        check_questions([*QUESTIONS, bad], inbox_file)


def test_two_questions_of_one_id_are_refused(inbox_file: InboxFile) -> None:
    with pytest.raises(UserError, match="2 questions have the id 'right'"):
        check_questions([*QUESTIONS, QUESTIONS[0]], inbox_file)


def test_an_inbox_that_is_not_there_is_refused(inbox_file: InboxFile) -> None:
    bad = Question("q", "Why?", "bop@test.example", answer="So.", answerable=True)
    with pytest.raises(UserError, match=episodes.BOB):
        check_questions([*QUESTIONS, bad], inbox_file)


def test_questions_that_can_be_asked_pass(inbox_file: InboxFile) -> None:
    check_questions(QUESTIONS, inbox_file)
