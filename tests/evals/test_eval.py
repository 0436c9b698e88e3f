"""The commands `eval run`, `eval compare` and `eval report`."""

import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

import pytest
from typer.testing import Result

from art_e.errors import UserError
from art_e.models.base import Usage
from art_e.question import Question
from art_e.runs import Run as RunFolder
from art_e.runs import read_trajectories
from art_e.trajectory import Trajectory
from data_pipeline.synthetic.world import WorldConfig, questions
from evals.benchmark import published_100, sample_questions
from tests.builders import answer, message, search, table_rows, tries
from tests.command_line import HOSTILE, Run, assert_safe, done, json_of, the_error
from tests.evals.runs import Outcome, episode, episodes, question, write_questions, write_run
from tests.provider import Reply, Request, broken, cut, openai, rate_limited, refuses, says

ALL = questions(WorldConfig(size=1000))
ASKED = ALL[:6]
FAILING = ASKED[2]
O3 = "openai/o3"
# 10,000 prompt tokens of which 2,000 cached, and 1,000 of completion, at o3's prices.
USAGE = Usage(10_000, 2_000, 1_000, 400)
COST = 0.016 + 0.001 + 0.008
SLOW_S = 0.05


def asked_in(request: Request) -> Question:
    contents = [each.get("content") for each in request.messages]
    return next(each for each in ALL if each.question in contents)


def right(request: Request) -> Reply:
    """Answer with the gold answer at once."""
    item = asked_in(request)
    return says(None, answer(item.answer, *item.message_ids), usage=USAGE, delay_s=SLOW_S)


def mostly_right(request: Request) -> Reply:
    """Answer with the gold answer, except for one question, which the provider refuses."""
    return refuses(400, "no such luck") if asked_in(request) == FAILING else right(request)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_questions(tmp_path_factory.mktemp("golden") / "world.questions.jsonl", ALL)


@pytest.fixture
def offline(art_e: Run, world: Path, world_db: Path) -> Callable[..., Result]:
    options = ("-m", "offline", "--questions", world, "--split", "test", "--db", world_db)
    return partial(art_e, "eval", "run", *options)


@pytest.fixture
def run(art_e: Run, world_db: Path, tmp_path: Path) -> Callable[..., Result]:
    """Run a hosted model on six questions, one at a time, with a provider that follows `rule`; the
    result's `requests` are those that the provider received."""
    golden = write_questions(tmp_path / "questions.jsonl", ASKED)

    def run(
        *more: object, rule: Callable[[Request], Reply] = mostly_right, model: str = O3
    ) -> Result:
        options = ("--questions", golden, "--db", world_db, "-m", model, "--concurrency", 1)
        with openai(rule) as provider:
            judge = () if "--judge" in more or "--preset" in more else ("--judge", "offline")
            result = art_e("eval", "run", *options, *judge, *more)
        result.requests = provider.requests  # type: ignore[attr-defined]
        return result

    return run


def figures_of(result: Result) -> dict[str, Any]:
    return dict(json_of(result)["models"][O3])


def episodes_of(folder: Path) -> list[Trajectory]:
    return list(read_trajectories(folder / "trajectories.jsonl"))


def test_json_equals_the_metrics_file(art_e: Run, offline: Any, home: Path, world: Path) -> None:
    result = offline("--limit", 12, "--json")
    printed = json_of(result)
    assert list(printed) == ["judges", "questions", "models", "prompt", "run"]
    figures = printed["models"]["offline"]
    assert (figures["n"], figures["errors"], figures["cost_usd"]) == (12, 0, 0)
    # Without a terminal there is no progress bar.
    assert result.stderr == "12 of 36 questions, stratified by inbox and kind\n"
    folder = Path(printed["run"])
    assert folder.parent == home / "runs"
    names = {each.name for each in folder.iterdir()} - {".lock"}
    assert names == {"config.json", "trajectories.jsonl", "metrics.json", "COMPLETE"}
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    assert {**metrics, "run": str(folder)} == printed
    options = {"judges": ["offline/9"], "questions": str(world), "split": "test", "max_turns": 10}
    assert RunFolder(folder).config.items() >= options.items()
    sample = sample_questions([each for each in ALL if each.split == "test"], 12)
    assert [each.question_id for each in episodes_of(folder)] == [each.id for each in sample]
    accuracy = figures["accuracy"]["value"]
    main = art_e("runs", "show", "last").stdout
    assert f"accuracy of offline: {accuracy:.1%}" in main and "split: test" in main
    assert "versions" not in main and "questions_hash" not in main


