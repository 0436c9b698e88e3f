"""What is asked in training: questions of one split, and the inbox file that they are about.

Synthetic worlds are made when they are first asked for, and kept in `ART_E_HOME`, named by
all that decides their content. Knows nothing of models and tokens.
"""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from art_e.episode import Episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.schema import SCHEMA_VERSION
from art_e.question import Question, Split, load_questions
from art_e.storage import default_db, default_golden, home, locked
from art_e.text import digest
from data_pipeline.ingest.batch import Rules
from data_pipeline.ingest.build import Source, ingest
from data_pipeline.synthetic.plan import Planted
from data_pipeline.synthetic.world import WorldConfig, ledger, messages
from evals.benchmark import check_questions
from training.recipe import Data, EpisodeForm, Worlds


@dataclass(frozen=True, slots=True)
class Material:
    """The questions of a split. `planted` has what the world knows of each, by its id; it is
    empty where they are not synthetic."""

    inbox_file: InboxFile
    questions: list[Question]
    planted: Mapping[str, Planted]

    def episode(self, question: Question, form: EpisodeForm) -> Episode:
        """A new episode about the question."""
        inbox = self.inbox_file.open_inbox(question.inbox_address, question.query_date)
        return Episode(
            inbox,
            question,
            max_turns=form.max_turns,
            view=form.view,
            system_prompt=form.prompt,
        )


def load_material(data: Data, split: Split) -> Material:
    """The questions of `split`, which is also what each of them says.

    Raises `UserError` where there are none, and where the inbox file does not fit them.
    """
    if data.worlds is not None and data.has_worlds(split):
        planted = {each.question.id: each for each in _planted(data.worlds, split)}
        asked = [each.question for each in planted.values()]
        file = InboxFile(_world_file(data.worlds, split))
    else:
        asked = load_questions(data.questions or _own_golden(), split)
        file = InboxFile(Path(data.db) if data.db else default_db())
        planted = {}
    kinds = (data.train_kinds if split == "train" else ()) or data.kinds
    chosen = [each for each in asked if not kinds or each.kind in kinds]
    if not chosen:
        raise UserError(f"split {split} has no question of {', '.join(kinds)}")
    if data.unanswerable is not None:
        chosen = _fewer_unanswerable(chosen, data.unanswerable)
    if split == "train" and data.train_questions is not None:
        kept = set(_some((each.id for each in chosen), data.train_questions))
        chosen = [each for each in chosen if each.id in kept]
    check_questions(chosen, file)
    return Material(file, [dataclasses.replace(each, split=split) for each in chosen], planted)


def _own_golden() -> str:
    """The folder of the user's own golden set. Raises `UserError` where there is none yet."""
    folder = default_golden()
    if not folder.is_dir():
        raise UserError(
            f"there is no golden set at {folder}: art-e golden import FILE|HUB-ID and art-e golden"
            " split make one; or name one with --set data.questions=..."
        )
    return str(folder)


def _some(ids: Iterable[str], number: int) -> list[str]:
    """`number` of the ids, or all if there are fewer; always the same, whatever the seed."""
    ordered = sorted(ids)
    Random("some").shuffle(ordered)
    return ordered[:number]


def _fewer_unanswerable(questions: Sequence[Question], share: float) -> list[Question]:
    """The questions in their order, without so many unanswerable ones that more than `share` of
    them are; always the same, whatever the seed. Where nothing is answerable all are kept."""
    answerable = sum(1 for each in questions if each.answerable)
    unanswerable = [each.id for each in questions if not each.answerable]
    most = int(answerable * share / (1 - share))
    if not answerable or len(unanswerable) <= most:
        return list(questions)
    kept = set(Random("unanswerable").sample(unanswerable, most))
    return [each for each in questions if each.answerable or each.id in kept]


def load_strangers(data: Data) -> Material | None:
    """The test's questions about names of which training has none; None where there are none."""
    worlds = data.worlds
    if worlds is None or worlds.strangers is None:
        return None
    known = {name for each in _planted(worlds, "train") for name in _names(each)}
    apart = worlds.model_copy(update={"test": worlds.strangers, "names": None})
    theirs = {"worlds": apart, "questions": None, "db": None}
    told = load_material(data.model_copy(update=theirs), "test")
    chosen = [each for each in told.questions if not _names(told.planted[each.id]) & known]
    return Material(told.inbox_file, chosen, told.planted) if chosen else None


def _names(planted: Planted) -> set[str]:
    """The words of the names that a question is about."""
    return {word for subject in planted.subjects for word in subject.split()}


def _configs(worlds: Worlds, split: Split) -> list[WorldConfig]:
    first, end = getattr(worlds, split)
    return [
        WorldConfig(worlds.size, seed, worlds.short, worlds.vocabulary, worlds.names)
        for seed in range(first, end)
    ]


@functools.cache
def _planted(worlds: Worlds, split: Split) -> list[Planted]:
    """What the worlds of a split know. A run asks twice for what training knows, which takes
    some tenth of a second a world."""
    return [each for config in _configs(worlds, split) for each in ledger(config)]


def _world_file(worlds: Worlds, split: Split) -> Path:
    """The inbox file of the split's worlds; ingest moves it into place when it is whole."""
    configs = _configs(worlds, split)
    # A file of an earlier schema can't be opened any more.
    name = digest(json.dumps([SCHEMA_VERSION, *map(dataclasses.astuple, configs)]))
    path = home() / "worlds" / f"{name}.duckdb"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Runs that begin at the same time need the same file: one makes it, the others wait.
    with locked(path.with_name(f"{path.name}.making")):
        if not path.exists():
            ingest([Source(messages(each), Rules()) for each in configs], path)
    return path
