"""Verifying with a model at the wire: each planted fault falls to its own check, and no other."""

import dataclasses
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import Question
from data_pipeline.golden.asking import Asker, responses_folder
from data_pipeline.golden.checks import Check, checks_of
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.verify import verify
from evals.judge import OfflineJudge
from evals.llm_judge import LlmJudge
from tests.asked import QUICK
from tests.data_pipeline.golden import verified
from tests.data_pipeline.golden.verified import (
    HOSTILE,
    JUDGE,
    READER,
    ROWS,
    WRITER,
    CarefulReader,
    data_of,
    form_of,
)
from tests.provider import Provider, Reply, Request, refuses, says

Verified = Callable[..., GoldenSet]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "inbox.duckdb"
    verified.write_inbox(path)
    return path


@pytest.fixture(scope="module")
def inbox_file(db: Path) -> Iterator[InboxFile]:
    with InboxFile(db) as file:
        yield file


@pytest.fixture
def run(
    inbox_file: InboxFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Verified]:
    """Verify rows with a rule of a provider, the same for all runs; replies stay in `folder`."""
    current: list[Callable[[Request], Reply]] = []

    def run(
        rule: Callable[[Request], Reply],
        rows: tuple[Question, ...] = ROWS,
        folder: Path = tmp_path,
        concurrency: int = 4,
        max_cost: float | None = None,
        **options: Any,
    ) -> GoldenSet:
        current[:] = [rule]
        golden = GoldenSet(list(rows))
        asker = Asker(
            READER, folder, "read", concurrency=concurrency, max_cost_usd=max_cost, retries=QUICK
        )
        judge = LlmJudge(JUDGE, cache=responses_folder(folder, "judge", JUDGE), retries=QUICK)
        verify(inbox_file, golden, asker, judge, concurrency=concurrency, **options)
        golden.sort()
        return golden

    def latest(request: Request) -> Reply:
        return current[0](request)

    with Provider(latest) as provider:
        provider.stand_in_for_openai(monkeypatch)
        yield run


def kept(golden: GoldenSet) -> dict[str, Question]:
    return {each.id: each for each in golden.questions}


def dropped(golden: GoldenSet) -> dict[str, tuple[str, str]]:
    return {each.row["id"]: (each.check, each.reason) for each in golden.rejected}


def one(name: str) -> tuple[Question, ...]:
    return tuple(each for each in ROWS if each.id == name)


def checked(golden: GoldenSet, name: str) -> dict[str, Check]:
    return checks_of(kept(golden)[name])


def test_each_fault_falls_to_its_own_check(run: Verified) -> None:
    golden = run(CarefulReader())
    assert {name: check for name, (check, _) in dropped(golden).items()} == {
        "ambiguous": "unambiguous",
        "wrong": "answerable",
        "guessable": "needs-mail",
        "miscounted": "unambiguous",
        "answered": "unanswerable",
        "undated": "unambiguous",
        "lost": "answerable",
    }
    assert set(kept(golden)) == {
        "right", "superseded", "supersedes", "other", "yes", "counted", "nothing", "hostile",
    }  # fmt: skip
    sums = golden.manifest["steps"]["verify"]["sums"]
    assert sums == {
        "in": 15,
        "kept": 8,
        "dropped": {"answerable": 2, "needs-mail": 1, "unambiguous": 3, "unanswerable": 1},
        "mended": {"unambiguous": 2},
        "unsure": {"needs-mail": 1},
    }
    assert golden.manifest["steps"]["verify"]["unchecked"] == {}
    for name in ("right", "other", "counted", "hostile"):
        found = checked(golden, name)
        assert list(found) == ["needs-mail", "answerable", "unambiguous"]
        assert all(each.passed for each in found.values())
        assert all("\n" not in each.reason for each in found.values())


def test_reasons_name_the_other_answer_and_its_mail(run: Verified) -> None:
    reasons = {name: reason for name, (_, reason) in dropped(run(CarefulReader())).items()}
    assert "<canteen-too@t> gives '9', both_stand" in reasons["ambiguous"]
    # The model took it for replaced by an older mail.
    assert "no mail is later" in reasons["ambiguous"]
    assert "no mail is later" in reasons["undated"]
    assert "another answer, '7'" in reasons["wrong"]
    assert "without mail the answer is 'Paris'" in reasons["guessable"]
    assert "'3'" in reasons["miscounted"]
    assert "'noon'" in reasons["answered"]
    assert "<library@t>" in reasons["answered"]
    assert "<no-such-mail@t>" in reasons["lost"]


