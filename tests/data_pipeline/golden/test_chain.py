"""The whole chain by the command line against the scripted provider, on mail with planted faults.

Every item that the generator wrote must end where `tests.golden.FATE` says, and be counted once.
"""

from collections import Counter
from pathlib import Path

from art_e.inbox.file import InboxFile
from data_pipeline.golden.golden_set import GoldenSet
from tests.conftest import RealInbox
from tests.golden import FATE, Chain, Fate, Player, fault_of
from tests.provider import Provider

STEPS = ("generate", "filter", "verify", "split")


def check_fates_and_sums(chain: Chain) -> None:
    planned = chain.planned()
    with Provider(Player()) as provider:
        sums = {step: chain.done(provider, step) for step in STEPS}
    golden = GoldenSet.load(chain.set)
    faults = {
        f"{batch}-q{number}": fault_of(number)
        for batch, items in planned.items()
        for number in range(1, len(items) + 1)
    }
    assert set(faults.values()) == FATE.keys()
    kept: dict[str, Fate | None] = {each.id: None for each in golden.questions}
    dropped = {str(each.row["id"]): Fate(each.step, each.check) for each in golden.rejected}
    assert not kept.keys() & dropped.keys()
    assert (len(kept), len(dropped)) == (len(golden.questions), len(golden.rejected))
    assert kept | dropped == {name: FATE[fault] for name, fault in faults.items()}
    left = len(faults)
    for step in STEPS:
        assert sums[step] == golden.manifest["steps"][step]["sums"]
        assert sums[step]["in"] == left
        assert sums[step]["dropped"] == Counter(
            each.check for each in dropped.values() if each.step == step
        )
        left -= sum(sums[step]["dropped"].values())
        assert sums[step]["kept"] == left
    assert left == len(golden.questions)
    assert sums["verify"]["mended"]["unambiguous"] > 0


def test_faults_in_a_synthetic_world(world_db: Path, tmp_path: Path) -> None:
    with InboxFile(world_db) as file:
        inboxes = [each.address for each in file.inboxes(2)]
    check_fates_and_sums(Chain(world_db, inboxes, 5, tmp_path))


def test_faults_in_real_mail(real_inbox: RealInbox, tmp_path: Path) -> None:
    inboxes = ["tim.belden@enron.com", "jeff.dasovich@enron.com"]
    check_fates_and_sums(Chain(real_inbox.db, inboxes, 5, tmp_path))
