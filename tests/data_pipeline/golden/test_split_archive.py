"""The split of thousands of rows over real mail and over a synthetic world, checked by SQL.

Set ART_E_REAL_DATA to a folder with `enron-maildir.tar.xz` for the real part.
"""

import copy
import filecmp
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from art_e.inbox.file import InboxFile
from art_e.question import Question
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.split import split
from tests.conftest import RealInbox
from tests.data_pipeline.golden.leaking import leaks

ROWS, INBOXES = 2_000, 28
IDS = """
SELECT DISTINCT message_id FROM parties JOIN addresses USING (address_id) JOIN (
    SELECT message_id, email_id FROM emails UNION SELECT message_id, email_id FROM aliases
) USING (email_id)
WHERE address = ? ORDER BY message_id
"""


def made_up(file: InboxFile, rows: int) -> GoldenSet:
    """Questions on mails drawn from the largest inboxes, cited by ids of dropped copies too."""
    draws = Random("made up")
    inboxes = [each.address for each in file.inboxes(INBOXES)]
    ids = {each: [name for (name,) in file.execute(IDS, [each]).fetchall()] for each in inboxes}
    asked = [
        Question(
            f"q-{number}",
            f"What is number {number}?",
            inbox := draws.choice(inboxes),
            answer="42",
            message_ids=tuple(draws.sample(ids[inbox], draws.choice([1, 1, 1, 2, 3]))),
        )
        for number in range(rows)
    ]
    golden = GoldenSet(asked)
    golden.record("import", rows, {})
    return golden


def check(db: Path, golden: GoldenSet, tmp_path: Path) -> Counter[str]:
    """Split the set; what was dropped, by check."""
    before = [copy.deepcopy(golden) for _ in range(3)]
    seeds = (0, 0, 1)
    with InboxFile(db) as file:
        for number, (each, seed) in enumerate(zip(before, seeds, strict=True)):
            split(file, each, seed=seed)
            each.save(tmp_path / str(number))
    kept, inboxes = before[0].questions, before[0].manifest["inboxes"]
    assert leaks(db, kept, inboxes) == (set(), set())
    assert {each.split for each in kept} == {"train", "validation", "test"}
    names = [each.name for each in (tmp_path / "0").iterdir() if each.is_file()]
    same, *different = filecmp.cmpfiles(tmp_path / "0", tmp_path / "1", names, shallow=False)
    assert sorted(same) == sorted(names)
    assert not any(different)
    assert before[2].manifest["inboxes"] != inboxes
    # Before, there were leaks to be found, by the query as by the step.
    whole: Sequence[Question] = [
        *kept, *(row for each in before[0].rejected if (row := each.question) is not None)
    ]  # fmt: skip
    assert len(whole) == len(golden.questions)
    found = leaks(db, whole, inboxes)
    dropped = {each.row["id"]: each.check for each in before[0].rejected}
    assert {name for name, of in dropped.items() if of == "leak-test-inbox"} == found.in_test_inbox
    assert dropped.keys() - found.in_test_inbox <= found.shared
    return Counter(dropped.values())


def test_real_mail(real_inbox: RealInbox, tmp_path: Path) -> None:
    with InboxFile(real_inbox.db) as file:
        golden = made_up(file, ROWS)
    dropped = check(real_inbox.db, golden, tmp_path)
    assert dropped["leak-test-inbox"] > 100
    assert dropped["shared-gold"] > 0


def test_a_world(world_db: Path, world: InboxFile, tmp_path: Path) -> None:
    dropped = check(world_db, made_up(world, 600), tmp_path)
    assert dropped["leak-test-inbox"] > 10
