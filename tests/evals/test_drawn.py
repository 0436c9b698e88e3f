"""`--limit`: a sample over inboxes and kinds, always the same, that grows by adding to itself."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from art_e.question import KINDS, Question
from evals.benchmark import drawn

rows = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([*KINDS, None])), max_size=60)


def made(listed: list[tuple[int, object]]) -> list[Question]:
    return [
        Question(f"q{number}", "Who?", f"p{inbox}@x.example", kind=kind)  # type: ignore[arg-type]
        for number, (inbox, kind) in enumerate(listed)
    ]


@given(rows, st.integers(1, 70), st.randoms(use_true_random=False))
def test_it_is_a_part_of_the_questions_in_their_order(
    listed: list[tuple[int, object]], count: int, rng: Random
) -> None:
    asked = made(listed)
    chosen = drawn(asked, count)
    assert len(chosen) == min(count, len(asked))
    assert chosen == [each for each in asked if each in chosen]
    # The order of the file has no say, and a larger sample holds the smaller.
    shuffled = list(asked)
    rng.shuffle(shuffled)
    assert {each.id for each in drawn(shuffled, count)} == {each.id for each in chosen}
    assert {each.id for each in chosen} <= {each.id for each in drawn(asked, count + 3)}


@given(rows.filter(bool), st.integers(1, 70))
def test_every_inbox_has_its_share(listed: list[tuple[int, object]], count: int) -> None:
    asked = made(listed)
    chosen = Counter(each.inbox_address for each in drawn(asked, count))
    share = min(1.0, count / len(asked))
    for inbox, size in Counter(each.inbox_address for each in asked).items():
        # A systematic sample misses a stratum's share by less than its rounding and the others'.
        assert abs(chosen[inbox] - share * size) < 3


def test_one_inbox_first_in_the_file_is_not_all_that_is_asked() -> None:
    asked = made([(inbox, kind) for inbox in range(5) for kind in KINDS for _ in range(10)])
    chosen = drawn(asked, 50)
    assert set(Counter(each.inbox_address for each in chosen).values()) == {10}
    by_kind = Counter(each.kind for each in chosen)
    assert set(by_kind) == set(KINDS)
    assert max(by_kind.values()) <= 2 * min(by_kind.values())
