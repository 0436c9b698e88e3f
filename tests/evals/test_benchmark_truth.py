"""Three models behind the wire, each a rule: every figure of `metrics.json` is known beforehand.

What each does with a question is in `PLAYS`, and `expected` adds it up in plain Python.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from art_e.cli.main import app
from art_e.inbox.file import InboxFile
from art_e.message import ToolCall
from art_e.models.base import Usage
from art_e.question import KINDS, Question
from art_e.runs import Run
from data_pipeline.synthetic.world import WorldConfig, questions
from evals.metrics import STEPS
from evals.scored import load_run
from tests.builders import answer
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search
from tests.provider import Provider, Reply, Request, rate_limited, refuses, says

ASKED = [each for each in questions(WorldConfig(size=1000)) if each.split != "train"]
MAX_TURNS = 5
WRONG = "The lighthouse of Alexandria, on a rainy morning."
# USD per million tokens by the makers' lists: prompt, cached prompt, completion.
PRICES = {
    "openai/o3": ("2", "0.5", "8"),
    "openai/gpt-4.1": ("2", "0.5", "8"),
    "openai/o4-mini": ("1.1", "0.275", "4.4"),
}
STRONG, WEAK, INVENTIVE = PRICES
# How each model's tokens grow from turn to turn: prompt, cached, completion, reasoning.
USAGES: dict[str, Callable[[int], Usage]] = {
    STRONG: lambda turn: Usage(1_203 + 800 * turn, 600 * turn, 211, 150),
    WEAK: lambda turn: Usage(900 + 700 * turn, 0, 53, 0),
    INVENTIVE: lambda _: Usage(1_001, 0, 87, 64),
}


# A message's calls; None: the provider refuses for good.
Turn = list[ToolCall] | None


class Play(NamedTuple):
    """What a model does with a question, and what must come of it.

    `step` is where the funnel has it.
    """

    turns: Sequence[Turn]
    step: str
    answered: bool = False
    abstained: bool = False
    read_gold: bool = False
    cited: bool = False


def strong(number: int, question: Question) -> Play:
    """Reads the gold mail and answers; errs on every tenth, and can't be asked every thirtieth."""
    ids = question.message_ids
    # At most four calls of a message are run.
    reads: list[Turn] = [[read(each) for each in ids[at : at + 4]] for at in range(0, len(ids), 4)]
    look: list[Turn] = [[search("the", "of")], *reads]
    if number % 30 == 29:
        return Play([*look, None], "failed", read_gold=bool(question.answerable))
    if not question.answerable:
        return Play([*look, [answer("I don't know.")]], "right", abstained=True)
    if number % 10 == 9:
        wrong = [*look, [answer(WRONG, *ids)]]
        return Play(wrong, "read_but_wrong", answered=True, read_gold=True, cited=True)
    said = answer(question.answer, *ids)
    return Play([*look, [said]], "right", answered=True, read_gold=True, cited=True)


def weak(number: int, question: Question) -> Play:
    """Abstains on half; loses its way in other ways on some; is right on the rest, unread."""
    if number % 12 == 5:
        return Play([[]] * 3, "lost_to_format")
    if number % 12 == 7:
        return Play([[search(f"nothing{number}")]] * MAX_TURNS, "out_of_turns")
    looked = [search(f"nothing{number}")]
    if number % 2 == 0 or not question.answerable:
        step = "not_found" if question.answerable else "right"
        return Play([looked, looked, [answer(None)]], step, abstained=True)
    return Play([looked, [answer(question.answer)]], "right", answered=True)


def inventive(number: int, question: Question) -> Play:
    """Answers everything at once, and hits every fourth that can be answered."""
    if number % 4 == 0 and question.answerable:
        return Play([[answer(question.answer)]], "right", answered=True)
    step = "not_found" if question.answerable else "made_up"
    return Play([[answer(WRONG)]], step, answered=True)


RULES = {STRONG: strong, WEAK: weak, INVENTIVE: inventive}
PLAYS = {
    model: {each.id: rule(number, each) for number, each in enumerate(ASKED)}
    for model, rule in RULES.items()
}
BY_TEXT = {each.question: each for each in ASKED}
RETRIED = ASKED[3]


class Act:
    """The provider's rule: plays each model's part, and is too busy once."""

    def __init__(self) -> None:
        self.busy = True

    def __call__(self, request: Request) -> Reply:
        model = f"openai/{request.body['model']}"
        question = BY_TEXT[request.messages[1]["content"]]
        if (model, question) == (STRONG, RETRIED) and self.busy:
            self.busy = False
            return rate_limited("0")
        turn = sum(each["role"] == "assistant" for each in request.messages)
        calls = PLAYS[model][question.id].turns[turn]
        if calls is None:
            return refuses(400, "no such luck")
        numbered = [
            ToolCall(f"c{turn}-{number}", each.name, each.arguments)
            for number, each in enumerate(calls)
        ]
        return says("Hm." if not calls else None, *numbered, usage=USAGES[model](turn))


