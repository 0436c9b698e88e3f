"""A seeded company's mail with planted facts, and the questions that they answer.

    python -m data_pipeline.synthetic --size 5000 --seed 0 --out DIR

The same configuration gives the same bytes and the same questions, in any
process. Mails are made one thread at a time, so a world of any size needs
little memory. Knows nothing of ingest, search or models.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from art_e.errors import UserError
from art_e.question import Question
from data_pipeline.ingest.records import RawMessage
from data_pipeline.synthetic.chatter import Chatter
from data_pipeline.synthetic.letters import Draft, Style
from data_pipeline.synthetic.people import Directory, NamePools, Need, Person, ascii_fold
from data_pipeline.synthetic.plan import (
    CAST,
    COINED,
    OFFICE_NAMES,
    Plan,
    Planted,
    StoryPlan,
    make_plan,
    plan_stories,
)
from data_pipeline.synthetic.rfc822 import Envelope, render
from data_pipeline.synthetic.stage import Company, Stage
from data_pipeline.synthetic.stories import TELL
from data_pipeline.synthetic.wording import DAYS

# ---- A seeded company's mail with planted facts, and the questions that they answer.

LEAST, MOST = 1_000, 500_000
_MAILS_A_STORY = 40
"""More mails than any story writes."""
_FILES_A_FOLDER = 1_000


@dataclass(frozen=True, slots=True)
class WorldConfig:
    """`size`: mails, 1,000 to 500,000. `short`: bodies of one or two sentences, no signatures.

    `vocabulary` bounds the distinct lower-cased alphanumeric words of all
    subjects, bodies, questions and answers; None leaves them free. Worlds of the same
    `names` are about people, places and things of the same given and family names and
    words, in other pairs; None: each world has names of its own.
    """

    size: int = 5000
    seed: int = 0
    short: bool = False
    vocabulary: int | None = None
    names: int | None = None


class World:
    """What the mails and the questions of a configuration share."""

    def __init__(self, config: WorldConfig) -> None:
        if not LEAST <= config.size <= MOST:
            raise UserError(
                f"a synthetic world has {LEAST:,} to {MOST:,} mails; --size {config.size} is not"
                " between them"
            )
        self.config = config
        self.key = f"{config.size}/{config.seed}/{config.short}/{config.vocabulary}"
        if config.names is not None:
            self.key += f"/{config.names}"
        plan: Plan = make_plan(config.size, short=config.short)
        bounded = config.vocabulary is not None
        office = 12 if bounded else OFFICE_NAMES
        spare = plan.stories + 4
        pools = NamePools(
            config.seed,
            Need(people=plan.staff + spare * CAST, coined=office + spare * COINED),
            short=config.short,
            vocabulary=config.vocabulary,
            names=config.names,
        )
        self.pools = pools
        rng = Random(f"{config.seed}/company")
        name = " ".join(pools.coined[0])
        old = ascii_fold(" ".join(pools.coined[1]))
        self.directory = Directory(
            pools,
            domain=f"{ascii_fold(name)}.example",
            old_domain=f"{old}.example",
            owners=plan.owners,
        )
        style = Style(pools.wording, f"{name} Freight", config.short, bounded)
        staff = tuple(self.directory.person(number) for number in range(plan.staff))
        cities = tuple(rng.sample(pools.cities, len(pools.cities)))
        self.company = Company(style, staff, plan.owners, cities)
        self.first_story_name = office
        projects = [" ".join(pools.coined[at]) for at in range(2, office)]
        self.chatter = Chatter(config.seed, self.company, projects, plan.weights)
        given_names = len(pools.people.first)
        self.stories = plan_stories(plan, config.seed, given_names)
        self.staff = plan.staff

    def tell(self, story: StoryPlan) -> Stage:
        """Tell one story."""
        rng = Random(f"{self.config.seed}/story/{story.number}")
        first = self.staff + story.number * CAST
        cast: list[Person] = [self.directory.person(first + at) for at in range(CAST)]
        named = self.first_story_name + story.number * COINED
        coined = [" ".join(self.pools.coined[named + at]) for at in range(COINED)]
        ids = [self._id(f"{story.number}.{at}") for at in range(_MAILS_A_STORY)]
        stage = Stage(rng, story, self.company, cast, coined, ids)
        TELL[story.kind](stage)
        stage.drafts.sort(key=lambda draft: draft.minute)
        return stage

    def _id(self, mark: str) -> str:
        # Looks like the ids of chatter: an id must not tell that a mail matters.
        digest = hashlib.blake2b(f"{self.key}/{mark}".encode(), digest_size=12).hexdigest()
        return f"<{digest[:18]}.{int(digest[18:], 16) % 1000}@mail.example>"

    def data(self, rng: Random, draft: Draft) -> bytes:
        """The draft as bytes."""

        def header(person: Person) -> str:
            old = rng.random() < 0.06 and (draft.old_addresses or not person.owner)
            return person.other_header if old else person.header

        envelope = Envelope(
            message_id=draft.message_id,
            minute=draft.minute,
            utc_offset=draft.sender.utc_offset,
            sender=header(draft.sender),
            to=[header(person) for person in draft.to],
            cc=[header(person) for person in draft.cc],
            bcc=[header(person) for person in draft.bcc],
            subject=draft.subject,
            references=draft.references,
        )
        style = self.company.style
        return render(
            rng,
            envelope,
            draft.text + "\n",
            attachment=draft.attachment,
            html_only=draft.html_only,
            plain_only=style.short or style.bounded,
        )


def messages(config: WorldConfig) -> Iterator[RawMessage]:
    """The world's mails, exactly `config.size`, roughly by date, made as they are asked for.

    Raises UserError for a size out of range or a vocabulary that is too small.
    """
    world = World(config)
    return _messages(world)


def _messages(world: World) -> Iterator[RawMessage]:
    size = world.config.size
    number = 0
    threads = 0
    stories = iter(world.stories)
    story = next(stories, None)
    while number < size:
        # Stories are told in the order of their first day, chatter keeps pace with them.
        offset = number * DAYS // size
        drafts: list[Draft]
        if story is not None and story.start <= offset:
            drafts = world.tell(story).drafts
            rng = Random(f"{world.config.seed}/bytes/{story.number}")
            story = next(stories, None)
        else:
            rng, drafts = world.chatter.thread(threads, offset)
            threads += 1
        for draft in drafts[: size - number]:
            number += 1
            yield RawMessage(f"synthetic/{number:07d}.eml", world.data(rng, draft))
    if story is not None:
        raise RuntimeError(f"story {story.number} found no room in {size} mails")


def ledger(config: WorldConfig) -> Iterator[Planted]:
    """The questions with what is known of each: what stands in its gold mails, what is absent."""
    world = World(config)
    serial = 0
    for story in world.stories:
        for planted in world.tell(story).planted:
            question = planted.question
            provenance = {
                **question.provenance,
                "seed": config.seed,
                "size": config.size,
                "short": config.short,
                "vocabulary": config.vocabulary,
                **({} if config.names is None else {"names": config.names}),
            }
            named = dataclasses.replace(
                question, id=f"syn-{config.seed}-{serial:06d}", provenance=provenance
            )
            serial += 1
            yield dataclasses.replace(planted, question=named)


def questions(config: WorldConfig) -> list[Question]:
    """The world's questions, of all five kinds, split by inbox."""
    return [planted.question for planted in ledger(config)]


def write_world(config: WorldConfig, directory: Path) -> None:
    """Write `mail/0000/0000001.eml` ... (1,000 a folder) and `questions.jsonl` into `directory`.

    Raises UserError where `directory` holds mail already: leftovers would mix with the world.
    """
    mail = messages(config)
    if (directory / "mail").exists():
        raise UserError(f"{directory} holds mail already; remove it or choose another folder")
    for index, message in enumerate(mail):
        folder = directory / "mail" / f"{index // _FILES_A_FOLDER:04d}"
        if index % _FILES_A_FOLDER == 0:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / Path(message.source).name).write_bytes(message.data)
    with (directory / "questions.jsonl").open("w", encoding="utf-8") as lines:
        for question in questions(config):
            lines.write(json.dumps(question.to_row(), ensure_ascii=False) + "\n")