def test_options_reach_the_episodes(offline: Any, tmp_path: Path) -> None:
    prompt = tmp_path / "terse.txt"
    prompt.write_text("Be terse.", encoding="utf-8")
    options = (
        "--limit", 4, "--repeat", 2, "--max-turns", 2, "--prompt", prompt,
        "--judge", "offline", "--judge", "f1",
    )  # fmt: skip
    result = offline(*options, "--out", tmp_path / "run")
    assert re.search(r"n +│ +8 ", result.stdout)
    assert re.search("judge offline/9; accuracy over [1-4] answerable questions", result.stdout)
    assert "offline: outcomes, with right abstentions as right: " in result.stdout
    for line in ("right every time: ", "the judges agree on ", "8 episodes, $"):
        assert line in result.stdout
    for trajectory in episodes_of(tmp_path / "run"):
        assert trajectory.messages[0]["content"] == "Be terse."
        assert (trajectory.rubric["turns"], trajectory.policy["prompt"]) == (2, "terse")


@pytest.mark.parametrize(("options", "words"), table_rows(__file__, "user_errors.tsv"))
def test_wrong_option_gives_one_line_and_no_run(
    offline: Any, home: Path, options: str, words: str
) -> None:
    assert words in the_error(offline(*options.split()))
    assert not (home / "runs").exists()


def test_failed_question_is_counted_but_not_measured(run: Any) -> None:
    refused: set[str] = set()

    def rule(request: Request) -> Reply:
        item = asked_in(request)
        if item == ASKED[0] and item.id not in refused:
            refused.add(item.id)
            return rate_limited("0")
        return mostly_right(request)

    result = run("--json", rule=rule)
    assert "mail text stays on this machine" in result.stderr
    assert "estimate: openai/o3: about $" in result.stderr
    figures, n = figures_of(result), len(ASKED) - 1
    assert (figures["n"], figures["errors_by_kind"], figures["retries"]) == (n, {"request": 1}, 1)
    assert figures["accuracy"]["value"] == 1
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(1000 * COST)
    assert "give the same command with --resume" in result.stderr
    [failed] = [each for each in episodes_of(Path(json_of(result)["run"])) if each.error]
    assert (failed.question_id, failed.verdict) == (FAILING.id, None)
    text = run("-m", "offline").stdout
    [costs] = [line for line in text.splitlines() if line.startswith("│ Cost per 1,000")]
    assert sorted(costs.split()[5::2]) == ["$0.00", f"${1000 * COST:.2f}"]
    for line in ("not measured: 1 (request 1): openai/o3: ", "answered by scripted\n"):
        assert f"openai/o3: {line}" in text
    assert "retries 0, 1 at a time" in text
    # The offline policy has neither tokens nor a price.
    assert text.count("tokens a question") == 1


def test_each_answer_counts_once_if_30_percent_of_calls_fail(
    art_e: Run, world_db: Path, tmp_path: Path
) -> None:
    random, lock, calls = Random(0), Lock(), Counter[str]()

    def rule(request: Request) -> Reply:
        with lock:
            if random.random() < 0.3:
                calls["failed"] += 1
                page = Reply(b"<html>Bad gateway", fails=True)
                return random.choice([rate_limited("0"), broken(), cut(), page])
            calls["answered"] += 1
        usage = Usage(1_000, 0, 100, 0)
        return says(None, answer("Nobody said.", *asked_in(request).message_ids), usage=usage)

    repeats = tries(1, 40)
    items = ALL[: tries(30, len(ALL))]
    golden = write_questions(tmp_path / "questions.jsonl", items)
    options = ("--questions", golden, "--db", world_db, "--repeat", repeats, "--concurrency", 64)
    with openai(rule):
        art_e("eval", "run", "-m", O3, *options, "--judge", "f1", "--out", tmp_path / "run")
    trajectories = episodes_of(tmp_path / "run")
    counts = Counter(each.question_id for each in trajectories)
    assert counts == {each.id: repeats for each in items}
    assert calls["failed"] > 0.1 * calls["answered"]
    # All eight tries of a call fail once in 15,000.
    assert sum(each.error is None for each in trajectories) > 0.99 * len(trajectories)
    assert sum(each.usage["prompt_tokens"] for each in trajectories) == 1_000 * calls["answered"]


