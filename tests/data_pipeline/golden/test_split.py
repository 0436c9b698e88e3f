"""The split step: who is where, and no gold mail that another split knows."""

from collections.abc import Iterator
from typing import Any

import pytest

from art_e.inbox.file import InboxFile
from art_e.question import Split
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.split import split
from data_pipeline.ingest.batch import Rules
from tests.builders import make_inbox, raw
from tests.data_pipeline.golden.splitting import asked, made

ANN, BOB, CAT, DAN = (f"{name}@test.example" for name in ("ann", "bob", "cat", "dan"))
SPLIT_OF: dict[str, Split] = {ANN: "train", BOB: "train", CAT: "validation", DAN: "test"}


def why(golden: GoldenSet) -> dict[str, tuple[str, str]]:
    """The check and the reason of each row that was dropped."""
    return {each.row["id"]: (each.check, each.reason) for each in golden.rejected}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    """Mails between four people; <copy> is <kept> sent once more, to someone else."""
    path = tmp_path_factory.mktemp("few") / "inbox.duckdb"

    def mail(name: str, sender: str, to: str, **parts: Any) -> Any:
        parts = {"subject": name, "body": f"All about {name}.", **parts}
        return raw(f"<{name}>", sender=sender, to=to, **parts)

    same = {"subject": "news", "body": "The same news.", "date": "Tue, 7 Jan 2020 09:00:00 +0000"}
    messages = [
        mail("a", ANN, ANN),
        mail("ab", ANN, BOB),
        mail("ac", ANN, CAT),
        mail("ad", ANN, f"Vince J. Dunn <{DAN}>"),
        mail("c", CAT, CAT),
        mail("cd", CAT, DAN),
        mail("d", DAN, DAN),
        mail("kept", BOB, ANN, **{**same, "date": "Mon, 6 Jan 2020 09:00:00 +0000"}),
        mail("copy", BOB, DAN, **same),
        mail("undated", ANN, ANN, date=None),
        mail("named", f"Dunn, Vince <{ANN}>", ANN),
    ]
    make_inbox(path, messages, Rules(any_id=True))
    with InboxFile(path) as opened:
        yield opened


def test_gold_in_a_test_inbox_is_dropped_from_training_and_from_validation(file: InboxFile) -> None:
    rows = [
        asked("q-1", ANN, "<a>", "<ad>"),
        asked("q-2", CAT, "<cd>"),
        asked("q-3", ANN, "<a>"),
        asked("q-4", CAT, "<c>"),
        # Test is never touched, wherever its mail is too.
        asked("q-5", DAN, "<ad>", "<cd>"),
    ]
    golden = made(rows, generated=SPLIT_OF)
    split(file, golden)
    assert [each.id for each in golden.questions] == ["q-3", "q-4", "q-5"]
    assert why(golden) == {
        "q-1": ("leak-test-inbox", f"gold mail <ad> is in the test inbox {DAN}"),
        "q-2": ("leak-test-inbox", f"gold mail <cd> is in the test inbox {DAN}"),
    }
    assert [row["split"] for row in (each.row for each in golden.rejected)] == [
        "train",
        "validation",
    ]


@pytest.mark.parametrize("cited", ["<kept>", "<copy>", "copy", " <copy> "])
def test_a_copy_is_the_mail_itself_under_any_id(file: InboxFile, cited: str) -> None:
    # Bob wrote <kept> to Ann and the same again to Dan: it is one mail now, in Dan's inbox too.
    golden = made([asked("q-1", BOB, cited)], generated=SPLIT_OF)
    split(file, golden)
    assert why(golden)["q-1"][0] == "leak-test-inbox"


def test_gold_of_two_splits_goes_from_training(file: InboxFile) -> None:
    rows = [
        asked("q-1", ANN, "<a>", "<ac>"),
        asked("q-2", CAT, "<ac>"),
        asked("q-10", CAT, "<ac>"),
        asked("q-3", BOB, "<ab>"),
        # Within a split mails may be gold twice.
        asked("q-4", ANN, "<ab>"),
    ]
    golden = made(rows, generated=SPLIT_OF)
    split(file, golden)
    reason = "gold mail <ac> is gold of validation question q-2 too"
    assert why(golden) == {"q-1": ("shared-gold", reason)}
    found = golden.manifest["steps"]["split"]["leaks"]
    assert found["before"]["shared_gold"]["train/validation"] == 1
    assert found["after"]["shared_gold"] == dict.fromkeys(found["after"]["shared_gold"], 0)


def test_a_row_that_was_dropped_itself_drops_no_other(file: InboxFile) -> None:
    # The validation row goes as <cd> is Dan's; then <ac> is gold in training alone.
    golden = made(
        [asked("q-1", ANN, "<ac>"), asked("q-2", CAT, "<ac>", "<cd>")], generated=SPLIT_OF
    )
    split(file, golden)
    assert [each.id for each in golden.questions] == ["q-1"]


def test_rows_keep_the_splits_that_they_came_with(file: InboxFile) -> None:
    rows = [
        asked("q-1", ANN, "<a>", split="test"),
        asked("q-2", ANN.upper(), "<a>", split="test"),
        asked("q-3", CAT, "<c>", split="train"),
    ]
    golden = made(rows)
    split(file, golden)
    assert golden.manifest["inboxes"] == {ANN: "test", CAT: "train"}
    assert golden.manifest["steps"]["split"]["splits_from"] == "rows"
    assert "seed" not in golden.manifest
