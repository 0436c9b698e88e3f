"""The questions of training, and the inbox files that they are about.

Synthetic worlds are made when first needed, and kept in `ART_E_HOME`, named by all that decides
their content.
"""

import dataclasses
import functools
import json
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from random import Random

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import Question, Split, load_questions
from art_e.storage import default_golden
from data_pipeline.ingest.build import made_up_file
from data_pipeline.synthetic.stage import Planted
from data_pipeline.synthetic.world import WorldConfig, ledger, messages
from evals.scored import check_questions
from training.recipe import Data, Worlds
from training.rollout import Material

# The seed of the names that all worlds share.
NAMES = 0


def load_material(data: Data, split: Split) -> Material:
    """The questions of `split`, each marked with it. Raises `UserError` without questions, or if
    the inbox file does not fit them."""
    if data.worlds is not None and data.has_worlds(split):
        file = InboxFile(_world_file(data.worlds, split))
        questions = [each.question for each in _planted(data.worlds, split)]
    else:
        file = InboxFile(data.inbox_file)
        golden = data.questions or str(default_golden())
        if data.questions is None and not default_golden().is_dir():
            raise UserError(
                f"there is no golden set at {golden}: art-e golden import FILE|HUB-ID and art-e"
                " golden split make one; or name one with --set data.questions=..."
            )
        questions = load_questions(golden, split)
        check_questions(questions, file)
    file_of = {each.id: file for each in questions}
    chosen = [each for each in questions if not data.kinds or each.kind in data.kinds]
    if not chosen:
        raise UserError(f"split {split} has no question of {', '.join(data.kinds)}")
    if data.unanswerable is not None:
        chosen = _fewer_unanswerable(chosen, data.unanswerable)
    if split == "train" and data.train_questions is not None:
        ids = sorted(each.id for each in chosen)
        Random("some").shuffle(ids)
        kept = set(ids[: data.train_questions])
        chosen = [each for each in chosen if each.id in kept]
    return Material(file_of, [dataclasses.replace(each, split=split) for each in chosen])


def planted_in(data: Data) -> dict[str, Planted]:
    """The questions of training in worlds, with what the expert has to know of them, by id."""
    planted = [] if data.worlds is None else _planted(data.worlds, "train")
    return {each.question.id: each for each in planted}


def _fewer_unanswerable(questions: Sequence[Question], share: float) -> list[Question]:
    """The questions in order, with at most that share of unanswerable ones, if any is answerable;
    the same for all seeds."""
    answerable = sum(1 for each in questions if each.answerable)
    unanswerable = [each.id for each in questions if not each.answerable]
    limit = int(answerable * share / (1 - share))
    if not answerable or len(unanswerable) <= limit:
        return list(questions)
    kept = set(Random("unanswerable").sample(unanswerable, limit))
    return [each for each in questions if each.answerable or each.id in kept]


def _configs(worlds: Worlds, split: Split) -> list[WorldConfig]:
    return [
        WorldConfig(worlds.size, seed, worlds.short, worlds.vocabulary, NAMES)
        for seed in range(*getattr(worlds, split))
    ]


@functools.cache
def _planted(worlds: Worlds, split: Split) -> list[Planted]:
    """The worlds' questions; they take some tenths of a second a world, and are needed twice."""
    return [each for config in _configs(worlds, split) for each in ledger(config)]


def _world_file(worlds: Worlds, split: Split) -> Path:
    """The inbox file of the split's worlds."""
    configs = _configs(worlds, split)
    key = json.dumps([dataclasses.astuple(each) for each in configs])
    return made_up_file(key, lambda: chain.from_iterable(map(messages, configs)))
