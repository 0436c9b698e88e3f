"""A golden set in memory: steps can be taken back and taken anew, and their sums balance."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipeline.golden.golden_set import (
    STEPS,
    Check,
    GoldenSet,
    Rejected,
    Step,
    mended,
    natural,
    with_checks,
)
from tests.data_pipeline.golden.sets import failed, golden_set, row

STEP_RUNS = st.lists(
    st.tuples(st.sampled_from(STEPS[2:]), st.integers(0, 2**16)), min_size=1, max_size=6
)


def run(golden: GoldenSet, step: Step, choice: int) -> None:
    """A step that drops, mends and checks rows, as `choice` has it."""
    golden.undo(step)
    came = golden.questions
    golden.questions = []
    for place, each in enumerate(came):
        what = (choice >> 2 * place) % 4
        if what == 0:
            golden.rejected.append(Rejected.of(each, failed(step, f"{step}-check")))
        elif what == 1:
            golden.questions.append(mended(each, step, "mend", answer=f"{step} {choice}"))
        else:
            unsure = Check(f"{step}-unsure", step, None if what == 2 else True, "", "rule")
            golden.questions.append(with_checks(each, [unsure]))
    golden.record(step, came=len(came), settings={"choice": choice})


@settings(max_examples=60)
@given(STEP_RUNS)
def test_a_step_run_again_is_as_if_run_once(runs: list[tuple[Step, int]]) -> None:
    golden = GoldenSet(questions=[row(number) for number in range(8)])
    golden.record("import", came=8, settings={})
    first = copy.deepcopy(golden)
    in_force: list[tuple[Step, int]] = []
    for step, choice in runs:
        run(golden, step, choice)
        # What came later than this step is taken back by it.
        kept = [each for each in in_force if STEPS.index(each[0]) < STEPS.index(step)]
        in_force = [*kept, (step, choice)]
        names = [each.row["id"] for each in golden.rejected]
        assert sorted(names + [each.id for each in golden.questions]) == sorted(
            each.id for each in first.questions
        )
    anew = copy.deepcopy(first)
    for step, choice in in_force:
        run(anew, step, choice)
    golden.sort()
    anew.sort()
    assert golden == anew
    golden.undo("filter")
    assert golden == first


def test_sums_that_do_not_balance_are_our_fault() -> None:
    golden = golden_set(5, dropped=2)
    assert golden.manifest["steps"]["filter"]["sums"] == {
        "in": 5, "kept": 3, "dropped": {"realism": 2}, "mended": {}, "unsure": {},
    }  # fmt: skip
    for came in (4, 6):
        with pytest.raises(AssertionError, match="3 kept and 2 dropped"):
            golden.record("filter", came=came, settings={})


def test_sums_count_mends_and_doubts_of_their_step_alone() -> None:
    golden = golden_set(3)
    doubt = [Check("answerable", "verify", None, "no verdict", "m")]
    golden.questions = [
        with_checks(mended(row(0), "verify", "unambiguous", answer="June"), doubt),
        with_checks(mended(row(1), "filter", "sources", answer="June"), doubt),
        row(2),
    ]
    golden.record("verify", came=3, settings={"model": "m"})
    assert golden.manifest["steps"]["verify"] == {
        "model": "m",
        "sums": {
            "in": 3, "kept": 3, "dropped": {}, "mended": {"unambiguous": 1},
            "unsure": {"answerable": 2},
        },
    }  # fmt: skip


def test_natural_order_of_a_hostile_name() -> None:
    # Python refuses to read so long a number.
    assert natural("9" * 5_000) < natural("1" + "0" * 5_000)
    assert sorted(["q-02", "q-2", "q", "q-10"], key=natural) == ["q", "q-02", "q-2", "q-10"]


@pytest.mark.parametrize("first", ["import", "generate"])
def test_what_a_split_gave_an_imported_set_goes_with_it(first: Step) -> None:
    golden = GoldenSet([row(0)])
    golden.record(first, came=1, settings={})
    golden.record("split", came=1, settings={})
    drawn = {"inboxes": {"ann@test.example": "test"}, "seed": 3}
    golden.manifest |= drawn
    golden.undo("review")
    assert golden.manifest.items() >= drawn.items()
    golden.undo("filter")
    left = {name: value for name, value in golden.manifest.items() if name in drawn}
    assert left == ({} if first == "import" else drawn)
