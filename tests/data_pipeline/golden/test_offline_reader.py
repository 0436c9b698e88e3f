"""What word overlap may call suspect: nothing is dropped, few alarms are false."""

from collections import Counter
from collections.abc import Iterator

import pytest

from art_e.inbox.file import InboxFile
from art_e.question import Question
from data_pipeline.golden.golden_set import GoldenSet, checks_of
from data_pipeline.golden.offline_reader import WordChecks
from data_pipeline.golden.verify import verify
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.builders import date_header, make_inbox, raw


@pytest.fixture(scope="module")
def inbox_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    db = tmp_path_factory.mktemp("offline") / "inbox.duckdb"
    said = {
        "harbor": (6, "The harbor lease of Quillon Maritime ends on May 3, 2020."),
        "harbor-new": (9, "The harbor lease of Quillon Maritime ends on June 9, 2020."),
        "crane": (6, "The Belmont crane of Ortega Works costs $4,000."),
        "crane-again": (8, "As said: the Belmont crane of Ortega Works costs $4,000."),
        "crane-quote": (9, "Fine.\n\n> The Belmont crane of Ortega Works costs $4,000."),
        "kiln": (6, "Of the Havers kiln we have had one failure."),
        "kiln-2": (7, "The Havers kiln has failed again."),
    }
    make_inbox(
        db,
        [
            raw(f"<{name}@t>", subject="Notes", body=body, date=date_header(day))
            for name, (day, body) in said.items()
        ],
    )
    with InboxFile(db) as file:
        yield file


HARBOR = "When does the harbor lease of Quillon Maritime end?"


def flagged(found: list[Question]) -> dict[str, list[Question]]:
    """The questions by the check that was not sure of them."""
    unsure: dict[str, list[Question]] = {}
    for each in found:
        for name, check in checks_of(each).items():
            if not check.passed:
                unsure.setdefault(name, []).append(each)
    return unsure


def test_on_the_synthetic_world_nothing_is_dropped_and_little_suspected(world: InboxFile) -> None:
    rows = questions(WorldConfig(size=1000))
    golden = GoldenSet(list(rows))
    verify(world, golden, WordChecks())
    assert golden.rejected == []
    assert len(golden.questions) == len(rows)
    step = golden.manifest["steps"]["verify"]
    assert (step["model"], step["unchecked"]) == ("offline", {})
    # All rows are right, so that these are false alarms.
    unsure = Counter({name: len(each) for name, each in flagged(golden.questions).items()})
    answerable = sum(each.answerable is True for each in rows)
    assert unsure["answerable"] <= 0.04 * answerable
    assert unsure["unambiguous"] <= 0.02 * answerable
    assert unsure["unanswerable"] <= 0.2 * (len(rows) - answerable)
    assert step["sums"]["unsure"] == dict(unsure)