class Told(NamedTuple):
    metrics: dict[str, Any]
    shown: dict[str, Any]
    run: Run


@pytest.fixture(scope="module")
def told(world_db: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """The benchmark of the three, as the command runs it."""
    folder = tmp_path_factory.mktemp("truth")
    golden = folder / "questions.jsonl"
    golden.write_text("".join(f"{json.dumps(each.to_row())}\n" for each in ASKED), "utf-8")
    models = [argument for model in PRICES for argument in ("-m", model)]
    with Provider(Act()) as provider:
        environment = {
            "ART_E_HOME": str(folder / "home"),
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "OPENAI_BASE_URL": provider.base_url,
        }
        result = CliRunner(env=environment).invoke(
            app,
            [
                "eval", "run", *models, "--questions", str(golden), "--db", str(world_db),
                "--max-turns", str(MAX_TURNS), "--concurrency", "4", "--json",
                "--out", str(folder / "run"),
            ],
        )  # fmt: skip
    assert result.exit_code == 0, result.output
    metrics = json.loads((folder / "run" / "metrics.json").read_text("utf-8"))
    return Told(metrics, json.loads(result.stdout), Run(folder / "run"))


def expected(model: str, found: dict[str, bool]) -> dict[str, Any]:
    """The figures of a model that follow from its plays; `found`: whose gold a search showed."""
    plays = PLAYS[model]
    answerable = [each for each in ASKED if each.answerable]
    # The turns that were paid for: a refused one is not.
    paid = {name: [each for each in play.turns if each is not None] for name, play in plays.items()}
    usages = [USAGES[model](turn) for turns in paid.values() for turn in range(len(turns))]
    n = len(ASKED)
    cost = sum((_cost(model, usage) for usage in usages), Fraction(0))
    right = [each for each in answerable if plays[each.id].step == "right"]
    return {
        "n": n,
        **_shares(model, ASKED),
        "found_gold": sum(found.values()) / len(answerable),
        "read_gold": sum(plays[each.id].read_gold for each in answerable) / len(answerable),
        "sources_correct": sum(plays[each.id].cited for each in answerable) / len(answerable),
        "always_right": None,
        "turns": sum(map(len, paid.values())) / n,
        "turns_when_correct": sum(len(paid[each.id]) for each in right) / len(right),
        "effort": sum(max(1, len(calls)) for turns in paid.values() for calls in turns) / n,
        "tool_calls": sum(len(calls) for turns in paid.values() for calls in turns) / n,
        "tokens": {
            name: sum(getattr(usage, name) for usage in usages) / n
            for name in (
                "prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens",
            )
        },
        "cost_per_1000_usd": float(1000 * cost / n),
        "cost_usd": float(cost),
        "throughput": None,
        "retries": int(model == STRONG),
        "errors": sum(play.step == "failed" for play in plays.values()),
        "unjudged": 0,
        "funnel": {step: sum(play.step == step for play in plays.values()) for step in STEPS},
        "agreement": None,
        "concurrency": 4,
        "by_kind": _by_label(model, lambda each: each.kind, KINDS),
        "by_difficulty": _by_label(model, lambda each: each.difficulty, ("easy", "medium", "hard")),
    }  # fmt: skip


def _cost(model: str, usage: Usage) -> Fraction:
    prompt, cached, completion = (Fraction(price) / 1_000_000 for price in PRICES[model])
    fresh = usage.prompt_tokens - usage.cached_prompt_tokens
    spent = fresh * prompt + usage.cached_prompt_tokens * cached
    return spent + usage.completion_tokens * completion


def _shares(model: str, asked: list[Question]) -> dict[str, float | None]:
    plays = [(bool(each.answerable), PLAYS[model][each.id]) for each in asked]
    can, can_not = ([play for able, play in plays if able is which] for which in (True, False))
    wrong = sum(play.answered and play.step != "right" for _, play in plays)
    right, rightly_not = ([each.step == "right" for each in part] for part in (can, can_not))
    return {
        "accuracy": sum(right) / len(can) if can else None,
        "unanswerable_accuracy": sum(rightly_not) / len(can_not) if can_not else None,
        "hallucination": wrong / len(plays),
        "abstention": sum(play.abstained for _, play in plays) / len(plays),
    }


def _by_label(
    model: str, label: Callable[[Question], str | None], order: tuple[str, ...]
) -> dict[str, Any]:
    groups = {each: [one for one in ASKED if label(one) == each] for each in order}
    return {
        each: {"n": len(asked), **_shares(model, asked)} for each, asked in groups.items() if asked
    }


def flat(figures: Any, name: str = "") -> dict[str, Any]:
    """Each figure by its path, an estimate as its value alone."""
    if not isinstance(figures, dict):
        return {name: figures}
    if "method" in figures:
        return {name: figures["value"]}
    return {
        path: value
        for key, part in figures.items()
        for path, value in flat(part, f"{name}.{key}").items()
    }


def estimates(figures: Any) -> list[dict[str, Any]]:
    if not isinstance(figures, dict):
        return []
    if "method" in figures:
        return [figures]
    return [each for part in figures.values() for each in estimates(part)]


def shown_by_search(world: InboxFile, model: str) -> dict[str, bool]:
    """Of the answerable questions, whether the one search that finds anything shows all gold."""
    found = {}
    for each in ASKED:
        if each.answerable:
            inbox = world.open_inbox(each.inbox_address, each.query_date)
            hits = {hit.message_id for hit in inbox.search(["the", "of"])}
            found[each.id] = model == STRONG and set(each.message_ids) <= hits
    return found


@pytest.mark.parametrize("model", PRICES)
def test_every_figure_is_the_truth(told: Told, world: InboxFile, model: str) -> None:
    figures = told.metrics["models"][model]
    wanted = expected(model, shown_by_search(world, model))
    assert flat({name: figures[name] for name in wanted}) == {
        name: value if value is None else pytest.approx(value, rel=1e-12)
        for name, value in flat(wanted).items()
    }
    # What is not in `expected` is tested by itself.
    assert set(figures) - set(wanted) == {
        "grounded", "by_judge", "errors_by_kind", "latency_p50_s", "latency_p95_s",
        "latency_parts_s", "cost_source", "not_asked", "stopped",
    }  # fmt: skip
    assert figures["cost_source"] == "price per token"
    assert (figures["not_asked"], figures["stopped"]) == (0, None)
    assert figures["by_judge"]["offline/2"] == {
        name: figures[name] for name in ("accuracy", "unanswerable_accuracy", "hallucination")
    }
    failed = wanted["errors"]
    assert figures["errors_by_kind"] == ({"request": failed} if failed else {})


@pytest.mark.parametrize("model", PRICES)
def test_costs_are_right_to_the_cent_in_every_line_and_in_the_sum(told: Told, model: str) -> None:
    scored = [each for each in load_run(told.run) if each.trajectory.model == model]
    total = Fraction(0)
    for each in scored:
        turns = [one for one in PLAYS[model][each.question.id].turns if one is not None]
        paid = sum((_cost(model, USAGES[model](turn)) for turn in range(len(turns))), Fraction(0))
        assert each.trajectory.cost_usd == pytest.approx(float(paid), rel=1e-9)
        total += paid
    cents = round(100 * total)
    assert cents > 0
    assert round(100 * told.metrics["models"][model]["cost_usd"]) == cents


@pytest.mark.parametrize("model", PRICES)
def test_every_interval_holds_its_value_and_says_how_it_was_made(told: Told, model: str) -> None:
    found = estimates(told.metrics["models"][model])
    assert len(found) > 40
    for each in found:
        if each["value"] is None:
            assert each["n"] == 0 or each["low"] is None
            continue
        # 4 inboxes are too few to be clusters, and no question was repeated.
        assert each["method"] in ("wilson", "bootstrap")
        assert each["low"] - 1e-12 <= each["value"] <= each["high"] + 1e-12


@pytest.mark.parametrize(
    ("model", "rate"), [(STRONG, 0.9 * 29 / 30), (WEAK, 0.5 - 2 / 12), (INVENTIVE, 0.25)]
)
def test_the_rule_that_a_model_follows_lies_within_its_interval(
    told: Told, model: str, rate: float
) -> None:
    accuracy = told.metrics["models"][model]["accuracy"]
    assert accuracy["low"] < rate < accuracy["high"]


@pytest.mark.parametrize("model", PRICES)
def test_time_is_what_the_episodes_took(told: Told, model: str) -> None:
    figures = told.metrics["models"][model]
    times = [
        each.trajectory.seconds for each in load_run(told.run) if each.trajectory.model == model
    ]
    parts = {name: each["value"] for name, each in figures["latency_parts_s"].items()}
    total = sum(each["total"] for each in times) / len(times)
    assert sum(parts.values()) == pytest.approx(total)
    assert parts["model"] > parts["tools"]
    assert min(parts.values()) >= 0
    longest = max(each["total"] for each in times)
    assert 0 < figures["latency_p50_s"]["value"] <= figures["latency_p95_s"]["value"] <= longest


def test_what_was_asked_is_told_and_printed(told: Told) -> None:
    answerable = sum(bool(each.answerable) for each in ASKED)
    assert told.metrics["questions"] == {
        "n": len(ASKED),
        "answerable": answerable,
        "inboxes": len({each.inbox_address for each in ASKED}),
        "repeats": 1,
    }
    assert told.shown == {**told.metrics, "run": str(told.run.folder)}
    episodes = Counter((each.trajectory.model, each.question.id) for each in load_run(told.run))
    assert set(episodes.values()) == {1}
    assert len(episodes) == 3 * len(ASKED)
