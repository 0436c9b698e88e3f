"""Which planted faults the golden set's steps catch, as a table of docs/golden.md.

    python -m tests.golden_faults

The faults are planted in items and replies of a scripted provider and in the mail of a test inbox;
the models are scripted, so that the table measures the steps and not a model.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.question import Question
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.inboxes import Counts
from data_pipeline.golden.split import split
from data_pipeline.synthetic.world import WorldConfig, messages
from tests.builders import make_inbox, raw
from tests.golden import FATE, HONEST, MISSED, PLAN, Chain, Data, Fate, Player, form_of
from tests.provider import Provider, Reply, Request, says

STEPS = ("generate", "filter", "verify", "split")
BATCHES = 5  # of each of two inboxes, as far as its mail suffices

# ---- Replies of bad form. Each batch gets the next one, then replies are good.

FRAMES = ("JSON in a code fence", "bare list", "60 times as many items", "cut off",
          "prose, then JSON")  # fmt: skip


class Careless(Player):
    """Plays all models; replies about the first of `batches` have one of `FRAMES` each."""

    def __init__(self, batches: Iterable[list[Data]]) -> None:
        self._frames = {
            json.dumps(items): frame for items, frame in zip(batches, FRAMES, strict=False)
        }
        self._asked: Counter[str] = Counter()

    def __call__(self, request: Request) -> Reply:
        reply = super().__call__(request)
        if form_of(request) != "GeneratedItems":
            return reply
        text: str = json.loads(reply.body)["choices"][0]["message"]["content"]
        items = json.loads(text)["items"]
        batch = json.dumps(items)
        frame = self._frames.get(batch, "")
        self._asked[batch] += 1
        shapes = {
            "JSON in a code fence": f"Here they are:\n\n```json\n{text}\n```\nDone.",
            "bare list": batch,
            "60 times as many items": json.dumps({"items": items * 60}),
            "cut off": text[:-20],
            "prose, then JSON": text if self._asked[batch] > 1 else "I would gladly help!",
        }
        return says(shapes.get(frame, text))


# ---- Gold mail of a training inbox that a test inbox holds.

LEAKS = {
    "gold mail quoted in a test inbox": "contained",
    "gold mail forwarded to a test inbox": "contained",
    "gold mail in pieces in a test inbox": "contained",
    "gold mail copied to a test inbox": "leak-test-inbox",
}
ALONE = ("gold mail of the inbox alone", "gold mail half quoted in a test inbox")


def leaking(folder: Path) -> GoldenSet:
    """A split set with a training question for each of `LEAKS` and `ALONE`, by name."""
    ann, bob, cem = "ann@test.example", "bob@test.example", "cem@test.example"
    names = (*LEAKS, *ALONE)
    bodies = {
        name: " ".join(f"{'qfpcah'[place]}{number}" for number in range(40))
        for place, name in enumerate(names)
    }
    quoted, forwarded, pieces, copied, _, half = bodies.values()
    lines = quoted.split()
    seen = [
        "\n".join(f"> {' '.join(lines[at : at + 8])}" for at in range(0, 40, 8)),
        f"Look.\n\n-----Original Message-----\nFrom: Ann\n\n{forwarded.upper()}",
        *pieces.split("p20"),
        half[: len(half) // 2],
    ]
    mails = [
        raw(f"<{place}@test>", body=body, sender=ann, to=bob if body == copied else cem)
        for place, body in enumerate(bodies.values())
    ]
    mails += [
        raw(f"<seen{place}@test>", body=f"Yes. {body}", sender=bob, to="dan@test.example")
        for place, body in enumerate(seen)
    ]
    make_inbox(folder / "inbox.duckdb", mails)
    rows = [
        Question(name, "What?", ann, answer="4", message_ids=(f"<{place}@test>",), split="train")
        for place, name in enumerate(names)
    ]
    rows.append(
        Question("t", "What?", bob, answer="1", message_ids=("<seen0@test>",), split="test")
    )
    golden = GoldenSet(rows)
    golden.record("import", len(rows), {})
    with InboxFile(folder / "inbox.duckdb") as file:
        split(file, golden, seed=0, wanted=Counts())
    return golden


# ---- The table.


class Line(NamedTuple):
    """How many were planted, and how many ended as they should, of faults of one kind."""

    kind: str
    wanted: Fate | None
    planted: int
    right: int
    dropped: Mapping[str, int]


class Measured(NamedTuple):
    """The lines, and how many honest rows were planted and dropped, by check."""

    lines: list[Line]
    honest: int
    wrongly: Counter[str]


def measured(chain: Chain, folder: Path) -> Measured:
    """Run the chain with careless replies, and split the leaking set."""
    planned = chain.planned()
    with Provider(Careless(items for _, items in planned.values())) as provider:
        sums = {step: chain.done(provider, step) for step in STEPS}
    golden = GoldenSet.load(chain.set)
    dropped = {str(each.row["id"]): Fate(each.step, each.check) for each in golden.rejected}
    # Nothing is lost from step to step, or counted twice.
    left = len(dropped) + len(golden.questions)
    for step in STEPS:
        counts = Counter(each.check for each in dropped.values() if each.step == step)
        assert sums[step] == golden.manifest["steps"][step]["sums"]
        assert (sums[step]["in"], sums[step]["dropped"]) == (left, counts)
        left -= counts.total()
    assert left == len(golden.questions) == sums["split"]["kept"]
    assert sums["verify"]["mended"]["unambiguous"] > 0
    faults = {
        name: fault
        for batch, (plan, items) in planned.items()
        for number, (fault, _) in enumerate(zip(plan, items, strict=False), start=1)
        # An item that was cut off is no item.
        for name in [f"{batch}-q{number}"]
        if dropped.get(name) != Fate("generate", "cut-off")
    }
    lines = [
        _line(
            kind,
            FATE.get(kind),
            [dropped.get(name) for name, fault in faults.items() if fault == kind],
        )
        for kind in PLAN
    ]
    batches = {each.id for each in golden.batches}
    for frame in FRAMES:
        used = {str(each.provenance["batch"]) for each in golden.questions}
        lines.append(Line(f"reply: {frame}", None, 1, int(used == batches), {}))
    leaks = folder / "leaks"
    leaks.mkdir()
    split_set = leaking(leaks)
    ended = {str(each.row["id"]): Fate(each.step, each.check) for each in split_set.rejected}
    lines += [_line(kind, Fate("split", check), [ended.get(kind)]) for kind, check in LEAKS.items()]
    lines += [_line(kind, None, [ended.get(kind)]) for kind in ALONE]
    honest = [name for name, fault in faults.items() if fault in HONEST]
    wrongly = Counter(dropped[name].check for name in honest if name in dropped)
    return Measured(lines, len(honest), wrongly)


def _line(kind: str, wanted: Fate | None, ended: list[Fate | None]) -> Line:
    others = Counter(each.check if each else "kept" for each in ended if each != wanted)
    return Line(kind, wanted, len(ended), sum(each == wanted for each in ended), others)


def table(found: Measured) -> str:
    """The lines as a table of Markdown, with the honest rows that each check dropped."""
    rows = ["| planted | caught by | planted | caught | otherwise |", "|---|---|---|---|---|"]
    for each in found.lines:
        kept = "kept, as it should be" if each.kind in (*HONEST, *ALONE) else "used or mended"
        by = f"{each.wanted.step}: {each.wanted.check}" if each.wanted else kept
        by = "nothing: a miss" if each.kind in MISSED else by
        right = 0 if each.kind in MISSED else each.right
        others = ", ".join(f"{check} {count}" for check, count in sorted(each.dropped.items()))
        rows.append(f"| {each.kind} | {by} | {each.planted} | {right} | {others} |")
    return "\n".join(rows)


def made(folder: Path) -> Measured:
    """The table's figures on a synthetic world of 1,000 mails."""
    db = folder / "world.duckdb"
    make_inbox(db, messages(WorldConfig(size=1000)))
    with InboxFile(db) as file:
        inboxes = [each.address for each in file.inboxes(2)]
    return measured(Chain(db, inboxes, BATCHES, folder), folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        found = made(Path(name))
    print(table(found))
    wrongly = ", ".join(f"{check} {count}" for check, count in sorted(found.wrongly.items()))
    print(f"\n{found.wrongly.total()} of {found.honest} honest rows dropped: {wrongly or 'none'}")