def test_model_that_refuses_every_call_is_not_measured(run: Any, tmp_path: Path) -> None:
    out, words = tmp_path / "run", "Incorrect API key provided."
    result = run("-m", "offline", "--out", out, rule=lambda _: refuses(401, words))
    assert (result.exit_code, len(result.requests)) == (1, 1)
    line, *_, more = [each for each in result.stdout.splitlines() if each.startswith(f"{O3}:")]
    assert line.startswith(f"{O3}: not measured: 1 (auth 1): ") and words in line
    assert more == f"{O3}: not asked: 5 more"
    assert "--resume --out" in result.stderr
    metrics = json.loads((out / "metrics.json").read_text())
    figures = metrics["models"][O3]
    assert (figures["n"], figures["not_asked"]) == (0, 5)
    assert figures["accuracy"]["value"] is figures["cost_per_1000_usd"]["value"] is None
    assert metrics["models"]["offline"]["n"] == 6
    assert not (out / "COMPLETE").exists()
    # With a valid key the same command asks the remaining questions only.
    assert len(episodes_of(out)) == 7
    again = run("-m", "offline", "--out", out, "--resume", "--json", rule=right)
    assert (len(again.requests), len(episodes_of(out))) == (6, 13)
    assert (figures_of(again)["accuracy"]["value"], figures_of(again)["not_asked"]) == (1.0, 0)
    assert (out / "COMPLETE").exists()


def test_cost_limit_leaves_questions_unasked_not_wrong(run: Any, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "run", "--json")
    # Two calls fit; a third could exceed the limit, at up to 0.14 USD a call.
    stopped = run("--max-cost", COST + 0.145, *out, rule=right)
    figures = figures_of(stopped)
    assert len(stopped.requests) == figures["n"] == 2
    assert (figures["not_asked"], figures["errors_by_kind"]) == (3, {"budget": 1})
    assert figures["accuracy"]["value"] == 1
    note = "not complete: 2 of 6 episodes measured and kept; to ask the rest give the same command"
    assert f"{note} with a higher --max-cost and --resume --out" in stopped.stderr
    assert not (tmp_path / "run" / "COMPLETE").exists()
    # In parallel it is the same number: reservations of running calls are released.
    parallel = figures_of(run("--max-cost", COST + 0.145, "--concurrency", 4, "--json", rule=right))
    assert (parallel["n"], parallel["cost_usd"]) == (2, pytest.approx(2 * COST))


def test_closed_book_offers_no_mail(run: Any, tmp_path: Path) -> None:
    result = run("--closed-book", "--out", tmp_path / "run", "--json", rule=right)
    for request in result.requests:
        [tool] = request.body["tools"]
        assert tool["function"]["name"] == "return_final_answer"
        assert "You can't search or read" in request.messages[0]["content"]
    assert json_of(result)["prompt"]["name"] == "closed-book"
    # The model knew the answers without reading any mail.
    assert figures_of(result)["accuracy"]["value"] == 1
    assert figures_of(result)["read_gold"]["value"] == 0


