"""The mail in memory: the same answers before and after it is read, and a bound on it."""

import datetime as dt

import pytest

from art_e.inbox import file as inbox_file
from art_e.inbox.file import InboxFile
from tests.builders import material, random_query
from tests.builders import run_queries as run


def test_the_first_search_gives_what_later_ones_give(world: InboxFile) -> None:
    import random

    made_of = material(world)
    address = world.inboxes(limit=1)[0].address
    rng = random.Random(7)
    for _ in range(12):
        query = random_query(rng, made_of)
        with InboxFile(world.path) as fresh:
            inbox = fresh.open_inbox(address)
            first = run(inbox, query)
            assert [run(inbox, query) for _ in range(3)] == [first] * 3


def test_inboxes_of_other_days_share_the_mail(world: InboxFile) -> None:
    with InboxFile(world.path) as file:
        address = file.inboxes(limit=1)[0].address
        whole = file.open_inbox(address)
        held = file.cached_bytes
        early = file.open_inbox(address, dt.date(2019, 6, 1))
        assert file.cached_bytes == held
        assert 0 < len(early) < len(whole)


def test_mail_in_memory_is_bounded(world: InboxFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with InboxFile(world.path) as file:
        addresses = [each.address for each in file.inboxes(limit=6)]
        inboxes = [file.open_inbox(address) for address in addresses]
        for inbox in inboxes:
            inbox.search(["the"])
            inbox.search(["the"])
        everything = file.cached_bytes
        monkeypatch.setattr(inbox_file, "CACHE_BYTES", everything // 2)
        file.open_inbox(addresses[-1])
        assert file.cached_bytes <= everything // 2
        # What was let go is still whole for those who have it open.
        assert inboxes[0].search([]) == file.open_inbox(addresses[0]).search([])
