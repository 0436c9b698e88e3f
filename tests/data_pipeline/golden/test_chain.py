"""The chain of commands against a scripted provider, with and without kills.

`generate` and `verify` are killed with SIGKILL at the provider's n-th request. A rerun gives the
same set, and no request is repeated."""

import json
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from art_e.inbox.file import InboxFile
from bench.golden_faults import measure_world, table
from tests.builders import tries
from tests.golden import Chain, Player, set_files
from tests.processes import Killing
from tests.provider import Provider


def requests_of(provider: Provider) -> Counter[str]:
    return Counter(json.dumps(each.body, sort_keys=True) for each in provider.requests)


class Whole(NamedTuple):
    """An uninterrupted step: the set's folder before it, its files after it, and its requests."""

    before: Path
    files: dict[str, bytes]
    requests: Counter[str]


@pytest.fixture(scope="module")
def inboxes(world: InboxFile) -> list[str]:
    return [each.address for each in world.inboxes(2)]


@pytest.fixture(scope="module")
def whole(
    inboxes: list[str], world_db: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Whole]:
    """Run each step without a kill."""
    chain = Chain(world_db, inboxes, 2, tmp_path_factory.mktemp("whole"))
    steps: dict[str, Whole] = {}
    for step in ("generate", "verify"):
        before = chain.folder / step
        with Provider(Player()) as provider:
            if step == "verify":
                chain.done(provider, "filter")
                shutil.copytree(chain.set, before)
            chain.done(provider, step, "--concurrency", 1)
        steps[step] = Whole(before, set_files(chain.set), requests_of(provider))
    return steps


# The step, the share of its requests before the kill, and the concurrency.
KILLS = [("verify", 0.5, 4)]
KILLS += [
    (("generate", "verify")[seed % 2], Random(seed).random(), seed % 3 + 1)
    for seed in range(tries(0, 17))
]


@pytest.mark.fire
@pytest.mark.parametrize("kill", KILLS)
def test_a_killed_step_reruns_to_the_same_set(
    kill: tuple[str, float, int], inboxes: list[str], world_db: Path, whole: dict[str, Whole],
    tmp_path: Path,
) -> None:  # fmt: skip
    step, into, at_once = kill
    chain, undisturbed = Chain(world_db, inboxes, 2, tmp_path), whole[step]
    if step == "verify":
        shutil.copytree(undisturbed.before, chain.set)
    before = set_files(chain.set)
    killing = Killing(Player(), round(into * (undisturbed.requests.total() - 1)))
    with Provider(killing) as provider:
        chain.killed(killing, provider, step, "--concurrency", at_once)
        # Replies are cached as they arrive; the set is unchanged.
        assert set_files(chain.set) == before
        chain.done(provider, step, "--concurrency", at_once)
    assert set_files(chain.set) == undisturbed.files
    assert requests_of(provider).keys() == undisturbed.requests.keys()
    # The request at the kill has no answer; others in flight are answered to a dead process.
    assert (requests_of(provider) - undisturbed.requests).total() <= at_once


@pytest.mark.long
def test_the_documented_fault_rates_are_current(tmp_path: Path) -> None:
    faults = measure_world(tmp_path)
    page = (Path(__file__).parents[3] / "docs/journal/2026-11-28-golden-set.md").read_text("utf-8")
    assert table(faults) in page
    assert f"{faults.wrongly.total()} of {faults.honest} honest" in page
