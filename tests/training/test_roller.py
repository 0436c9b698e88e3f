"""A step's groups are asked, scored, replaced and handed to TRL as they were."""

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
from evals.judges.offline import F1Judge
from tests.builders import message
from tests.builders import search_episodes as search
from tests.training import tiny
from tests.training.conftest import written
from tests.training.scripted import FLAT, IDK, JUDGES, SOMETHING, SPREAD, Deaf, Script
from training import grpo
from training.judging import Judges
from training.roller import Curriculum, Roller, figures, is_flat
from training.rollout import Material
from training.run import Setting
from training.start import Start

Rolled = tuple[dict[str, Any], Roller, list[Trajectory]]
Roll = Callable[..., Rolled]
DEAF = Judges(Deaf(), F1Judge())


@pytest.fixture
def roll(start: Start, material: Material, tmp_path: Path) -> Roll:
    """Rolls out one step: the questions' numbers, and what the model says each time."""

    def rolled(
        numbers: Sequence[int],
        rounds: Sequence[Sequence[AssistantMessage]],
        *changes: str,
        judges: Judges = JUDGES,
    ) -> Rolled:
        recipe = tiny.recipe(*changes)
        table = recipe.grpo
        assert table is not None
        engine: Any = Script(start, rounds)
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        with tiny.begun(Setting("grpo", recipe, 0), out) as training:
            roller = Roller(training, table, start.tokens, material, judges)
            ids = [material.questions[each].id for each in numbers for _ in range(table.rollouts)]
            handed = roller([{"question_id": each} for each in ids], 5, engine)
        return handed, roller, list(read_trajectories(out / "trajectories.jsonl"))

    return rolled


def places(material: Material, answerable: bool) -> list[int]:
    questions = enumerate(material.questions)
    return [place for place, each in questions if each.answerable is answerable]


def test_trl_gets_the_rewards_that_trajectories_have(roll: Roll, material: Material) -> None:
    numbers = [places(material, True)[0], places(material, False)[0]]
    handed, roller, stored = roll(numbers, [[*SPREAD, *SPREAD]])
    totals = [each.reward["total"] for each in stored if each.reward is not None]
    assert handed["earned"] == grpo._earned(**handed) == totals
    # An answer without a mail read counts as wrong; abstention is right where nothing answers.
    first, second = totals[:4], totals[4:]
    assert first[0] == first[3] < first[1] == first[2]
    assert max(first) < second[1]
    ids = [material.questions[each].id for each in numbers for _ in range(4)]
    assert [each.question_id for each in stored] == ids
    assert [each.policy["group"] for each in stored] == [f"5/{each}" for each in ids]
    assert {each.policy["step"] for each in stored} == {5}
    found = roller.figures
    assert found["reward"] == pytest.approx(sum(totals) / 8)
    assert sum(found["components"].values()) == pytest.approx(found["reward"])
    assert (found["groups"], found["flat_groups"], found["resampled"]) == (2, 0, 0)
    assert found["hallucination"] == found["abstention"] == 0.5


def test_a_group_without_spread_is_replaced_and_counted(roll: Roll, material: Material) -> None:
    handed, roller, stored = roll([0, 1], [[*SPREAD, *FLAT], SPREAD])
    assert (roller.figures["resampled"], roller.figures["flat_groups"]) == (1, 0)
    # The new group stands in the place of the old one, and nothing is left of that.
    first, other = stored[0].question_id, stored[4].question_id
    assert [each.question_id for each in stored] == [first] * 4 + [other] * 4
    assert first == material.questions[0].id
    assert other not in {each.id for each in material.questions[:2]}
    assert handed["prompt_ids"][4] != handed["prompt_ids"][0]
    assert len(handed["prompt_ids"]) == len(handed["earned"]) == 8
    # Tokens that were generated for nothing are counted all the same.
    assert roller.generated > sum(map(len, handed["completion_ids"]))
    # One that is flat again stays, or is replaced once more.
    for rounds, changes, counted in (
        ([[*FLAT, *FLAT], [*SPREAD, *FLAT]], (), (2, 1)),
        ([[*FLAT, *FLAT], [*FLAT, *FLAT], [*SPREAD, *SPREAD]], ("grpo.resample=2",), (4, 0)),
    ):
        _, roller, stored = roll([0, 1], rounds, *changes)
        assert (roller.figures["resampled"], roller.figures["flat_groups"]) == counted
        assert len(stored) == 8