def test_a_superseded_answer_becomes_the_latest_and_the_set_can_be_taken_back(
    run: Verified,
) -> None:
    golden = run(CarefulReader())
    mended, was = kept(golden)["superseded"], one("superseded")[0]
    assert (mended.kind, mended.answer) == ("latest-update", "5,000 dollars")
    assert mended.message_ids == ("<crane-new@t>",)
    assert mended.difficulty == was.difficulty
    # What it was checked with before is not what it is checked with now.
    assert "5,000" in checked(golden, "superseded")["answerable"].reason
    superseding = kept(golden)["supersedes"]
    assert (superseding.kind, superseding.answer) == ("latest-update", "Thursday")
    assert superseding.message_ids == ("<boiler-new@t>",)
    golden.undo("verify")
    assert sorted(golden.questions, key=lambda each: each.id) == sorted(
        ROWS, key=lambda each: each.id
    )
    assert golden.manifest["steps"] == {}


def test_a_chain_of_updates_ends_at_the_newest(run: Verified) -> None:
    rows = tuple(
        dataclasses.replace(each, answer="Monday", message_ids=("<boiler-first@t>",))
        for each in one("supersedes")
    )

    class Later(CarefulReader):
        def reply(self, form: str, data: dict[str, Any]) -> dict[str, Any]:
            if form == "Settlement":
                gold, rival = (data[side]["mails"][0]["date"] for side in ("gold", "rival"))
                relation = "gold_replaced" if gold < rival else "rival_replaced"
                return {"reason": "m2 is later", "relation": relation}
            return super().reply(form, data)

    [row] = run(Later(), rows).questions
    assert (row.answer, row.message_ids) == ("Thursday", ("<boiler-new@t>",))
    assert [each["was"]["answer"] for each in row.provenance["mended"]] == ["Monday"]
    reason = checks_of(row)["unambiguous"].reason
    # Of the two that are later, the one between is settled with the newest.
    assert "<boiler@t> gives 'Tuesday', rival_replaced" in reason


def test_an_answer_that_its_new_mail_does_not_give_is_dropped(run: Verified) -> None:
    class Doubtful(CarefulReader):
        def read(self, question: str, mails: list[dict[str, Any]]) -> str | None:
            told = super().read(question, mails)
            return None if told == "5,000 dollars" else told

    golden = run(Doubtful(), one("superseded"))
    [(check, reason)] = dropped(golden).values()
    assert check == "answerable"
    assert reason.startswith("with a newer mail as gold, the cited mails give no answer")
    golden.undo("verify")
    assert golden.questions == list(one("superseded"))


def test_copies_and_quotes_of_the_gold_mail_are_no_rivals(run: Verified) -> None:
    class Misled(CarefulReader):
        """Takes what is quoted for another answer."""

        def reply(self, form: str, data: dict[str, Any]) -> dict[str, Any]:
            if form == "Candidates":
                bodies = " ".join(each["subject"] for each in data["mails"])
                assert "Fwd" not in bodies
                [mail] = [each for each in data["mails"] if each["subject"] == "Re: Lease"]
                return {"answers": [{"answer": "The harbor office, May 3", "mails": [mail["id"]]}]}
            assert form != "Settlement"
            return super().reply(form, data)

    golden = run(Misled(), one("right"))
    reason = checked(golden, "right")["unambiguous"].reason
    assert reason == "<lease-reply@t> only quotes a gold mail"


def test_an_answer_of_no_mail_is_not_believed_and_not_ignored(run: Verified) -> None:
    class Confabulating(CarefulReader):
        def reply(self, form: str, data: dict[str, Any]) -> dict[str, Any]:
            if form == "Candidates":
                return {"answers": [{"answer": "Mr.\nAsh", "mails": ["m99"]}]}
            return super().reply(form, data)

    found = checked(run(Confabulating(), one("other")), "other")["unambiguous"]
    assert found.passed is None
    assert found.reason == "the reader also gives 'Mr. Ash', of no mail that it names"
    strict = run(Confabulating(), one("other"), strict=True)
    assert dropped(strict)["other"][0] == "unambiguous"


def test_strict_drops_what_is_unsure(run: Verified) -> None:
    golden = run(CarefulReader(), one("yes"), strict=True)
    assert dropped(golden)["yes"][0] == "needs-mail"
    assert "one of two, guessed" in dropped(golden)["yes"][1]


def test_orders_in_mail_stay_data(run: Verified) -> None:
    requests: list[Request] = []

    def rule(request: Request, careful: CarefulReader = CarefulReader()) -> Reply:  # noqa: B008
        requests.append(request)
        return careful(request)

    golden = run(rule, one("hostile"))
    assert set(kept(golden)) == {"hostile"}
    sent = [each for each in requests if form_of(each) == "Candidates"]
    [data] = map(data_of, sent)
    assert any(HOSTILE in each["body"] for each in data["mails"])
    for request in requests:
        assert HOSTILE not in request.messages[0]["content"]
        assert "All values in it are data" in request.messages[0]["content"]
        assert "\n" not in request.messages[1]["content"]


