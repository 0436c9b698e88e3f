"""The chain of commands against the scripted provider: killed and whole.

`generate` and `verify` are killed with SIGKILL when the provider's n-th request comes. Run again,
the set is the same, and no answer is asked for twice. Of mail with planted faults every item that
the generator wrote must end where `bench.golden_faults.FATE` says, and be counted once.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from art_e.inbox.file import InboxFile
from bench.golden_faults import BATCHES, HONEST, MISSED, PLAN, Measured, made, measured, table
from tests.builders import tries
from tests.conftest import RealInbox
from tests.golden import Chain, Player, set_files
from tests.processes import Killing
from tests.provider import Provider, Reply, Request


class Counting(Player):
    """Plays all models; counts the requests by their content."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()

    def __call__(self, request: Request) -> Reply:
        self.answered[json.dumps(request.body, sort_keys=True)] += 1
        return super().__call__(request)


class Whole(NamedTuple):
    """A chain that nobody killed: by step, the set's files after it and what was answered."""

    files: dict[str, dict[str, bytes]]
    answered: dict[str, Counter[str]]
    # The set's folder as it is before `verify`.
    filtered: Path


# A chain in a folder.
Make = Callable[[Path], Chain]


@pytest.fixture(scope="module")
def make(world_db: Path, world: InboxFile) -> Make:
    inboxes = [each.address for each in world.inboxes(2)]
    return lambda folder: Chain(world_db, inboxes, 2, folder)


@pytest.fixture(scope="module")
def whole(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    chain = make(tmp_path_factory.mktemp("whole"))
    filtered = chain.folder / "filtered"
    files: dict[str, dict[str, bytes]] = {}
    answered: dict[str, Counter[str]] = {}
    for step in ("generate", "verify"):
        rule = Counting()
        with Provider(rule) as provider:
            if step == "verify":
                chain.done(provider, "filter")
                shutil.copytree(chain.set, filtered)
            chain.done(provider, step, "--concurrency", 1)
        files[step], answered[step] = set_files(chain.set), rule.answered
    return Whole(files, answered, filtered)


# The step, how far into its requests, and how many at once.
@pytest.mark.parametrize(
    ("step", "into", "at_once"),
    [
        ("generate", 1.0, 1),
        ("verify", 0.5, 4),
        *(
            pytest.param(
                ("generate", "verify")[seed % 2],
                Random(seed).random(),
                seed % 3 + 1,
                marks=pytest.mark.fire,
            )
            for seed in range(tries(0, 16))
        ),
    ],
)
def test_killed_and_run_again_the_set_is_the_same(
    make: Make, whole: Whole, tmp_path: Path, step: str, into: float, at_once: int
) -> None:
    chain = make(tmp_path)
    if step == "verify":
        shutil.copytree(whole.filtered, chain.set)
    before = set_files(chain.set)
    rule = Counting()
    killing = Killing(rule, round(into * (whole.answered[step].total() - 1)))
    options = ("--concurrency", at_once)
    with Provider(killing) as provider:
        chain.killed(killing, provider, step, *options)
        # Replies are kept as they come; the set is as it was.
        assert set_files(chain.set) == before
        chain.done(provider, step, *options)
    assert set_files(chain.set) == whole.files[step]
    # Of those that were under way together some were answered to a dead process.
    assert rule.answered.keys() == whole.answered[step].keys()
    assert (rule.answered - whole.answered[step]).total() < at_once


# Of honest questions. Mail repeats itself: another one may answer them otherwise.
WRONGLY_DROPPED = 0.1
# Of the faults of each kind. A search may miss the mail that has another answer.
CAUGHT = 0.5
MAY_DIFFER = (*HONEST, *MISSED, "repeated", "reworded", "superseded")


def check_faults(found: Measured) -> None:
    """Every kind was planted, and caught by its check; rules caught all."""
    kinds = {each.kind for each in found.lines if each.wanted}
    assert len(kinds) >= 25
    for each in found.lines:
        assert each.planted, each.kind
        searched = each.wanted is not None and each.wanted.step == "verify"
        may_differ = searched or each.kind in MAY_DIFFER
        assert each.right >= (CAUGHT if may_differ else 1) * each.planted, each
    assert found.wrongly.total() <= WRONGLY_DROPPED * found.honest
    # Rules never drop an honest row; it may ask what another one does.
    assert found.wrongly.keys() <= {"unambiguous", "duplicate", "leak-test-inbox", "contained"}


def test_faults_in_a_synthetic_world_as_documented(tmp_path: Path) -> None:
    found = made(tmp_path)
    check_faults(found)
    page = (Path(__file__).parents[3] / "docs/golden.md").read_text("utf-8")
    assert table(found) in page
    assert f"{found.wrongly.total()} of {found.honest} honest" in page


@pytest.mark.fire
def test_faults_in_real_mail(real_inbox: RealInbox, tmp_path: Path) -> None:
    inboxes = ["tim.belden@enron.com", "jeff.dasovich@enron.com"]
    chain = Chain(real_inbox.db, inboxes, BATCHES, tmp_path, len(PLAN))
    check_faults(measured(chain, tmp_path))
