"""What decides whether a unit is done: its settings, what it reads, what came before it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.errors import UserError
from training.reproduction.reproduction import carry_out, chosen_stage, plan, until
from training.reproduction.unit import RECORD, Shelf, Unit
from training.reproduction.work import Work


class Kitchen:
    """Two units, of which the second copies what the first wrote, and how often each was done."""

    def __init__(self, folder: Path, text: str = "one", cost: float = 1.0) -> None:
        self.done: list[str] = []
        self.source = folder / "source.txt"
        if not self.source.exists():
            self.source.write_text("mail")
        first = Unit("ingest", "first", {"text": text, "table": {"max_cost_usd": cost}},
                     ("made",), self._first, reads=(self.source,))  # fmt: skip
        second = Unit("golden", "second", {}, ("copy.txt",), self._second, ("first",))
        self.units = [first, second]
        self._text = text

    def _first(self, work: Work) -> None:
        if work.planned:
            work.art_e("cook", self._text)
            return
        self.done.append("first")
        (work.folder / "made").mkdir(exist_ok=True)
        (work.folder / "made" / "text.txt").write_text(self._text.upper())

    def _second(self, work: Work) -> None:
        source = work.of("first") / "made" / "text.txt"
        if work.planned:
            work.art_e("copy", source)
            return
        self.done.append("second")
        (work.folder / "copy.txt").write_text(source.read_text())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def cook(kitchen: Kitchen, out: Path) -> list[str]:
    kitchen.done.clear()
    carry_out(kitchen.units, out, lambda _: None)
    return kitchen.done


def test_what_is_done_is_not_done_again(tmp_path: Path, out: Path) -> None:
    assert cook(Kitchen(tmp_path), out) == ["first", "second"]
    assert cook(Kitchen(tmp_path), out) == []
    assert cook(Kitchen(tmp_path, cost=9.0), out) == []


def test_another_setting_makes_another_folder_and_the_first_is_kept(
    tmp_path: Path, out: Path
) -> None:
    cook(Kitchen(tmp_path), out)
    assert cook(Kitchen(tmp_path, "two"), out) == ["first", "second"]
    assert len(list(out.glob("second-*"))) == 2
    assert cook(Kitchen(tmp_path), out) == []


def test_a_change_that_makes_the_same_ends_there(tmp_path: Path, out: Path) -> None:
    cook(Kitchen(tmp_path, "one"), out)
    # Other settings, and the same product: what follows has nothing to do.
    assert cook(Kitchen(tmp_path, "ONE"), out) == ["first"]


def test_another_source_is_noticed(tmp_path: Path, out: Path) -> None:
    kitchen = Kitchen(tmp_path)
    cook(kitchen, out)
    kitchen.source.write_text("other mail")
    assert cook(kitchen, out) == ["first"]
    kitchen.source.unlink()
    with pytest.raises(UserError, match=r"source\.txt"):
        cook(kitchen, out)


def test_a_product_changed_by_hand_changes_what_follows(tmp_path: Path, out: Path) -> None:
    kitchen = Kitchen(tmp_path)
    cook(kitchen, out)
    [made] = out.glob("first-*/made/text.txt")
    made.write_text("by hand")
    assert cook(kitchen, out) == ["second"]
    assert {each.read_text() for each in out.glob("second-*/copy.txt")} == {"ONE", "by hand"}
    made.unlink()
    made.parent.rmdir()
    assert cook(kitchen, out) == ["first"]


def test_what_was_begun_is_begun_again_in_its_folder(tmp_path: Path, out: Path) -> None:
    kitchen = Kitchen(tmp_path)
    cook(kitchen, out)
    [record] = out.glob(f"second-*/{RECORD}")
    record.unlink()
    state = Shelf(out).states(kitchen.units)["second"]
    assert state.begun
    assert cook(kitchen, out) == ["second"]
    assert len(list(out.glob("second-*"))) == 1


def test_a_torn_record_is_told_with_its_folder(tmp_path: Path, out: Path) -> None:
    kitchen = Kitchen(tmp_path)
    cook(kitchen, out)
    [record] = out.glob(f"first-*/{RECORD}")
    record.write_text("{")
    with pytest.raises(UserError, match="delete"):
        cook(kitchen, out)


def test_a_plan_does_nothing_and_names_what_will_be(tmp_path: Path, out: Path) -> None:
    kitchen = Kitchen(tmp_path)
    first, second = plan(kitchen.units, out)
    assert not out.exists()
    assert kitchen.done == []
    assert (first.state.made, second.state.folder) == (None, None)
    assert first.commands == ["art-e cook one"]
    # Where it will be is not known before the first has been made.
    assert second.commands == [f"art-e copy {first.state.folder}/made/text.txt"]
    cook(kitchen, out)
    again = plan(kitchen.units, out)
    assert all(each.state.made is not None for each in again)
    assert again[0].state.folder == first.state.folder


@given(last=st.sampled_from(["ingest", "golden", "report"]))
def test_a_stage_ends_the_chain(last: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    units = Kitchen(tmp_path_factory.mktemp("kitchen")).units
    named = [each.name for each in until(units, chosen_stage(last))]
    assert named == (["first"] if last == "ingest" else ["first", "second"])


def test_a_stage_that_is_none() -> None:
    with pytest.raises(UserError, match="ingest, golden"):
        chosen_stage("cooking")
