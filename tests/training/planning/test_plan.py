"""Plans of all recipes, held to the sums they are made of, and what makes one fit."""

import dataclasses

import pytest

from art_e.errors import UserError
from training.planning.cards import Card, card_of
from training.planning.plan import Plan, plan, with_another_search
from training.planning.remedies import remedies
from training.planning.row import row_of
from training.recipe import load_recipe, recipe_names

H100, RTX = "h100-80gb", "rtx4090-24gb"


def planned(name: str, *changes: str, gpu: str = H100, gpus: int = 1) -> Plan:
    return plan(load_recipe(name, changes), card_of(gpu), gpus=gpus)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_has_a_plan_whose_sums_are_right(name: str) -> None:
    made = planned(name, gpus=4 if name == "talk-multi" else 1)
    assert [stage.name for stage in made.stages] == [
        stage for stage in ("sft", "grpo") if getattr(made.recipe, stage) is not None
    ]
    for stage in made.stages:
        assert stage.steps == getattr(made.recipe, stage.name).steps
        assert stage.trained_on > 0
        for phase in stage.phases:
            assert phase.size + phase.left == made.card.memory
            assert all(line.size >= 0 for line in phase.lines)
    hours = sum(
        stage.steps * sum(stage.seconds.values()) + stage.examining_seconds for stage in made.stages
    )
    assert made.hours == pytest.approx(hours / 3600)
    assert made.gpu_usd == pytest.approx(made.hours * made.gpus.all * made.usd_per_hour)
    row = row_of(made)
    assert row["fits"] == (not made.faults)
    assert row["stages"][-1]["hours"] == made.stages[-1].hours


def test_a_step_of_the_talk() -> None:
    [stage] = planned("talk").stages
    episode = planned("talk").episode
    assert stage.episodes == 48
    assert stage.generated == pytest.approx(48 * episode.own)
    assert stage.trained_on == pytest.approx(48 * episode.length)
    # vLLM's tokens are scored anew, so that three passes become four.
    without = planned("talk", "grpo.vllm.mode=off", "grpo.generate_batch=1").stages[0]
    assert stage.seconds["training"] == pytest.approx(without.seconds["training"] * 4 / 3)
    assert without.seconds["weights to vLLM"] == 0
    assert without.read > stage.read
    # Before any step, every 30, and at the last.
    assert stage.examinations - 1 == 1 + 22 + 1


def test_more_cards_share_the_work() -> None:
    one, two = (planned("talk", gpus=count) for count in (1, 2))
    assert two.hours < 0.65 * one.hours
    assert two.gpus.train == 2
    assert two.stages[0].room.wanted == one.stages[0].room.wanted / 2


def test_cards_are_divided_where_the_run_ends_first() -> None:
    made = planned("talk-multi", gpus=4)
    assert (made.gpus.all, made.faults) == (4, [])
    # Sixteen questions are not for three processes.
    assert made.gpus.train in (1, 2)
    assert made.hours < planned("talk-multi", gpus=2).hours
    with pytest.raises(UserError, match="--gpus 2"):
        planned("talk-multi")
    with pytest.raises(UserError, match=r"grpo\.questions"):
        planned("talk", gpus=5)


def test_a_price_and_tokens_of_a_run_take_the_place_of_what_is_typical() -> None:
    recipe, card = load_recipe("talk"), card_of(H100)
    dear = plan(recipe, card, usd_per_hour=10)
    assert dear.gpu_usd == pytest.approx(10 * dear.hours)
    told = dataclasses.replace(dear.episode, length=2 * dear.episode.length)
    longer = plan(recipe, card, told=told)
    assert longer.stages[0].trained_on == pytest.approx(2 * dear.stages[0].trained_on)
    assert longer.hours > dear.hours
    assert dear.hours < with_another_search(dear).hours


def test_judges_that_cost_more_than_they_may_are_told() -> None:
    assert not planned("talk").warnings
    [warning] = planned("talk", "judging.max_cost_usd=1").warnings
    assert "judging.max_cost_usd=" in warning


DOES_NOT_FIT = (
    ("talk", ("grpo.vllm.memory=0.3",), H100),  # no room for one episode
    ("talk", ("grpo.vllm.memory=0.8",), H100),
    ("talk", ("grpo.vllm.sleep=false", "grpo.micro_batch=4"), H100),
    ("talk", ("model.checkpointing=false",), H100),
    ("talk", ("grpo.micro_batch=16",), H100),
    ("talk", (), "l40s-48gb"),
    ("talk", (), RTX),
    ("talk-24gb", ("grpo.generate_batch=24",), RTX),
    ("talk-24gb", ("model.checkpointing=false",), RTX),
    ("mini", ("grpo.micro_batch=128", "judging.questions=200"), RTX),
)


@pytest.mark.parametrize(("name", "changes", "gpu"), DOES_NOT_FIT)
def test_what_is_proposed_fits_by_the_plan_itself(
    name: str, changes: tuple[str, ...], gpu: str
) -> None:
    made = planned(name, *changes, gpu=gpu)
    assert made.faults

    def again(further: tuple[str, ...], other: Card | None) -> Plan:
        return plan(load_recipe(name, [*changes, *further]), other or card_of(gpu))

    found = remedies(made, again)
    assert found
    for each in found:
        fits = planned(name, *changes, *each.changes, gpu=each.card.name if each.card else gpu)
        assert not fits.faults, each.options
        assert fits.hours == pytest.approx(each.plan.hours)


def test_the_mildest_change_is_proposed() -> None:
    def again(further: tuple[str, ...], other: Card | None) -> Plan:
        changes = ("grpo.vllm.memory=0.3", *further)
        return plan(load_recipe("talk", changes), other or card_of(H100))

    found = remedies(again((), None), again)
    # At 0.35 the weights and what vLLM needs beside them leave nothing.
    assert found[0].options == "--set grpo.vllm.memory=0.4"
    assert again(("grpo.vllm.memory=0.35",), None).faults


def test_what_fits_needs_no_change() -> None:
    made = planned("talk")
    assert not made.faults
    assert remedies(made, lambda *_: pytest.fail("planned again")) == []


def test_an_unknown_card_is_refused_with_the_list() -> None:
    with pytest.raises(UserError, match="rtx4090-24gb"):
        card_of("h100")