def test_published_preset_has_the_reference_questions_and_setup(run: Any, tmp_path: Path) -> None:
    def searches_twice(request: Request) -> Reply:
        if len(request.messages) > 2:
            return right(request)
        return says(None, *message(*[search("zeppelins", "invoice")] * 2).tool_calls, usage=USAGE)

    # The first hundred with one source, without the seven that the authors left out.
    many = [question(number, kind="lookup", id=str(number)) for number in range(40, 200)]
    others = [question(1, kind="lookup", id="39", message_ids=("a", "b")),
              question(2, kind="lookup", id="38", split="train")]  # fmt: skip
    chosen = {each.id for each in published_100([*others, *many], "here")}
    assert len(chosen) == 100 and "48" in chosen and not chosen & {"38", "39", "49", "101", "129"}
    with pytest.raises(UserError, match="--limit 1, which is not published-100"):
        published_100([*others, many[0]], "here")
    preset, gpt = ("--preset", "published-100", "--limit", 3, "--json"), "openai/gpt-4.1"
    plan = run(*preset, "--dry-run", model=gpt)
    assert (plan.requests, [each["calls"] for each in json_of(plan)["asked"]]) == ([], [15, 6])
    assert json_of(plan)["asked"][1]["name"] == "judge gemini/gemini-3.5-flash-lite"
    options = ("--judge", "offline", "--out", tmp_path / "run")
    result = run(*preset, *options, rule=searches_twice, model=gpt)
    config = RunFolder(tmp_path / "run").config
    assert (config["preset"], config["split"]) == ("3 as in published-100", "test")
    judge = "judge: offline; the published gemini/gemini-2.0-flash ended on 2026-06-01"
    assert {"3 questions, not 100", judge} < set(config["differences"])
    assert f"not as published: {judge}\n" in result.stderr
    single = [each for each in ASKED if each.answerable and len(each.message_ids) == 1]
    episodes = episodes_of(tmp_path / "run")
    assert {each.question_id for each in episodes} == {each.id for each in single}
    assert {request.body["temperature"] for request in result.requests} == {1.0}
    for messages in [each.messages for each in episodes]:
        assert messages[0]["content"].startswith("You find answers in a user's email.")
        first, second = [each["content"] for each in messages if each["role"] == "tool"][:2]
        # No mail has both words, and a second call is rejected.
        assert json.loads(first)["hits"] == []
        assert "only the first call" in second


def test_judge_that_always_fails_gives_no_figures(run: Any, art_e: Run, tmp_path: Path) -> None:
    def rule(request: Request) -> Reply:
        if request.body["model"] == "gpt-4.1":
            return refuses(402, "Insufficient credits.")
        item = asked_in(request)
        # The exact gold answer needs no judge.
        return says(None, answer(item.answer if item == ASKED[0] else f"{item.answer}, I think"))

    out = tmp_path / "run"
    result = run("--judge", "openai/gpt-4.1", "--out", out, rule=rule)
    assert result.exit_code == 1 and "│" not in result.stdout
    why = "openai/o3: unjudged: 5 (failed: no-credit: openai/gpt-4.1: 402: Insufficient"
    assert why in result.stdout and "openai/o3: not measured: nothing" in result.stdout
    page = Path(json_of(art_e("eval", "report", out, "--json"))["report"]).read_text("utf-8")
    assert why in page
    assert json_of(art_e("eval", "rejudge", out, "--json"))["models"][O3]["measured"]


