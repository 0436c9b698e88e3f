"""`eval run` through a real server process: what its throughput and its cost are told to be."""

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="local models need the extra: art-e[train]")

from art_e.inbox.file import InboxFile
from art_e.question import Question
from art_e.trajectory import read_trajectories
from tests import builders as episodes
from tests.command_line import Run, json_of
from tests.processes import serving
from tests.taught import DONT_KNOW, LESSONS

MODEL = "hosted_vllm/taught"
ASKED = [
    Question(
        f"q{number}",
        text,
        episodes.BOB,
        episodes.QUESTION.query_date,
        None if answer == DONT_KNOW else answer,
        tuple(sources),
        answerable=answer != DONT_KNOW,
    )
    for number, (text, _, answer, sources) in enumerate(LESSONS)
]


def test_throughput_is_what_the_server_did_in_the_time(
    art_e: Run,
    taught: Path,
    inbox_file: InboxFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    golden = tmp_path / "questions.jsonl"
    golden.write_text("".join(json.dumps(each.to_row()) + "\n" for each in ASKED), "utf-8")
    out = tmp_path / "run"
    with serving(taught, "--name", "taught") as (_, base):
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", base)
        began = time.perf_counter()
        result = art_e(
            "eval", "run", "-m", MODEL, "--questions", golden, "--db", inbox_file.path,
            "--concurrency", 2, "--gpu-usd-per-hour", 3.6, "--out", out, "--json",
        )  # fmt: skip
        whole = time.perf_counter() - began
    figures = json_of(result)["models"][MODEL]
    assert (figures["errors"], figures["accuracy"]["value"]) == (0, 1.0)
    measured = figures["throughput"]
    trajectories = list(read_trajectories(out / "trajectories.jsonl"))
    totals = [each.seconds["total"] for each in trajectories]
    # As long as the longest at least, and together they took no more than they took alone.
    assert max(totals) <= measured["seconds"] <= sum(totals)
    assert measured["seconds"] < whole
    assert 1 <= measured["at_once"] <= 2
    tokens = sum(each.usage["prompt_tokens"] for each in trajectories)
    assert measured["prompt_tokens"] == tokens > 1_000
    assert measured["prompt_tokens_per_second"]["value"] == pytest.approx(
        tokens / measured["seconds"]
    )
    # A tenth of a cent a second.
    assert figures["cost_usd"] == pytest.approx(0.001 * measured["seconds"])
    assert f'[models."{MODEL}"]' in result.stderr
