"""Many at once: processes and threads find what one finds, and a replaced file stays whole."""

import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from tests.builders import make_inbox, material, raw, seeded_answers, seeded_answers_of

QUERIES = 200
THREADS = 8
PROCESSES = 4


@pytest.fixture(scope="module")
def expected(world: InboxFile) -> list[str]:
    """What one thread of one process finds."""
    return seeded_answers(world, 7, QUERIES)


def in_threads(work: Callable[[], list[str]]) -> list[list[str]]:
    """What each of eight threads gets that start together."""
    barrier = threading.Barrier(THREADS)

    def start_together() -> list[str]:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(THREADS) as pool:
        return [future.result() for future in [pool.submit(start_together) for _ in range(THREADS)]]


def test_four_processes_find_what_one_finds(world_db: Path, expected: list[str]) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        futures = [pool.submit(seeded_answers_of, world_db, 7, QUERIES) for _ in range(PROCESSES)]
        answers = [future.result() for future in futures]
    assert [each == expected for each in answers] == [True] * PROCESSES


def test_eight_threads_may_share_an_inbox(world: InboxFile) -> None:
    made_of = material(world)
    address = made_of.addresses[0]

    def search(words: list[str]) -> list[str]:
        return [repr(shared.search(words[n : n + 3])) for n in range(QUERIES // 2)]

    shared = world.open_inbox(address)
    one = search(made_of.words)
    # Opened anew: all its caches are filled by eight threads at once.
    shared = world.open_inbox(address)
    answers = in_threads(lambda: search(made_of.words))
    assert [each == one for each in answers] == [True] * THREADS


def test_a_reader_goes_on_with_the_file_that_it_opened(tmp_path: Path) -> None:
    db = tmp_path / "inbox.duckdb"
    old_mails = [raw(f"<old{n}@t>", subject=f"Barley {n}") for n in range(50)]
    make_inbox(db, old_mails)
    with InboxFile(db) as old:
        inbox = old.open_inbox("bob@test.example")
        before = inbox.search(["barley"])
        make_inbox(db, [raw(f"<new{n}@t>", subject=f"Oats {n}") for n in range(50)])
        assert inbox.search(["barley"]) == before
        assert inbox.search(["oats"]) == []
        assert inbox.read("<old7@t>") is not None
        assert old.open_inbox("bob@test.example").search(["barley"]) == before
        # Who opens the path now gets the new file, though the old is open in this process.
        with InboxFile(db) as new:
            assert len(new.open_inbox("bob@test.example").search(["oats"])) == 10
            assert new.open_inbox("bob@test.example").search(["barley"]) == []
