"""A step's groups are asked, scored, and handed to TRL as tokens and rewards."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from art_e.message import AssistantMessage
from art_e.trajectory import Trajectory, read_trajectories
from evals.judges.offline import F1Judge
from tests.builders import message, search
from tests.training import tiny
from tests.training.conftest import written
from tests.training.scripted import IDK, JUDGES, SOMETHING, SPREAD, Deaf, Script
from training import grpo
from training.recipe import Setting
from training.roller import Roller, figures
from training.rollout import Material
from training.run import Judges
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
    assert (found["groups"], found["flat_groups"]) == (2, 0)
    assert found["hallucination"] == found["abstention"] == 0.5


def test_a_group_with_an_unjudged_member_is_left_out_whole(roll: Roll, material: Material) -> None:
    """Abstentions need no judge: left in, they alone would gain the advantage."""
    numbers = places(material, True)[:2]
    # The last of the second group makes its spread: it goes on until it is lost.
    lost = AssistantMessage("zebra")
    says = [IDK, SOMETHING, IDK, lost, IDK, IDK, IDK, lost]
    rounds = [says, *[[lost] * 2] * 2]
    handed, roller, stored = roll(numbers, rounds, judges=DEAF)
    assert [each.reward is None for each in stored] == [False, True, *[False] * 6]
    assert [each is None for each in handed["earned"]] == [True] * 4 + [False] * 4
    assert [any(each) for each in handed["env_mask"]] == [False] * 4 + [True] * 4
    assert roller.figures["unjudged"] == roller.figures["flat_groups"] == 1
    # One of eight is more than a tenth, one of ten is not.
    assert roller.outage == "1 of 8 episodes could not be judged (the judge could not be asked)"
    ten = [SOMETHING, *[IDK] * 9]
    _, roller, _ = roll(numbers[:1], [ten], "grpo.rollouts=10", judges=DEAF)
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
