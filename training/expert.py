"""A scripted agent that knows the answers of the synthetic world, and errs as it is told to."""

import json
import re
from collections.abc import Iterator, Sequence
from random import Random
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from art_e.episode import Episode
from art_e.inbox.tokenizer import STOP_WORDS, words
from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.models.base import PolicyStep, Usage
from data_pipeline.synthetic.plan import Planted
from evals.judges.offline import asked

NOTHING = "I don't know"

Probability = Annotated[float, Field(ge=0, le=1)]

_ASKING = frozenset("who whom whose what which when where why how many much".split())
_LISTS = (
    ("date", "March, April, May"),
    ("money", "$100, $200, $300"),
    ("name", "Anna, Ben, Carla"),
)
_THINGS = "10, 20, 30"
_POSSESSIVE = re.compile(r"['’]s$")
_WORD = re.compile(r"[\w'’-]+")


class Noise(BaseModel):
    """How often, per episode, the expert does what it should not; 0 everywhere is the best it
    can do.

    malformed: begins with a message without a call. lazy_searches: searches for one word
    first. wrong_reads: reads the hits from the first on until it has come to the right
    ones, as somebody does who can't tell from a subject. needless_turns: reads the mail
    again. wrong_answers: answers with some words of a mail. guesses: answers so where nothing
    answers. gives_up: abstains though a mail answers. lists: answers what its first search
    found with a list of candidates, none of them read; to replay a reward hack, and else 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    malformed: Probability = 0.05
    lazy_searches: Probability = 0.3
    wrong_reads: Probability = 0.3
    needless_turns: Probability = 0.15
    wrong_answers: Probability = 0.15
    guesses: Probability = 0.3
    gives_up: Probability = 0.1
    lists: Probability = 0.0


class Expert:
    """Plays `episode`, whose question and gold are those of `planted`.

    With `leading_space` a text in its calls begins with a space where it does in the question or
    mail that it is copied from: a small model's tokenizer has other tokens for a word behind a
    space, and it copies tokens.
    """

    model = "expert"

    def __init__(
        self,
        episode: Episode,
        planted: Planted,
        rng: Random,
        noise: Noise,
        *,
        leading_space: bool = False,
    ) -> None:
        self._episode = episode
        self._planted = planted
        self._rng = rng
        self._noise = noise
        self._leading_space = leading_space
        self._messages = self._play()

    @property
    def settings(self) -> dict[str, Any]:
        """As trajectories record them."""
        return {"noise": self._noise.model_dump(), "leading_space": self._leading_space}

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """The next message; what `messages` say it reads from the episode."""
        return PolicyStep(next(self._messages), Usage(), 0.0)

    def _play(self) -> Iterator[AssistantMessage]:
        if self._errs("malformed"):
            yield AssistantMessage("The answer is in the mail.")
        names, telling = _telling(self._planted.question.question)
        if self._errs("lazy_searches"):
            yield self._search([self._rng.choice(telling)])
        yield self._search(telling)
        # No number is drawn where none is asked for: other recipes keep theirs.
        if self._noise.lists and self._errs("lists"):
            yield self._final(_candidates(self._planted.question.question), [])
            return
        if not self._planted.question.answerable:
            yield from self._find_nothing()
            return
        if not self._gold_in_sight() and names and names != telling:
            yield self._search(names)
        if not self._gold_in_sight() or self._errs("gives_up"):
            yield self._final(NOTHING, [])
            return
        gold = self._gold()
        for handle in self._above(gold) if self._errs("wrong_reads") else gold:
            yield self._read(handle)
            if handle not in gold and self._errs("wrong_answers"):
                yield self._final(self._some_words(), [handle])
                return
        if self._errs("needless_turns"):
            yield self._read(gold[-1])
        if self._errs("wrong_answers"):
            yield self._final(self._some_words(), gold)
            return
        yield self._final(self._answer(), gold)

    def _find_nothing(self) -> Iterator[AssistantMessage]:
        hits = self._hits()
        if hits and self._errs("guesses"):
            handle = self._rng.choice(hits)
            yield self._read(handle)
            yield self._final(self._some_words(), [handle])
        else:
            yield self._final(NOTHING, [])

    def _answer(self) -> str:
        """The answer in the words of its mail, where one mail holds it."""
        if len(self._planted.evidence) == 1:
            return self._planted.evidence[0][1]
        return str(self._planted.question.answer)

    def _gold(self) -> list[str]:
        """The handles of the gold mails that came up; the ids where there are none."""
        by_id = {mail: handle for handle, mail in self._episode.tools.handles.items()}
        return [by_id[each] for each in self._planted.question.message_ids if each in by_id]

    def _gold_in_sight(self) -> bool:
        return len(self._gold()) == len(self._planted.question.message_ids)

    def _above(self, gold: Sequence[str]) -> list[str]:
        """The last search's hits down to the last of `gold`, and those that it did not give."""
        hits = self._hits()
        last = max((place for place, each in enumerate(hits) if each in gold), default=-1)
        return [*hits[: last + 1], *(each for each in gold if each not in hits)]

    def _hits(self) -> list[str]:
        """What the last search gave."""
        for observation in reversed(self._observations()):
            if "hits" in observation:
                return [hit["message_id"] for hit in observation["hits"]]
        return []

    def _some_words(self) -> str:
        """Two words that stand together in the last mail read."""
        body = next(each["body"] for each in reversed(self._observations()) if "body" in each)
        said = body.split() or [NOTHING]
        start = self._rng.randrange(len(said))
        return " ".join(said[start : start + 2]).strip(".,:;")

    def _observations(self) -> Sequence[dict[str, Any]]:
        decoder = json.JSONDecoder()
        return [
            decoder.raw_decode(each["content"])[0]
            for each in self._episode.messages
            if each["role"] == "tool"
        ]

    def _errs(self, kind: str) -> bool:
        return bool(self._rng.random() < getattr(self._noise, kind))

    def _search(self, telling: Sequence[str]) -> AssistantMessage:
        keywords = self._spaced(" ".join(telling), telling[0], self._planted.question.question)
        return self._call("search_emails", {"keywords": [keywords]})

    def _read(self, handle: str) -> AssistantMessage:
        return self._call("read_email", {"message_id": handle})

    def _final(self, answer: str, sources: Sequence[str]) -> AssistantMessage:
        bodies = [each["body"] for each in self._observations() if "body" in each]
        said = self._spaced(answer, answer, *reversed(bodies))
        return self._call("return_final_answer", {"answer": said, "sources": list(sources)})

    def _spaced(self, text: str, begun: str, *places: str) -> str:
        """`text` as it is copied from the first of `places` that has `begun`, its beginning."""
        found = next((each for each in places if begun in each), None)
        if not self._leading_space or text == NOTHING or found is None:
            return text
        return f" {text}" if found[: found.index(begun)].endswith(" ") else text

    def _call(self, name: str, arguments: dict[str, Any]) -> AssistantMessage:
        turn = self._episode.rubric.turns
        return AssistantMessage(None, (ToolCall(f"call_{turn}_0", name, compact_json(arguments)),))


def _candidates(question: str) -> str:
    """Three answers of the kind that is asked for, always the same: they are soon learnt."""
    wanted = asked(question).kinds
    return next((listed for kind, listed in _LISTS if kind in wanted), _THINGS)


def _telling(question: str) -> tuple[list[str], list[str]]:
    """The question's names and numbers, and all its words that tell what is asked, in order."""
    said = [_POSSESSIVE.sub("", word) for word in _WORD.findall(question)]
    telling = [each for each in said if not _IDLE.issuperset(words(each))]
    names = [each for each in telling if each[0].isupper() or each[0].isdigit()]
    return names, telling or said


_IDLE = STOP_WORDS | _ASKING
