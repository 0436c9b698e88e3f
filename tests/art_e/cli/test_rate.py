"""`rate`, and the golden rows that ratings become."""

from pathlib import Path
from typing import Any

import pytest

from art_e.question import load_questions
from art_e.ratings import read_ratings
from data_pipeline.golden.golden_set import GoldenSet
from tests.builders import ScriptedPolicy, answer, message, read, search
from tests.command_line import ANN, LEASE_ID, Run, json_of, the_error

QUESTION = "When does the warehouse lease end?"
LATER_ID = "<lease.2@harbor.example>"


@pytest.fixture
def ask(art_e: Run, owned_db: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks a model that gives this answer from the first lease mail."""

    def run(said: str | None, *options: object, question: str = QUESTION) -> None:
        steps = [message(search("lease")), message(read("m1")), message(answer(said, LEASE_ID))]
        monkeypatch.setattr("art_e.models.model.Model.policy", lambda *_: ScriptedPolicy(steps))
        day = ("--as-of", "2001-12-31")
        assert art_e("ask", question, "--db", owned_db, *day, *options).exit_code == 0

    return run


def test_the_last_rating_of_an_answer_counts(
    art_e: Run, ask: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("March 31, 2002")
    assert "good: When does" in art_e("rate", "good").stderr
    given = json_of(art_e("rate", "bad", "--answer", "April 30, 2003", "--source",
                          "lease.2@harbor.example", "--json"))  # fmt: skip
    assert (given["rating"], given["right_answer"]) == ("bad", "April 30, 2003")
    assert given["right_sources"] == [LATER_ID]
    assert (given["answer"], given["sources"]) == ("March 31, 2002", [LEASE_ID])
    assert (given["inbox_address"], given["as_of"], given["talk"]) == (ANN, "2001-12-31", False)
    monkeypatch.setenv("ART_E_HOME", str(home))
    [rating] = read_ratings()
    assert rating.rating == "bad"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["good"], "no answer to rate yet"),
        (["good", "--answer", "x"], "correct a bad answer"),
        (["bad", "--source", "x"], "give --answer"),
        (["bad", "--run", "nothing"], "no run 'nothing'"),
        (["fine"], "fine"),
    ],
)
def test_what_can_not_be_rated(arguments: list[str], says: str, art_e: Run) -> None:
    assert says in the_error(art_e("rate", *arguments))


def test_a_source_must_be_in_the_inbox(art_e: Run, ask: Any) -> None:
    ask("May 3")
    wrong = art_e("rate", "bad", "--answer", "x", "--source", "none@x")
    assert "no mail none@x in the inbox" in the_error(wrong)


def test_ratings_become_questions(art_e: Run, ask: Any, owned_db: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    make = ("golden", "from-ratings", "--db", owned_db, "--out", folder, "--json")
    assert "nothing is rated yet" in the_error(art_e(*make))
    ask("March 31, 2002")
    art_e("rate", "good")
    assert json_of(art_e(*make))["sums"]["kept"] == 1
    ask("May 3")
    art_e("rate", "bad", "--answer", "April 30, 2003", "--source", LATER_ID)
    ask("May 4")
    art_e("rate", "bad")
    ask("Bob", "-c", "--model", "offline", question="Who said so?")
    art_e("rate", "good")
    ask(None, question="When does the lift open?")
    art_e("rate", "good")
    sums = json_of(art_e(*make))["sums"]
    assert (sums["in"], sums["kept"]) == (5, 3)
    rows = {each.question + str(each.answer): each for each in load_questions(str(folder))}
    good = rows[f"{QUESTION}March 31, 2002"]
    assert (good.message_ids, good.inbox_address, str(good.query_date)) == (
        (LEASE_ID,), ANN, "2001-12-31",
    )  # fmt: skip
    assert rows[f"{QUESTION}April 30, 2003"].message_ids == (LATER_ID,)
    assert rows["When does the lift open?None"].answerable is False
    reasons = [each.reason for each in GoldenSet.load(folder).rejected]
    assert any("nobody said what is right" in each for each in reasons)
    assert any("can't stand alone" in each for each in reasons)
