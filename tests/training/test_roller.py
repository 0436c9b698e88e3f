"""A step's groups are asked, scored, replaced and handed to TRL as they were.

What the model says is scripted where it matters what it earns.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.message import AssistantMessage
from art_e.question import Question
from art_e.trajectory import Trajectory, read_trajectories
from evals.judges.f1 import F1Judge
from tests.builders import message
from tests.builders import search_episodes as search
from tests.training import tiny
from tests.training.conftest import written
from tests.training.scripted import FLAT, IDK, JUDGES, SOMETHING, SPREAD, Deaf, Script
from training import grpo
from training.judging import Judges
from training.roller import Curriculum, Roller, is_flat
from training.rollout import Material
from training.run import Setting
from training.start import Start

Rolled = tuple[dict[str, Any], Roller, list[Trajectory]]
Roll = Callable[..., Rolled]


@pytest.fixture
def roll(start: Start, material: Material, tmp_path: Path) -> Roll:
    """Rolls out one step: the questions' numbers, and what the model says each time."""

    def rolled(
        asked: Sequence[int],
        rounds: Sequence[Sequence[AssistantMessage]],
        judges: Judges = JUDGES,
        *changes: str,
    ) -> Rolled:
        recipe = tiny.recipe(*changes)
        table = recipe.grpo
        assert table is not None
        engine: Any = Script(start, rounds)
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        with tiny.begun(Setting("grpo", recipe, 0), out) as training:
            roller = Roller(training, table, start.tokens, material, judges)
            rows = [
                {"question_id": material.questions[each].id}
                for each in asked
                for _ in range(table.rollouts)
            ]
            given = roller(rows, 5, engine)
        return given, roller, list(read_trajectories(out / "trajectories.jsonl"))

    return rolled


def unanswerable(material: Material) -> list[int]:
    return [place for place, each in enumerate(material.questions) if not each.answerable]


def answerable(material: Material) -> list[int]:
    return [place for place, each in enumerate(material.questions) if each.answerable]


def test_trl_gets_the_rewards_that_trajectories_say(roll: Roll, material: Material) -> None:
    asked = [answerable(material)[0], unanswerable(material)[0]]
    given, roller, stored = roll(asked, [[*SPREAD, *SPREAD]])
    totals = [each.reward["total"] for each in stored if each.reward is not None]
    assert given["earned"] == totals
    # An answer without a mail read counts as wrong, and abstaining is right where nothing answers.
    first, second = totals[:4], totals[4:]
    assert first[0] == first[3] < first[1] == first[2]
    assert max(first) < second[1]
    assert grpo._earned(**given) == totals
    ids = [material.questions[each].id for each in asked]
    assert [each.question_id for each in stored] == [each for each in ids for _ in range(4)]
    assert [each.policy["group"] for each in stored] == [f"5/{each.question_id}" for each in stored]
    assert {each.policy["step"] for each in stored} == {5}
    assert roller.figures["reward"] == pytest.approx(sum(totals) / 8)
    assert roller.figures["groups"] == 2
    assert roller.figures["flat_groups"] == roller.figures["resampled"] == 0
    assert roller.figures["hallucination"] == 0.5
    assert roller.figures["abstention"] == 0.5
    components = roller.figures["components"]
    assert sum(components.values()) == pytest.approx(roller.figures["reward"])


def test_a_group_without_spread_is_replaced_and_counted(roll: Roll, material: Material) -> None:
    given, roller, stored = roll([0, 1], [[*SPREAD, *FLAT], SPREAD])
    assert roller.figures["resampled"] == 1
    assert roller.figures["flat_groups"] == 0
    # The new group stands in the place of the old one, and nothing is left of that.
    first, other = stored[0].question_id, stored[4].question_id
    assert [each.question_id for each in stored] == [first] * 4 + [other] * 4
    assert first == material.questions[0].id
    assert other not in {each.id for each in material.questions[:2]}
    assert len(given["prompt_ids"]) == len(given["earned"]) == 8
    said = [roller._tokens.text_of(each) for each in given["prompt_ids"]]
    assert said[4] != said[0]
    # Tokens that were generated for nothing are paid for all the same.
    assert roller.generated > sum(map(len, given["completion_ids"]))


def test_one_that_is_flat_again_stays_and_is_counted(roll: Roll) -> None:
    _, roller, stored = roll([0, 1], [[*FLAT, *FLAT], [*SPREAD, *FLAT]])
    assert roller.figures["resampled"] == 2
    assert roller.figures["flat_groups"] == 1
    assert len(stored) == 8
    _, roller, _ = roll(
        [0, 1], [[*FLAT, *FLAT], [*FLAT, *FLAT], [*SPREAD, *SPREAD]], JUDGES, "grpo.resample=2"
    )
    assert (roller.figures["resampled"], roller.figures["flat_groups"]) == (4, 0)


def test_a_group_with_an_unjudged_member_is_left_out_whole(roll: Roll, material: Material) -> None:
    """Abstentions need no judge: left in, they alone would gain the advantage."""
    asked = answerable(material)[:2]
    judges = Judges(Deaf(), F1Judge())
    # The last of the second group makes its spread: it goes on until it is lost.
    lost = AssistantMessage("zebra")
    says = [IDK, SOMETHING, IDK, lost, IDK, IDK, IDK, lost]
    given, roller, stored = roll(asked, [says, *[[lost] * 2] * 2], judges, "grpo.resample=0")
    assert [each.reward is None for each in stored] == [False, True, *[False] * 6]
    assert [each is None for each in given["earned"]] == [True] * 4 + [False] * 4
    assert [any(each) for each in given["env_mask"]] == [False] * 4 + [True] * 4
    assert roller.figures["unjudged"] == 1
    assert roller.figures["flat_groups"] == 1
    # One of eight is more than a tenth.
    assert roller.outage == "1 of 8 episodes could not be judged (the judge could not be asked)"


