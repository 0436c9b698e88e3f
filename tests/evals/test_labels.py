"""The commands `eval label` (blind, safe, resumable) and `eval judge`."""

import json
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from art_e.models.base import Usage
from art_e.question import Question
from art_e.runs import Run
from evals.judges import labels
from evals.report.build import build_report
from evals.report.tables import measure
from evals.scored import Scored, Verdict, load_run
from tests.builders import table_rows, write_lines
from tests.builders import the_error as the_user_error
from tests.command_line import HOSTILE, assert_safe, done, json_of, the_error
from tests.command_line import Run as Cli
from tests.evals.runs import Outcome, episode, episodes, question, write_run
from tests.provider import KEY, Reply, Request, openai, says


@pytest.fixture
def run(home: Path) -> Run:
    trajectories = episodes("secret-model", {"right": 4, "wrong": 3, "abstained": 2, "failed": 1})
    trajectories += episodes("other", {"unjudged": 1, "out of turns": 2})
    return write_run(home / "runs" / "mine", trajectories)


@pytest.fixture
def label(art_e: Cli) -> Cli:
    return partial(art_e, "eval", "label", "mine")


def to_label(run: Run) -> list[Scored]:
    return labels.episodes_to_label(load_run(run))


def test_keys_become_labels_in_order(run: Run, label: Cli) -> None:
    result = done(label(keys="rwsR?q"))
    first, second, _, fourth, *_ = (each.trajectory.episode_id for each in to_label(run))
    assert labels.read_labels(run) == {first: True, second: False, fourth: True}
    for words in ("there is no key '?'", "3 labels added", "art-e eval judge --run mine"):
        assert words in result.stderr


def test_labelling_continues_where_it_stopped(run: Run, label: Cli) -> None:
    ids = [each.trajectory.episode_id for each in to_label(run)]
    label(keys="rrq")
    again = label(keys="w" * len(ids))
    assert f"3 of {len(ids)}" in again.stdout
    assert f"2 of {len(ids)}" not in again.stdout
    assert labels.read_labels(run) == {name: place < 2 for place, name in enumerate(ids)}
    labels.write_label(run, ids[0], correct=False)
    assert labels.read_labels(run) == {name: place == 1 for place, name in enumerate(ids)}
    # All answers are labelled.
    complete = label(keys="").stderr
    assert "[r]ight" not in complete and "0 labels added" in complete


def test_label_hides_the_model_and_the_verdict(run: Run, label: Cli) -> None:
    printed = label(keys="q").stdout
    first = to_label(run)[0]
    assert first.trajectory.verdict is not None
    gold, final = first.question.answer, str(first.trajectory.final_answer)
    parts = [first.question.question, f"gold      {gold or '(no mail has the answer)'}\n", final]
    parts += [f"| The lease ends. {gold or ''}".rstrip(), "Ann Alder <ann@test.example>", "cited"]
    assert [each for each in parts if each not in printed] == []
    for secret in ("secret-model", "offline", first.trajectory.verdict["reason"]):
        assert secret not in printed
    # The mail comes first, so that question, gold and answer are together above the keys.
    assert printed.index("| The lease ends") < printed.index("question  ")


def test_label_prints_hostile_mail_as_text_and_cuts_it(home: Path, label: Cli) -> None:
    item = question(0, question=f"When? {HOSTILE}", answer=f"On May 1. {HOSTILE}")
    messages = json.loads(json.dumps(episode(item, "wrong").messages))
    for message in messages:
        if message["role"] == "tool" and '"body"' in message["content"]:
            mail = json.loads(message["content"])
            mail |= {"subject": HOSTILE, "from": HOSTILE, "body": f"{HOSTILE}\nline\n" * 100}
            # Like the episode before the last turn.
            message["content"] = json.dumps(mail) + '\n{"note": "one turn left"}'
        elif message["role"] == "tool":
            message["content"] = "no JSON"
    hostile = episode(item, "wrong", messages=messages, final_answer=HOSTILE)
    write_run(home / "runs" / "mine", [hostile])
    result = done(label(keys="r"))
    assert "[bold]red[/bold]" in result.stdout
    assert "more characters)" in result.stdout
    assert len(result.stdout.splitlines()) < 60
    assert_safe(result.stdout)


