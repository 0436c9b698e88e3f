"""From episodes to verdicts and rewards, TRL's columns, and the figures of validations."""

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from art_e.abstention import is_abstention
from art_e.inbox.mail import Email
from art_e.message import AssistantMessage
from art_e.question import Question
from art_e.runs import read_trajectories
from art_e.trajectory import Trajectory
from evals.judges import LlmJudge
from evals.judges.offline import F1Judge, OfflineJudge
from evals.metrics import model_metrics
from evals.scored import Scored, Verdict
from tests.builders import CREW, LEASE, QUESTION, QUICK, answer, message, read, search
from tests.evals.runs import changed
from tests.provider import Reply, Request, openai, refuses, says
from tests.training import scripted, tiny
from tests.training.conftest import Begin
from tests.training.scripted import DECLINE, FLAT, IDK, LOST, RIGHT, SOMETHING, SPREAD, WRONG
from training import grpo, validation
from training.cli import load_material
from training.judging import CHARS, Judges, RelativeJudge, prompt_input
from training.recipe import Setting
from training.roller import Roller, StepBatch
from training.rollout import Material
from training.run import EPISODES, with_second_judge
from training.start import Start, load_start


class Fixed(OfflineJudge):
    """Finds every answer wrong, or fails on it; records the peak of concurrent calls."""

    def __init__(self, name: str, correct: bool | None) -> None:
        self.name, self._correct = name, correct
        self.peak = self._now = 0

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        self._now += 1
        self.peak = max(self.peak, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        return await super().judge(question, answer, mails)

    def decide(self, question: Question, answer: str | None, mails: object = ()) -> Verdict:
        if is_abstention(answer):
            return super().decide(question, answer)
        return Verdict(self._correct, None, self.name, "the judge could not be asked")


DEAF, NO = Fixed("deaf/1", None), Fixed("no/1", False)


# ---- The groups of a step, as TRL gets them.

Rolled = tuple[dict[str, Any], StepBatch, list[Trajectory]]
Roll = Callable[..., Rolled]


@pytest.fixture
def roll(start: Start, material: Material, tmp_path: Path) -> Roll:
    """Return a function that rolls out a step: the questions' numbers, the model's replies."""

    def rolled(
        numbers: Sequence[int], rounds: Sequence[Sequence[AssistantMessage]], *changes: str,
        judges: Judges = scripted.JUDGES,
    ) -> Rolled:  # fmt: skip
        recipe = tiny.recipe(*changes)
        table: Any = recipe.grpo
        engine: Any = scripted.Script(start.tokenizer, rounds)
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        with tiny.started(Setting("grpo", recipe, 0), out) as training:
            roller = Roller(training, table, start.tokens, material, judges)
            batch = roller.roll([material.questions[each] for each in numbers], 5, engine)
        handed = batch.for_trl(start.end_id)
        handed["rewards"] = grpo.total_reward(**handed, size=table.rollouts)
        return handed, batch, list(read_trajectories(out / "trajectories.jsonl"))

    return rolled


def places(material: Material, answerable: bool) -> list[int]:
    return [n for n, each in enumerate(material.questions) if each.answerable is answerable]


def test_trl_gets_the_stored_rewards(roll: Roll, material: Material) -> None:
    numbers = [places(material, True)[0], places(material, False)[0]]
    handed, batch, stored = roll(numbers, [[*SPREAD, *SPREAD]])
    totals = [each.reward["total"] for each in stored if each.reward is not None]
    assert handed["rewards"] == totals
    # An answer without a mail read is wrong; abstention is right on unanswerable questions.
    first, second = totals[:4], totals[4:]
    assert first[0] == first[3] < first[1] == first[2]
    assert max(first) < second[1]
    ids = [material.questions[each].id for each in numbers for _ in range(4)]
    assert [each.question_id for each in stored] == ids
    assert [each.policy["group"] for each in stored] == [f"5/{each}" for each in ids]
    assert {each.policy["step"] for each in stored} == {5}
    owns = [each.transcript.sampled for group in batch.rollouts for each in group]
    assert handed["env_mask"] == owns
    figures = batch.figures
    assert figures["reward"] == pytest.approx(sum(totals) / 8)
    assert sum(figures["components"].values()) == pytest.approx(figures["reward"])
    assert (figures["groups"], figures["flat_groups"]) == (2, 0)
    assert figures["hallucination"] == figures["abstention"] == 0.5


def test_group_with_an_unjudged_member_is_masked(
    roll: Roll, material: Material, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Abstentions need no judge: left in, they alone would gain the advantage."""
    monkeypatch.setattr("training.roller.WAITS", ())
    numbers = places(material, True)[:2]
    # The last of the second group makes its spread: it goes on until it is lost.
    lost = AssistantMessage("zebra")
    first = [IDK, SOMETHING, IDK, lost, IDK, IDK, IDK, lost]
    rounds = [first, *[[lost] * 2] * 2]
    handed, batch, stored = roll(numbers, rounds, judges=Judges(DEAF, F1Judge()))
    assert [each.reward is None for each in stored] == [False, True, *[False] * 6]
    assert [each is None for each in handed["rewards"]] == [True] * 4 + [False] * 4
    assert [any(each) for each in handed["env_mask"]] == [False] * 4 + [True] * 4
    assert batch.figures["unjudged"] == batch.figures["flat_groups"] == 1
    # One of eight is more than a tenth, one of ten is not.
    reason = "the judge could not be asked; no mail was read"
    assert str(batch.outage) == f"1 of 8 episodes could not be judged ({reason})"
    ten = [SOMETHING, *[IDK] * 9]
    _, batch, _ = roll(numbers[:1], [ten], "grpo.rollouts=10", judges=Judges(DEAF, F1Judge()))
    assert (batch.figures["unjudged"], batch.outage) == (1, None)


def test_an_outage_is_waited_out(
    roll: Roll, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Unjudged episodes are judged again, even after the judge was given up."""
    monkeypatch.setattr("training.roller.WAITS", (0.0,) * 5)
    requests = Counter[str]()

    def provider(request: Request) -> Reply:
        animal = "lion" if "lion" in str(request.messages) else "zebra"
        requests[animal] += 1
        if animal == "zebra" and requests[animal] <= 40:
            return refuses(503, "Service unavailable.")
        return says(json.dumps({"reason": "so", "verdict": "incorrect"}))

    animals = ["lion", *(f"zebra {number}" for number in range(11))]
    with openai(provider):
        judge = LlmJudge("openai/gpt-4.1", retries=QUICK, cache=tmp_path / "verdicts")
        _, batch, _ = roll(
            places(material, True)[:1], [[message(answer(each)) for each in animals]],
            "grpo.rollouts=12", judges=Judges(judge, F1Judge()),
        )  # fmt: skip
    assert "11 of 12 episodes could not be judged (failed: " in capsys.readouterr().err
    assert (batch.figures["unjudged"], batch.outage) == (0, None)
    # Nothing is paid twice.
    assert requests["lion"] == 1


def test_judge_concurrency(roll: Roll, material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all groups of a step, and all questions of a validation."""
    monkeypatch.setattr("training.roller.JUDGED_AT_ONCE", 3)
    judge = Fixed("no/1", False)
    roll(places(material, True)[:2], [[SOMETHING] * 8], judges=Judges(judge, F1Judge()))
    assert judge.peak == 3


def test_spare_groups_replace_those_without_spread(roll: Roll, material: Material) -> None:
    numbers = places(material, True)[:3]
    names = ("groups", "flat_groups", "replaced")
    handed, batch, stored = roll(numbers, [[*SPREAD, *FLAT, *SPREAD]], "grpo.spare=1")
    assert len(handed["rewards"]) == 8 and len(stored) == 12
    question_ids = [material.questions[number].id for number in numbers]
    # Flat groups are counted, but not trained on.
    rolled = [each.episode.question.id for group in batch.rollouts for each in group]
    assert rolled == [question_ids[0]] * 4 + [question_ids[2]] * 4
    assert [batch.figures[name] for name in names] == [3, 1, 1]
    assert batch.sampled == sum(each.rubric["completion_tokens"] for each in stored)
    assert batch.figures["abstention"] == 8 / 12
    # If too few groups have spread, flat ones stay; if all have it, spare ones are dropped.
    for rounds, figures in (([*FLAT] * 3, [3, 3, 0]), ([*SPREAD] * 3, [3, 0, 0])):
        handed, batch, _ = roll(numbers, [rounds], "grpo.spare=1")
        assert len(handed["rewards"]) == 8
        assert [batch.figures[name] for name in names] == figures


def ranking(scores: list[float] | None) -> Judges:
    relative = mock.Mock(rank=mock.AsyncMock(return_value=scores))
    return scripted.JUDGES._replace(relative=relative)


def test_comparison_gives_a_flat_group_spread(roll: Roll, material: Material) -> None:
    bands = ("reward.out=-0.4", "reward.wrong=-0.9", "reward.lost=-1.9")
    changes = ("judging.relative=openai/gpt-4.1", "reward.relative=0.2", *bands)
    numbers = places(material, True)[:2]
    rising = ranking([0.0, 0.25, 0.5, 0.75])
    handed, batch, stored = roll(numbers, [[*FLAT, *SPREAD]], *changes, judges=rising)
    flat, spread = handed["rewards"][:4], handed["rewards"][4:]
    assert [each - flat[0] for each in flat] == pytest.approx([0.0, 0.05, 0.1, 0.15])
    assert (batch.figures["flat_groups"], batch.figures["unranked"]) == (0, 0)
    relative = [each.reward and each.reward["components"]["relative"] for each in stored]
    assert relative == pytest.approx([0.0, 0.05, 0.1, 0.15] * 2)
    # No score lifts a wrong answer above an abstention.
    assert max(spread[0], spread[3]) < min(spread[1], spread[2])
    handed, batch, _ = roll(numbers, [[*FLAT, *SPREAD]], *changes, judges=ranking(None))
    assert len(set(handed["rewards"][:4])) == 1
    assert (batch.figures["flat_groups"], batch.figures["unranked"]) == (1, 2)


# ---- Rollouts compared with each other: the prompt, and the scores' effect on the reward.


def group(begin: Begin, *scripts: Sequence[AssistantMessage]) -> list[Scored]:
    return scripted.score(OfflineJudge(), scripted.rollouts(begin, *scripts))


def scores(*pairs: tuple[int, float]) -> Reply:
    rows = [{"attempt": place, "reason": "so", "score": value} for place, value in pairs]
    return says(json.dumps({"scores": rows}))


@pytest.mark.parametrize(
    ("reply", "expected"),
    [(scores((2, 0.1), (1, 0.9)), [0.9, 0.1]), (scores((1, 0.5)), None),
     (scores((1, 0.5), (2, 0.5), (3, 0.5)), None), (scores((1, 0.5), (2, 1.5)), None),
     (says("both are fine"), None), (refuses(401, "Incorrect API key provided."), None)],
    ids=["both", "one is missing", "one too many", "above 1", "no JSON", "refused"],
)  # fmt: skip
def test_scores(reply: Reply, expected: Any, begin: Begin) -> None:
    with openai([reply]):
        judge = RelativeJudge("openai/gpt-4.1", retries=QUICK)
        assert asyncio.run(judge.rank(group(begin, RIGHT, WRONG))) == expected


def test_shared_steps_are_shown_once(begin: Begin) -> None:
    looks = message(search("lease"))
    decline = [looks, message(read(CREW)), *DECLINE]
    prompt = prompt_input(group(begin, [looks, *RIGHT], [looks, *WRONG], decline))
    [first] = prompt["shared"]
    assert first["calls"][0]["tool"] == "search_emails"
    assert json.dumps(prompt).count('"search_emails"') == 1
    tools = [[each["calls"][0]["tool"] for each in one["steps"]] for one in prompt["attempts"]]
    assert tools == [["read_email", "return_final_answer"]] * 3
    assert [one["attempt"] for one in prompt["attempts"]] == [1, 2, 3]
    assert prompt["question"]
    # The gold answer is not needed, so that it is not sent.
    assert "gold" not in json.dumps(prompt)


def test_long_rollouts_are_cut_to_fit(begin: Begin) -> None:
    long = [AssistantMessage("word " * 9_000), *RIGHT]
    prompt = json.dumps(prompt_input(group(begin, *[long, [message(read(LEASE)), *long]] * 4)))
    assert CHARS / 4 < len(prompt) < 1.5 * CHARS


# ---- Validations: by the second judge, on the same questions always.

NONE = dataclasses.replace(QUESTION, id="none", answer=None, message_ids=(), answerable=False)


def unanswerable(scored: Scored) -> Scored:
    """Make the episode's question unanswerable."""
    asking = changed(scored, rubric={"answerable": False}, question=NONE.to_row())
    return Scored(NONE, asking.trajectory)


def test_figures_are_the_benchmarks_by_the_second_judge(begin: Begin) -> None:
    """The reward judge's verdicts do not count."""
    played = scripted.rollouts(begin, RIGHT, WRONG, DECLINE, DECLINE, LOST)
    scored = scripted.score(NO, played, OfflineJudge())
    row, estimates = validation.validation_of(scored, 0), validation.figures_of(scored)
    decided = [with_second_judge(each) for each in scored]
    figures: Any = model_metrics(decided, ["offline", "no"])
    for name in ("accuracy", "hallucination", "abstention", "turns", "effort"):
        assert getattr(row, name) == figures[name]["value"] == estimates[name]["value"]
        # One question five times has no interval over questions.
        assert set(estimates[name]) >= {"value", "low", "high"}
    assert row.format_errors == estimates["format_errors"]["value"] == 2 / 5  # of LOST alone
    assert (estimates["n"], estimates["effort_when_correct"]["value"]) == (5, 2.0)
    # What was paid is the reward's own judge's.
    paid = [each.trajectory.reward["total"] for each in scored if each.trajectory.reward]
    assert row.reward == pytest.approx(sum(paid) / 5)
    # There was no unanswerable question to invent an answer to.
    assert row.hallucination_unanswerable is None
    mixed = [scored[0], *map(unanswerable, scored[1:])]
    assert validation.validation_of(mixed, 0).hallucination_unanswerable == 0.25


def test_best_checkpoint_is_tested(warm: Path, home: Path, tmp_path: Path) -> None:
    metrics = json.loads((warm / "metrics.json").read_text("utf-8"))
    start = load_start(str(warm / metrics["best_checkpoint"]))
    recipe = tiny.recipe()
    with tiny.started(Setting("sft", recipe, 0), tmp_path / "again") as training:
        load = partial(load_material, recipe.data)
        evaluator = validation.Evaluator(training, scripted.JUDGES, start, load)
        again, episodes = validation.figures_on_test(evaluator, evaluator.by_transformers)
    assert json.loads(json.dumps(again)) == metrics["test"]
    stored = [each.messages for each in read_trajectories(warm / EPISODES)]
    assert [each.trajectory.messages for each in episodes] == stored
