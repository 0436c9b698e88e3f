"""`verify --model offline`: word overlap drops nothing, and raises few false alarms."""

from collections import Counter

from art_e.inbox.file import InboxFile
from data_pipeline.golden.golden_set import GoldenSet, checks_of
from data_pipeline.golden.offline_reader import WordChecks
from data_pipeline.golden.verify import verify
from data_pipeline.synthetic.world import WorldConfig, questions


def test_on_the_synthetic_world_nothing_is_dropped_and_little_suspected(world: InboxFile) -> None:
    rows = questions(WorldConfig(size=1000))
    golden = GoldenSet(list(rows))
    verify(world, golden, WordChecks())
    assert golden.rejected == []
    assert len(golden.questions) == len(rows)
    step = golden.manifest["steps"]["verify"]
    assert (step["model"], step["unchecked"]) == ("offline", {})
    # All rows are right, so these alarms are false.
    unsure = Counter(
        name
        for each in golden.questions
        for name, check in checks_of(each).items()
        if not check.passed
    )
    answerable = sum(each.answerable is True for each in rows)
    assert unsure["answerable"] <= 0.04 * answerable
    assert unsure["unambiguous"] <= 0.02 * answerable
    assert unsure["unanswerable"] <= 0.2 * (len(rows) - answerable)
    assert step["sums"]["unsure"] == dict(unsure)