# ---- Judges against labels: figures computed by hand.


def judged_case(label: bool, correct: bool | None, number: int) -> labels.JudgedCase:
    question = Question(f"q{number}", "When?", "", answer="May 3")
    case = labels.Case(question, "May 3", label, "dates")
    return labels.JudgedCase(case, Verdict(correct, None, "a judge", "because"))


def table(both: int, missed: int, fooled: int, neither: int) -> list[labels.JudgedCase]:
    """Return counts of right judged right, right judged wrong, wrong judged right, both wrong."""
    cells = [(True, True)] * both + [(True, False)] * missed
    cells += [(False, True)] * fooled + [(False, False)] * neither
    return [judged_case(label, correct, number) for number, (label, correct) in enumerate(cells)]


def test_agreement_matches_a_textbook_without_missing_verdicts() -> None:
    unjudged = [judged_case(bool(number % 2), None, 50 + number) for number in range(10)]
    figures = labels.agreement([*table(20, 5, 10, 15), *unjudged])
    assert (figures["n"], figures["unjudged"]) == (60, 10)
    assert list(figures["confusion"].values()) == [20, 5, 10, 15]
    assert figures["agreement"]["value"] == pytest.approx(35 / 50)
    # Half of them agree by chance.
    assert figures["kappa"]["value"] == pytest.approx(0.4)
    assert labels.agreement(unjudged)["agreement"]["value"] is None
    # A judge that failed on the only answer that needs a verdict has no agreement.
    failed = unjudged[0]._replace(case=unjudged[0].case._replace(answer="4 May"))
    figures = labels.agreement([*table(20, 5, 10, 15), failed])
    assert figures["agreement"]["value"] is None


# No judge agrees with the label of "May 30". Another answer has control characters.
PAIRS = Path(__file__).with_name("few_pairs.jsonl")


def test_invalid_pair_is_named(tmp_path: Path) -> None:
    pair = json.loads(PAIRS.read_text("utf-8").partition("\n")[0])
    without_reason = {name: pair[name] for name in pair if name != "why"}
    for rows, words in (
        ([], "no labelled pair"),
        ([pair, {**pair, "half": "third"}], "line 2: half"),
        ([without_reason], "line 1: why"),
    ):
        pairs = write_lines(tmp_path / "pairs.jsonl", *rows)
        assert words in the_user_error(labels.load_pairs, pairs)


def test_default_is_the_offline_judge_on_the_reporting_half(art_e: Cli) -> None:
    [figures] = json_of(art_e("eval", "judge", "--json"))["judges"].values()
    pairs = [each for each in labels.load_pairs() if each.half == "reporting"]
    assert figures["n"] == len(pairs)
    assert figures["kappa"]["low"] < figures["kappa"]["value"] < figures["kappa"]["high"]
    counts = Counter(each.category for each in pairs)
    assert {name: each["n"] for name, each in figures["by_category"].items()} == counts
    assert figures["unsure"] + figures["sure"]["n"] == len(pairs)


def test_json_has_the_wrong_verdicts_with_their_reasons(art_e: Cli) -> None:
    args = ("eval", "judge", "--pairs", PAIRS)
    [wrong] = json_of(art_e(*args, "--json"))["judges"]["offline/9"]["wrong"]
    assert (wrong["answer"], wrong["label"], wrong["verdict"]) == ("May 30", True, False)
    assert wrong["reason"].startswith("lacks a value or name (score 0.")
    printed = done(art_e(*args))
    assert "adversarial answers judged correct: 0 of 1" in printed.stdout
    rows = [line.split("│") for line in printed.stdout.splitlines() if "│" in line]
    [row] = [each for each in rows if each[1].strip() == "all"]
    assert [cell.strip() for cell in row[4:9]] == ["2", "1", "0", "2", "0"]
    # All are answers to one question, and say little about others.
    assert row[3].strip() == "80.0% [0.2, 99.8]"
    assert "near May 4" in printed.stdout
    assert_safe(printed.stdout)