def test_rejudge_asks_no_model_again(offline: Any, art_e: Run, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    before = json_of(offline("--limit", 8, "--out", old, "--json"))
    judges = ("--judge", "f1", "--judge", "offline")
    after = json_of(art_e("eval", "rejudge", old, *judges, "--out", new, "--json"))
    assert after["judges"] == ["f1/1", "offline/9"]
    assert RunFolder(new).complete and RunFolder(new).config["rejudged"] == str(old)
    verdicts = [each.verdict for each in episodes_of(old)]
    assert verdicts == [each.other_verdicts[0] for each in episodes_of(new)]
    figures, earlier = after["models"]["offline"], before["models"]["offline"]
    assert figures["by_judge"]["offline/9"]["accuracy"] == earlier["accuracy"]
    assert figures["latency_p50_s"] == earlier["latency_p50_s"]
    (old / "metrics.json").unlink()
    assert "resume it first" in the_error(art_e("eval", "rejudge", old, *judges))


# ---- `eval compare` and `eval report`.

HALF: dict[Outcome, int] = {"right": 10, "wrong": 10}
MOST: dict[Outcome, int] = {"right": 18, "wrong": 2}
LOCAL = "ollama_chat/qwen2.5:14b"


@pytest.fixture
def runs(home: Path) -> Path:
    """Write a run with two models, one with another, and two that can't be compared."""
    folder = home / "runs"
    terse = {"temperature": 0, "prompt": "terse", "prompt_hash": "4567"}
    write_run(folder / "first", [*episodes(O3, HALF), *episodes(LOCAL, MOST)])
    write_run(folder / "second", episodes("other", MOST, policy=terse))
    write_run(folder / "elsewhere", [episode(question(99, kind="lookup"), "right")])
    write_run(folder / "empty", [], complete=False)
    return folder


def test_comparison_has_both_sides_and_the_paired_figures(art_e: Run, runs: Path) -> None:
    printed = json_of(art_e("eval", "compare", "first:o3", "second", "--json"))
    assert printed["a"]["cost_source"] == "price per token"
    assert (printed["b"]["model"], printed["b"]["prompt"]) == ("other", "terse (4567)")
    # 4 of 20 questions are unanswerable: 2 of the first ten, 4 of the first 18.
    accuracy = printed["figures"]["accuracy"]
    assert (accuracy["a"], accuracy["b"]) == (8 / 16, 15 / 16)
    assert (printed["only_a"], printed["only_b"], len(printed["flipped"])) == (0, 7, 7)
    assert printed["p"] == pytest.approx(2 / 2**7)
    table = art_e("eval", "compare", f"{runs / 'first'}:{O3}", "second").stdout
    for text in (
        "A: openai/o3, prompt default (0123456789abcdef), run first",
        "Equal accuracy: p = 0.0156. 0 questions are right only in A, 7 only in B.",
        "B has 87.5% [",
    ):
        assert text in table
    assert table.count("right only in B: When does the lease") == 7
    [row] = [line for line in table.splitlines() if line.startswith("│ Accuracy")]
    assert "50.0%" in row and "93.8%" in row and "+43.8 pts" in row
    # A model's name may contain a colon.
    colon = json_of(art_e("eval", "compare", f"{runs / 'first'}:{LOCAL}", "second", "--json"))
    assert (colon["a"]["model"], colon["flipped"]) == (LOCAL, [])


def test_runs_show_accuracy_with_unjudged_answers_as_a_range(art_e: Run, home: Path) -> None:
    run = write_run(home / "runs" / "cut", episodes("m", {"right": 6, "unjudged": 4}))
    accuracy = {"value": None, "range": [0.625, 1.0]}
    run.write_json("metrics.json", {"models": {"m": {"measured": True, "accuracy": accuracy}}})
    assert "62 to 100%" in art_e("runs", "list").stdout
    assert "accuracy of m: 62.5 to 100.0%" in art_e("runs", "show", "cut").stdout


@pytest.mark.usefixtures("runs")
def test_compare_explains_errors_in_one_line(art_e: Run) -> None:
    for a, words in table_rows(__file__, "not_compared.tsv"):
        assert words in the_error(art_e("eval", "compare", a, "second"))


def test_hostile_text_is_printed_as_text(art_e: Run, home: Path) -> None:
    item = question(0, kind="lookup", question=f"When? {HOSTILE}", answer=f"In May {HOSTILE}")
    model = f"m {HOSTILE}"
    write_run(home / "runs" / "a", [episode(item, "right", model=model)])
    write_run(home / "runs" / "b", [episode(item, "wrong", model=model)])
    odd = write_run(home / "runs" / HOSTILE.replace("/", ""), episodes("m", {"right": 2}))
    for command_line in (("compare", "a", "b"), ("report", odd.folder)):
        assert_safe(done(art_e("eval", *command_line)).stdout)


def test_report_has_each_run_once(art_e: Run, runs: Path, tmp_path: Path) -> None:
    page, plots = tmp_path / "out" / "report.html", tmp_path / "out" / "plots"
    names = ("second", "elsewhere", runs / "second")
    result = art_e("eval", "report", *names, "--out", tmp_path / "out")
    table = f"its first table in Markdown: {tmp_path / 'out' / 'table.md'}"
    assert result.stdout.splitlines() == [f"report: {page}", table, f"6 plots: {plots}"]
    assert page.read_text("utf-8").count('<div class="run">') == 2
