"""`split`: inboxes into train, validation and test, with no gold mail on both sides.

A model may have learned a mail that is gold in training, or that lies in a training inbox, and
validation chooses the checkpoint. Rows that share gold mail with another split are dropped from
training before validation, and never from test. A mail that a test inbox holds in forwards and
quotes counts as its mail.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words
from art_e.question import SPLITS, Question, Split
from data_pipeline.golden.golden_set import PASSED, Check, GoldenSet, Outcome, natural, with_checks
from data_pipeline.golden.inboxes import OWN_MAIL, Counts, address_of, cited_mails, draw

_HOLDERS = """
SELECT lower(hex(content_digest)) AS content, 'in the test inbox ' || min(address)
FROM emails JOIN parties USING (email_id) JOIN addresses USING (address_id)
WHERE content IN (SELECT unnest(?::VARCHAR[])) AND address IN (SELECT unnest(?::VARCHAR[]))
GROUP BY content
"""
_SHINGLE_WORDS = 5
Contents = Mapping[str, str]  # what is to be said of mails, by digest of their content
# Of a mail's shingles (runs of words): a mail of which a test inbox holds more is dropped.
MOST_CONTAINED = 0.8


def split(file: InboxFile, golden: GoldenSet, *, seed: int, wanted: Counts) -> None:
    """Give every row the split of its inbox, and drop rows that share gold mail with another split.

    Inboxes keep the splits that `generate` drew, or those of the rows if each inbox has one and
    there are several. Otherwise `seed` draws them in the proportions `wanted`; a single inbox goes
    to test. Raises `UserError` if there is no row, or no proportion is above zero.
    """
    if not golden.questions:
        raise UserError("no rows to split; art-e golden stats shows what dropped them")
    origin, inboxes = _inboxes(golden, seed, wanted)
    placed = [replace(each, split=inboxes[address_of(each)]) for each in golden.questions]
    cited = cited_mails(file, placed)
    # The contents of gold mails with the cited id, by question.
    gold = {
        each.id: {content: name for name, it in cited[each.id].items() for content in it.contents}
        for each in placed
    }
    learned = sorted({mail for each in placed if each.split != "test" for mail in gold[each.id]})
    tested = sorted(address for address, name in inboxes.items() if name == "test")
    held = dict(file.execute(_HOLDERS, [learned, tested]).fetchall())
    quoted = _contained(file, learned, tested)
    rows = list(_without_leaks(placed, gold, held, quoted))
    settings: dict[str, Any] = {
        "splits_from": origin,
        "inboxes": {name: list(inboxes.values()).count(name) for name in SPLITS},
        "contained": {"gold_mails": len(learned), "contained": len(quoted)},
    }
    if origin == "seed":
        settings |= {"seed": seed, "proportions": wanted._asdict()}
    golden.finish("split", rows, settings)


def _contained(file: InboxFile, contents: list[str], tested: Sequence[str]) -> dict[str, str]:
    """Where each content stands that mail of a test inbox holds to `MOST_CONTAINED` or more."""
    bodies = file.execute(
        "SELECT lower(hex(content_digest)) AS content, any_value(body) FROM emails"
        " WHERE content IN (SELECT unnest(?::VARCHAR[])) GROUP BY content ORDER BY content",
        [contents],
    ).fetchall()
    wanted = {content: own for content, body in bodies if (own := _shingles(body))}
    known = set[int]().union(*wanted.values())
    found: dict[str, str] = {}
    for address in tested:
        held: set[int] = set()
        mails = file.execute(f"SELECT body {OWN_MAIL}", [address])
        while chunk := mails.fetchmany(1_000):
            held.update(*(_shingles(body) & known for (body,) in chunk))
        for content, own in wanted.items():
            share = len(own & held) / len(own)
            if share >= MOST_CONTAINED:
                found.setdefault(content, f"to {share:.0%} in mail of the test inbox {address}")
    return found


def _shingles(body: str) -> set[int]:
    """Hashes of all runs of `_SHINGLE_WORDS` words."""
    found = words(body)
    runs = zip(*(found[start:] for start in range(_SHINGLE_WORDS)), strict=False)
    return set(map(hash, runs))


def _inboxes(golden: GoldenSet, seed: int, wanted: Counts) -> tuple[str, dict[str, Split]]:
    used = sorted({address_of(each) for each in golden.questions})
    if "generate" in golden.manifest["steps"]:
        generated: dict[str, Split] = golden.manifest["steps"]["generate"]["splits"]
        return "generate", generated
    carried = {(address_of(each), each.split) for each in golden.questions}
    own = {inbox: name for inbox, name in carried if name is not None}
    if len(carried) == len(own) == len(used) and len(set(own.values())) > 1:
        return "rows", own
    return "seed", draw(used, seed, wanted)


def _without_leaks(
    questions: list[Question], gold: Mapping[str, Contents], held: Contents, quoted: Contents
) -> Iterator[Outcome]:
    """The questions with their checks, and for those that share gold mail the failed check."""
    # The first row of an earlier split for which each content is gold.
    taken: dict[str, str] = {}
    for name in ("test", "validation", "train"):
        new: dict[str, str] = {}
        rows = [each for each in questions if each.split == name]
        for question in sorted(rows, key=lambda each: natural(each.id)):
            places: dict[str, Contents] = {"shared-gold": taken}
            if name != "test":
                places = {"leak-test-inbox": held, "contained": quoted, **places}
            checks = [_checked(check, gold[question.id], each) for check, each in places.items()]
            fault = next((check for check in checks if not check.passed), None)
            yield (question, fault) if fault else (with_checks(question, checks), None)
            if fault is None:
                for content in gold[question.id]:
                    new.setdefault(content, f"gold of {name} question {question.id} too")
        taken = new | taken


def _checked(name: str, gold: Contents, places: Contents) -> Check:
    for content, cited in gold.items():
        if content in places:
            reason = " ".join(f"gold mail {cited} is {places[content]}".split())
            return Check(name, "split", False, reason, "rule")
    return Check(name, "split", True, PASSED, "rule")