def test_two_judges_are_measured_and_cached(art_e: Cli, home: Path) -> None:
    def grader(request: Request) -> Reply:
        text = json.loads(request.messages[1]["content"])["given_answer"]
        if text == "5/3":
            return says("no idea")
        verdict = {"reason": "as I see it", "verdict": "correct" if "3" in text else "incorrect"}
        return says(json.dumps(verdict), usage=Usage(1_000, 0, 100, 0))

    args = ("eval", "judge", "--judge", "openai/gpt-4.1", "--judge", "offline", "--pairs", PAIRS)
    with openai(grader) as provider:
        result = art_e(*args, "--json")
        calls = len(provider.requests)
        again = art_e(*args, "--json")
        # The unreadable reply is requested twice in each run; the others are cached.
        assert len(provider.requests) == calls + 2
    assert len(list((home / "cache" / "verdicts").rglob("*.json"))) == calls - 2
    printed = json_of(result)
    model, offline = printed["judges"]
    assert model.startswith("openai/gpt-4.1@") and offline == "offline/9"
    figures = printed["judges"][model]
    # The hostile answer with a 4 and the appeal are wrong; "5/3" has no verdict.
    assert figures["unjudged"] == 1
    assert (figures["agreement"]["value"], figures["agreement"]["n"]) == (1, 4)
    # Four calls of 1,000 + 100 tokens, at $2 and $8 a million, and two of 100 + 10.
    assert "6 calls, 4,620 tokens, $0.0118" in result.stderr
    assert json_of(again) == printed
    assert "judge: mail text stays on this machine (127.0.0.1" in result.stderr
    assert KEY not in result.output


def test_a_runs_labels_measure_its_verdicts_and_another_judge(art_e: Cli, home: Path) -> None:
    trajectories = episodes("strong", {"right": 6, "wrong": 3, "abstained": 3})
    run = write_run(home / "runs" / "mine", trajectories)
    assert "art-e eval label mine" in the_error(art_e("eval", "judge", "--run", "mine"))
    labelled = [each for each in load_run(run) if each.trajectory.rubric["answered"]]
    for number, scored in enumerate(labelled):
        correct = scored.correct != (number == 0)
        labels.write_label(run, scored.trajectory.episode_id, correct=correct)
    stored = json_of(art_e("eval", "judge", "--run", "mine", "--json"))["judges"]["offline/9"]
    assert stored["n"] == len(labelled)
    assert stored["agreement"]["value"] == pytest.approx(1 - 1 / len(labelled))
    # Judged again, the offline judge gives the invented verdicts.
    again = json_of(art_e("eval", "judge", "--run", "mine", "--judge", "offline", "--json"))
    assert again["judges"]["offline/9"]["n"] == stored["n"]


def test_only_labels_of_the_same_model_correct_its_accuracy(home: Path) -> None:
    outcomes: dict[Outcome, int] = {"right": 50, "wrong": 30}
    trajectories = [*episodes("strong", outcomes), *episodes("weak", outcomes)]
    run = write_run(home / "runs" / "mine", trajectories)
    for scored in to_label(run):
        if scored.trajectory.model == "strong":
            labels.write_label(run, scored.trajectory.episode_id, correct=scored.correct)
    other = write_run(home / "runs" / "other", episodes("strong", outcomes))
    strong, *others = measure([run, other])
    corrected = strong.figures["corrected"]["accuracy"]["value"]
    # The judge made no errors.
    assert corrected == pytest.approx(strong.figures["accuracy"]["value"])
    assert [each.figures["corrected"] for each in others] == [None, None]
    page, *_ = build_report([run, other], home / "report")
    assert page.read_text("utf-8").count("are not measured on these answers") == 1
    assert page.read_text("utf-8").count("The corrected accuracy accounts for these errors") == 1


def test_errors_of_label_and_judge_are_one_line(home: Path, art_e: Cli) -> None:
    write_run(home / "runs" / "mine", episodes("weak", {"abstained": 2, "failed": 1}))
    assert "no judged answer" in the_error(art_e("eval", "label", "mine"))
    for args, fix in table_rows(__file__, "judge_errors.tsv"):
        assert fix in the_error(art_e("eval", "judge", *args.split()))