def test_a_group_with_an_unjudged_member_is_left_out_whole(roll: Roll, material: Material) -> None:
    """Abstentions need no judge: left in, they alone would gain the advantage."""
    numbers = places(material, True)[:2]
    # The last of the second group makes its spread: it goes on until it is lost.
    lost = AssistantMessage("zebra")
    says = [IDK, SOMETHING, IDK, lost, IDK, IDK, IDK, lost]
    rounds = [says, *[[lost] * 2] * 2]
    handed, roller, stored = roll(numbers, rounds, "grpo.resample=0", judges=DEAF)
    assert [each.reward is None for each in stored] == [False, True, *[False] * 6]
    assert [each is None for each in handed["earned"]] == [True] * 4 + [False] * 4
    assert [any(each) for each in handed["env_mask"]] == [False] * 4 + [True] * 4
    assert roller.figures["unjudged"] == roller.figures["flat_groups"] == 1
    # One of eight is more than a tenth, one of ten is not.
    assert roller.outage == "1 of 8 episodes could not be judged (the judge could not be asked)"
    few = ("grpo.resample=0", "grpo.rollouts=10")
    _, roller, _ = roll(numbers[:1], [[SOMETHING, *[IDK] * 9]], *few, judges=DEAF)
    assert (roller.figures["unjudged"], roller.outage) == (1, None)


def test_the_mask_is_on_own_tokens_only(roll: Roll, start: Start) -> None:
    looks = message(search("budget"))
    handed, _, _ = roll([0, 1], [[looks] * 8, [*SPREAD, *SPREAD]])
    decode = start.tokenizer.decode
    for place, last in enumerate([*SPREAD, *SPREAD]):
        pairs = list(zip(handed["completion_ids"][place], handed["env_mask"][place], strict=True))
        own = decode([token for token, mask in pairs if mask])
        others = str(decode([token for token, mask in pairs if not mask]))
        end = decode([start.end_id])
        assert own == f"{written(looks)}{end}{written(last)}{end}"
        assert others.startswith("\n<|im_start|>user\n<tool_response>")
        assert others.endswith("<|im_start|>assistant\n")
    assert handed["logprobs"] is None


def test_figures_of_nothing_are_none() -> None:
    found = figures([])
    assert found["reward"] is found["accuracy"] is None
    assert found["components"] == {}


# ---- The curriculum.

QUESTIONS = [Question(f"q{number}", "Who?", "bob@test.example") for number in range(8)]
Rewards = list[float] | None
rewards = st.none() | st.lists(st.sampled_from([-2.0, -0.5, 0.0, 0.1, 2.0]), min_size=2, max_size=4)
notes = st.lists(st.tuples(st.sampled_from([each.id for each in QUESTIONS]), rewards), max_size=20)
besides = st.sets(st.sampled_from([each.id for each in QUESTIONS]))


def noted(rows: Sequence[tuple[str, Rewards]]) -> Curriculum:
    curriculum = Curriculum(QUESTIONS, 0)
    for question, earned in rows:
        curriculum.note(question, earned)
    return curriculum


def in_order(curriculum: Curriculum, taken: set[str]) -> list[str]:
    """All that it gives as replacements, one after the other."""
    found: list[str] = []
    while (chosen := curriculum.replacement(taken | set(found))) is not None:
        found.append(chosen.id)
    return found


def test_the_hardest_comes_first_and_then_those_never_asked() -> None:
    rows: list[tuple[str, Rewards]] = [
        ("q0", [2.0, 1.0]), ("q1", [-1.0, 0.0]), ("q2", [1.0, 1.0 + 5e-7]), ("q3", [0.5, 1.0]),
        ("q4", None),
    ]  # fmt: skip
    assert [is_flat(earned) for _, earned in rows] == [False, False, True, False, True]
    order = in_order(noted(rows), set())
    assert order[:3] == ["q1", "q3", "q0"]
    # q2 taught nothing, and is not asked again; q4 was not judged, and so counts as not asked.
    assert sorted(order[3:]) == ["q4", "q5", "q6", "q7"]
    orders = {tuple(in_order(Curriculum(QUESTIONS, seed), set())) for seed in range(6)}
    assert len(orders) > 1


@given(notes, notes, besides)
def test_replacements_are_new_to_the_batch_and_survive_a_kill(
    before: list[tuple[str, Rewards]], after: list[tuple[str, Rewards]], taken: set[str]
) -> None:
    curriculum = noted([*before, *after])
    order = in_order(curriculum, taken)
    last = {name: earned for name, earned in [*before, *after] if earned is not None}
    spread = [each for each in order if each in last]
    means = [sum(last[each]) / len(last[each]) for each in spread]
    assert means == sorted(means)
    assert order[: len(spread)] == spread
    # Nothing that could be asked is left out, and nothing comes twice.
    names = {each.id for each in QUESTIONS} - taken
    assert set(order) == {each for each in names if each not in last or not is_flat(last[each])}
    assert len(set(order)) == len(order)
    resumed = Curriculum(QUESTIONS, 0)
    resumed.restore(json.loads(json.dumps(noted(before).to_row())))
    for question, earned in after:
        resumed.note(question, earned)
    assert resumed.to_row() == curriculum.to_row()
    assert in_order(resumed, taken) == order
