"""The chain of commands against the scripted provider: killed and whole.

`generate` and `verify` are killed with SIGKILL when the provider's n-th request comes. Run again,
the set is the same, and no answer is asked for twice."""

import json
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from art_e.inbox.file import InboxFile
from bench.golden_faults import made, table
from tests.builders import tries
from tests.golden import Chain, Player, set_files
from tests.processes import Killing
from tests.provider import Provider


def asked(provider: Provider) -> Counter[str]:
    return Counter(json.dumps(each.body, sort_keys=True) for each in provider.requests)


class Whole(NamedTuple):
    """A step that nobody killed: the set's folder before it, its files after it, the requests."""

    before: Path
    files: dict[str, bytes]
    asked: Counter[str]


@pytest.fixture(scope="module")
def inboxes(world: InboxFile) -> list[str]:
    return [each.address for each in world.inboxes(2)]


@pytest.fixture(scope="module")
def whole(
    inboxes: list[str], world_db: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Whole]:
    """By step."""
    chain = Chain(world_db, inboxes, 2, tmp_path_factory.mktemp("whole"))
    steps: dict[str, Whole] = {}
    for step in ("generate", "verify"):
        before = chain.folder / step
        with Provider(Player()) as provider:
            if step == "verify":
                chain.done(provider, "filter")
                shutil.copytree(chain.set, before)
            chain.done(provider, step, "--concurrency", 1)
        steps[step] = Whole(before, set_files(chain.set), asked(provider))
    return steps


# The step, how far into its requests, and how many at once.
KILLS = [("verify", 0.5, 4)]
KILLS += [
    (("generate", "verify")[seed % 2], Random(seed).random(), seed % 3 + 1)
    for seed in range(tries(0, 17))
]


@pytest.mark.fire
@pytest.mark.parametrize("kill", KILLS)
def test_killed_and_run_again_the_set_is_the_same(
    kill: tuple[str, float, int], inboxes: list[str], world_db: Path, whole: dict[str, Whole],
    tmp_path: Path,
) -> None:  # fmt: skip
    step, into, at_once = kill
    chain, undisturbed = Chain(world_db, inboxes, 2, tmp_path), whole[step]
    if step == "verify":
        shutil.copytree(undisturbed.before, chain.set)
    before = set_files(chain.set)
    killing = Killing(Player(), round(into * (undisturbed.asked.total() - 1)))
    with Provider(killing) as provider:
        chain.killed(killing, provider, step, "--concurrency", at_once)
        # Replies are kept as they come; the set is as it was.
        assert set_files(chain.set) == before
        chain.done(provider, step, "--concurrency", at_once)
    assert set_files(chain.set) == undisturbed.files
    assert asked(provider).keys() == undisturbed.asked.keys()
    # The one that killed it has no answer, and others under way are answered to a dead process.
    assert (asked(provider) - undisturbed.asked).total() <= at_once


@pytest.mark.long
def test_faults_in_a_synthetic_world_as_documented(tmp_path: Path) -> None:
    found = made(tmp_path)
    page = (Path(__file__).parents[3] / "docs/journal/2026-11-28-golden-set.md").read_text("utf-8")
    assert table(found) in page
    assert f"{found.wrongly.total()} of {found.honest} honest" in page