def test_few_unjudged_episodes_are_no_outage(roll: Roll, material: Material) -> None:
    judges = Judges(Deaf(), F1Judge())
    says = [SOMETHING, *[IDK] * 9]
    _, roller, _ = roll(
        answerable(material)[:1], [says], judges, "grpo.resample=0", "grpo.rollouts=10"
    )
    assert roller.figures["unjudged"] == 1
    assert roller.outage is None


def test_the_mask_is_on_own_tokens_alone(roll: Roll, start: Start) -> None:
    looks = message(search("budget"))
    given, _, _ = roll([0, 1], [[looks] * 8, [*SPREAD, *SPREAD]])
    for place, said in enumerate([*SPREAD, *SPREAD]):
        pairs = list(zip(given["completion_ids"][place], given["env_mask"][place], strict=True))
        own = start.tokenizer.decode([token for token, mask in pairs if mask])
        others = str(start.tokenizer.decode([token for token, mask in pairs if not mask]))
        end = start.tokenizer.decode([start.end_id])
        assert own == f"{written(looks)}{end}{written(said)}{end}"
        assert others.startswith("\n<|im_start|>user\n<tool_response>")
        assert others.endswith("<|im_start|>assistant\n")
    assert given["logprobs"] is None


QUESTIONS = [Question(f"q{number}", "Who?", "bob@test.example") for number in range(8)]
BY_ID = {each.id: each for each in QUESTIONS}

Rewards = Sequence[float | None]
rewards = st.lists(st.none() | st.sampled_from([-2.0, -0.5, 0.0, 0.1, 2.0]), min_size=2, max_size=4)
notes = st.lists(st.tuples(st.sampled_from(QUESTIONS), rewards), max_size=20)
besides = st.sets(st.sampled_from(sorted(BY_ID)))


def complete(earned: Rewards) -> list[float] | None:
    """What a group counts as: one with an unjudged member has no rewards."""
    rewards = [each for each in earned if each is not None]
    return rewards if len(rewards) == len(earned) else None


@pytest.mark.parametrize(
    ("earned", "flat"),
    [
        ([1.0, 1.0, 1.0], True),
        ([1.0, 1.0 + 5e-7], True),
        ([1.0, 1.0, 0.9], False),
        # A group with an unjudged member is left out, whatever the others earned.
        ([1.0, None, 1.0], True),
        ([1.0, None, 0.0], True),
        ([None, None], True),
    ],
)
def test_flat(earned: Rewards, flat: bool) -> None:
    assert is_flat(complete(earned)) is flat


def noted(asked: Sequence[tuple[Question, Rewards]], seed: int = 0) -> Curriculum:
    curriculum = Curriculum(QUESTIONS, seed)
    for question, earned in asked:
        curriculum.note(question.id, complete(earned))
    return curriculum


def in_order(curriculum: Curriculum, taken: set[str]) -> list[str]:
    """All that it gives as replacements, one after the other."""
    found: list[str] = []
    while (chosen := curriculum.replacement(taken | set(found))) is not None:
        found.append(chosen.id)
    return found


def test_the_hardest_comes_first_and_then_those_never_asked() -> None:
    curriculum = noted(
        [
            (BY_ID["q0"], [2.0, 1.0]),
            (BY_ID["q1"], [-1.0, 0.0]),
            (BY_ID["q2"], [1.0, 1.0]),
            (BY_ID["q3"], [0.5, 1.0]),
            (BY_ID["q4"], [None, 0.5, 1.0]),
        ]
    )
    order = in_order(curriculum, set())
    assert order[:3] == ["q1", "q3", "q0"]
    # q2 taught nothing, and is not asked again; q4 was not judged, and so counts as not asked.
    assert sorted(order[3:]) == ["q4", "q5", "q6", "q7"]


@given(notes, besides)
def test_replacements_are_new_to_the_batch_and_harder_ones_come_before(
    asked: list[tuple[Question, Rewards]], taken: set[str]
) -> None:
    order = in_order(noted(asked), taken)
    assert len(set(order)) == len(order)
    assert not taken.intersection(order)
    judged = [(question.id, complete(earned)) for question, earned in asked]
    last = {name: earned for name, earned in judged if earned is not None}
    spread = [each for each in order if each in last]
    means = []
    for each in spread:
        told = last[each]
        assert max(told) > min(told)
        means.append(sum(told) / len(told))
    assert means == sorted(means)
    assert order[: len(spread)] == spread
    # Nothing that could be asked is left out.
    assert set(order) == {
        each
        for each in BY_ID
        if each not in taken and (each not in last or not is_flat(last[each]))
    }


@given(notes, notes, besides)
def test_one_that_was_restored_chooses_the_same(
    before: list[tuple[Question, Rewards]],
    after: list[tuple[Question, Rewards]],
    taken: set[str],
) -> None:
    undisturbed = noted([*before, *after])
    resumed = Curriculum(QUESTIONS, 0)
    resumed.restore(json.loads(json.dumps(noted(before).to_row())))
    for question, earned in after:
        resumed.note(question.id, complete(earned))
    assert in_order(resumed, taken) == in_order(undisturbed, taken)
    assert resumed.to_row() == undisturbed.to_row()
