"""Rollouts compared with each other: what a model is shown, and what its scores are worth."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from art_e.message import AssistantMessage
from evals.judges.offline import OfflineJudge
from evals.scored import Scored
from tests.builders import CREW, LEASE, QUICK, message, read, search
from tests.provider import Provider, Reply, refuses, says
from tests.training.conftest import Begin
from tests.training.scripted import DECLINE, RIGHT, WRONG, rollouts, score
from training.ranking import CHARS, RelativeJudge, shown


def group(begin: Begin, *scripts: Sequence[AssistantMessage]) -> list[Scored]:
    return score(OfflineJudge(), rollouts(begin, *scripts))


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
def test_a_reply_scores_all_or_none(
    reply: Reply, expected: Any, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider([reply]) as provider:
        provider.stand_in_for_openai(monkeypatch)
        judge = RelativeJudge("openai/gpt-4.1", retries=QUICK)
        assert asyncio.run(judge.rank(group(begin, RIGHT, WRONG))) == expected


def test_what_all_did_first_is_shown_once(begin: Begin) -> None:
    looks = message(search("lease"))
    decline = [looks, message(read(CREW)), *DECLINE]
    told = shown(group(begin, [looks, *RIGHT], [looks, *WRONG], decline))
    [first] = told["shared"]
    assert first["calls"][0]["tool"] == "search_emails"
    assert json.dumps(told).count('"search_emails"') == 1
    tools = [[each["calls"][0]["tool"] for each in one["steps"]] for one in told["attempts"]]
    assert tools == [["read_email", "return_final_answer"]] * 3
    assert [one["attempt"] for one in told["attempts"]] == [1, 2, 3]
    assert told["question"]
    # The gold answer is not needed, so that it is not sent.
    assert "gold" not in json.dumps(told)


def test_long_rollouts_are_cut_to_fit(begin: Begin) -> None:
    long = [AssistantMessage("word " * 9_000), *RIGHT]
    told = json.dumps(shown(group(begin, *[long, [message(read(LEASE)), *long]] * 4)))
    assert CHARS / 4 < len(told) < 1.5 * CHARS