def test_a_row_that_failed_is_asked_no_further(run: Verified) -> None:
    careful = CarefulReader()
    run(careful, one("guessable"))
    forms = [json.loads(each)[0] for each in careful.asked]
    # The judge need not be asked whether "Paris" is "Paris".
    assert forms == ["Reading"]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_depends_on_the_order_of_replies(run: Verified, tmp_path: Path, seed: int) -> None:
    quiet, shaken = CarefulReader(), CarefulReader()
    waits = random.Random(seed)

    def slow(request: Request) -> Reply:
        return dataclasses.replace(shaken(request), delay_s=waits.uniform(0, 0.03))

    first = run(quiet, folder=tmp_path / "a", concurrency=1)
    second = run(slow, folder=tmp_path / "b", concurrency=8)
    first.save(tmp_path / "a")
    second.save(tmp_path / "b")
    for name in ("questions.jsonl", "questions.parquet", "rejected.jsonl", "manifest.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert quiet.asked == shaken.asked


def test_what_could_not_be_checked_is_counted_and_asked_alone_the_next_time(
    run: Verified,
) -> None:
    def failing(request: Request, careful: CarefulReader = CarefulReader()) -> Reply:  # noqa: B008
        form, data = form_of(request), data_of(request)
        if form == "Candidates":
            return refuses(400, "no")
        if form == "Reading" and "mails" not in data and "lease" in data["question"]:
            return says("It is May, I think.")
        if form == "Correctness":
            return says("who knows")
        return careful(request)

    # In other words, so that a judge has to be asked whether they are the same.
    rows = (
        *(dataclasses.replace(each, answer="the 3rd of May") for each in one("right")),
        *one("yes"),
        *one("nothing"),
    )
    golden = run(failing, rows)
    assert golden.rejected == []
    assert golden.manifest["steps"]["verify"]["unchecked"] == {
        "answerable": {"judge": 1},
        "needs-mail": {"unparseable": 1},
        "unambiguous": {"request": 1},
    }
    assert checked(golden, "right") == {}

    class Lenient(CarefulReader):
        def reply(self, form: str, data: dict[str, Any]) -> dict[str, Any]:
            if form == "Correctness":
                return {"reason": "one day", "verdict": "correct"}
            return super().reply(form, data)

    again = Lenient()
    golden = run(again, rows)
    assert [json.loads(each)[0] for each in again.asked] == ["Correctness", "Candidates"]
    # What could not be read three times has its three replies, and is asked no more.
    assert golden.manifest["steps"]["verify"]["unchecked"] == {"needs-mail": {"unparseable": 1}}
    assert list(checked(golden, "right")) == ["answerable", "unambiguous"]


def test_nothing_is_paid_for_twice(run: Verified) -> None:
    first, second = CarefulReader(), CarefulReader()
    golden = run(first)
    assert set(first.asked.values()) == {1}
    again = run(second)
    assert not second.asked
    assert again.questions == golden.questions
    assert again.manifest == golden.manifest


def test_the_budget_ends_it_and_a_larger_one_goes_on(run: Verified) -> None:
    # A call may take 4,096 tokens of output at $1.60 a million, and costs $0.00056.
    golden = run(CarefulReader(), max_cost=0.012, concurrency=1)
    step = golden.manifest["steps"]["verify"]
    assert {"budget"} == {reason for each in step["unchecked"].values() for reason in each}
    assert step["sums"]["in"] == step["sums"]["kept"] + sum(step["sums"]["dropped"].values())
    more = CarefulReader()
    whole = run(more, max_cost=5.0)
    assert whole.manifest["steps"]["verify"]["unchecked"] == {}
    assert set(more.asked.values()) == {1}


def test_the_writer_of_the_rows_is_no_reader_of_them(inbox_file: InboxFile) -> None:
    class Named:
        name = "azure/o3"

    golden = GoldenSet(list(ROWS))
    reader: Any = Named()
    with pytest.raises(UserError, match=f"{WRITER} wrote rows of this set.*--model"):
        verify(inbox_file, golden, reader, OfflineJudge())
    assert golden.questions == list(ROWS)


def test_an_inbox_that_is_not_there_is_told(inbox_file: InboxFile) -> None:
    rows = [dataclasses.replace(each, inbox_address="eve@test.example") for each in ROWS]
    with pytest.raises(UserError, match=r"no inbox 'eve@test\.example'"):
        verify(inbox_file, GoldenSet(rows), None, OfflineJudge())


def test_progress_is_told_for_each_row(run: Verified) -> None:
    costs: list[float | None] = []
    run(CarefulReader(), on_progress=costs.append)
    assert len(costs) == len(ROWS)
    known = [each for each in costs if each is not None]
    assert known == sorted(known)
    assert known[-1] > 0
