"""Threads told by subjects."""

import datetime as dt

import pytest

from data_pipeline.golden.inboxes import LONGEST_GAP, Mail, plain_subject, threads_of

START = dt.datetime(2001, 1, 1)
PREFIXES = ("", "Re: ", "RE:", "Fw: ", "FWD: ", "re: fw: Re[2]: ", "AW: ")


def mails(*subjects_and_days: tuple[str, int]) -> list[Mail]:
    ordered = sorted(subjects_and_days, key=lambda each: each[1])
    return [
        Mail(number, f"<{number}@test>", START + dt.timedelta(days=day), subject, bytes([number]))
        for number, (subject, day) in enumerate(ordered)
    ]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_prefixes_and_spaces_do_not_count(prefix: str) -> None:
    assert plain_subject(f"{prefix}The  Lease ") == "the lease"


@pytest.mark.parametrize("subject", ["Report: Q3", "Rehearsal", "Forward: march", "res: 3"])
def test_what_is_no_prefix_stays(subject: str) -> None:
    assert plain_subject(subject) == subject.lower()


def test_a_thread_ends_where_nothing_is_said_for_long() -> None:
    gap = LONGEST_GAP.days
    found = threads_of(
        mails(("Lease", 0), ("Re: lease", gap), ("RE: Lease", 2 * gap), ("lease", 3 * gap + 1))
    )
    assert [len(thread) for thread in found] == [3, 1]


def test_mails_without_a_subject_are_no_thread() -> None:
    assert [len(thread) for thread in threads_of(mails(("", 0), ("Re: ", 1), ("FW:", 2)))] == [
        1
    ] * 3
