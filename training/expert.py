"""What supervised training imitates: conversations, and the parts of them that carry loss.

They come from a scripted expert, who knows the answers of the synthetic world and makes the
mistakes of the recipe's `Noise`, or from the best of episodes that were stored."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from art_e.episode import Episode, EpisodeForm
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import STOP_WORDS, words
from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.offline import NOTHING
from art_e.runs import find_run
from art_e.storage import runs_folder
from art_e.trajectory import exchanges
from data_pipeline.ingest.batch import map_in_workers
from data_pipeline.synthetic.stage import Planted
from evals.scored import HELD_OUT, Scored, load_run
from training.recipe import Noise, Part, Recipe
from training.rollout import ChatTokens, Material, in_groups

NO_LOSS = -100  # TRL's and transformers' mark of a token without loss
_IDLE = STOP_WORDS | frozenset("who whom whose what which when where why how many much".split())
_WORD = re.compile(r"[\w'’-]+")
_AT_ONCE = 500  # questions that a worker process plays at a time; fewer are played in this one
_NAME = re.compile(r"(?:[A-ZÀ-Þ][\w’-]*\w ?)+")  # words that begin with a capital


class MarkedTokens(NamedTuple):
    """A conversation's tokens; `labels` are the same, but `NO_LOSS` for those of others."""

    input_ids: list[int]
    labels: list[int]


def part_of(messages: Sequence[ChatMessage], part: Part) -> list[ChatMessage] | None:
    """Return that part of a conversation (`training.recipe.SftStage`); None if it lacks it."""
    own = _own_turns(messages)
    if part in ("whole", "first"):
        return list(messages[: own[-1 if part == "whole" else 0] + 1])
    # The turns that read a mail, each with the turn after it.
    reading = [
        (place, following)
        for place, following in itertools.pairwise(own)
        for call in (messages[place].get("tool_calls") or ())
        if call["function"]["name"] == "read_email"
    ]
    if not reading or (part == "answer" and reading[-1][1] != own[-1]):
        return None
    place, following = reading[0] if part == "read" else reading[-1]
    return [*messages[: own[0]], *messages[place : following + 1]]


def _own_turns(messages: Sequence[ChatMessage]) -> list[int]:
    return [place for place, each in enumerate(messages) if each["role"] == "assistant"]


def marked_tokens(
    messages: Sequence[ChatMessage], tokens: ChatTokens, *, last_alone: bool = False
) -> MarkedTokens:
    """Return the tokens up to the model's last turn, with loss on its turns (or `last_alone`)."""
    own = _own_turns(messages)
    transcript = tokens.begin(messages[: own[0]])
    for place, following in zip(own, [*own[1:], None], strict=True):
        transcript.add(tokens.turn(messages[place]), own=following is None or not last_alone)
        if following is not None:
            transcript.add(tokens.between(messages[place + 1 : following]), own=False)
    sampled = [False] * len(transcript.prompt_ids) + transcript.own
    ids = transcript.ids
    labels = [token if own else NO_LOSS for token, own in zip(ids, sampled, strict=True)]
    return MarkedTokens(ids, labels)


# ---- The conversations of a run.


def conversations_of(
    recipe: Recipe, material: Material, planted: Mapping[str, Planted], seed: int
) -> list[list[list[ChatMessage]]]:
    """Return the conversations to imitate in each stage of the recipe, in an order by the seed.
    `planted` is what the synthetic worlds know of the questions of `material`, by their ids. Raises
    `UserError` if there is nothing to imitate."""
    table = recipe.sft
    assert table is not None
    questions = list(material.questions)
    Random(f"{seed}/sft").shuffle(questions)
    played: dict[Noise, list[list[ChatMessage]]] = {}
    for noise in dict.fromkeys(table.noises):
        stages = zip(table.stages, table.noises, strict=True)
        limit = max(stage.steps * stage.batch for stage, its in stages if its == noise)
        chosen = [planted[each.id] for each in questions[:limit] if each.id in planted]
        path = material.file.path
        played[noise] = expert_conversations(path, chosen, recipe.episode, noise, seed)
    return [played[noise] for noise in table.noises]


def best_conversations(names: Sequence[str], seed: int) -> list[list[ChatMessage]]:
    """Return the best right episode of each question in these runs, in an order by the seed, to
    be imitated (AgentEvol, arXiv:2406.04151). Raises `UserError` if none is right."""
    best: dict[str, Scored] = {}
    for each in stored_episodes(names):
        known = best.get(each.question.id)
        if each.correct and (known is None or worth_of(each) > worth_of(known)):
            best[each.question.id] = each
    if not best:
        raise UserError(f"no episode of {', '.join(names)} is right: train the start on")
    conversations = [list(each.trajectory.messages) for each in best.values()]
    Random(f"{seed}/best").shuffle(conversations)
    return conversations


def stored_episodes(names: Iterable[str]) -> list[Scored]:
    """Return the runs' episodes that have a reward or a verdict, without those of held-out
    questions. Raises `UserError` for a run that does not exist."""
    return [
        each
        for name in names
        for each in load_run(find_run(name, runs_folder()))
        if each.question.split not in HELD_OUT
        and not each.unjudged
        and (each.trajectory.reward is not None or each.verdicts)
    ]


def worth_of(scored: Scored) -> float:
    """Return what an episode earned, or else 1 if right and -1 if wrong, less its effort."""
    reward, rubric = scored.trajectory.reward, scored.trajectory.rubric
    if reward is not None:
        return float(reward["total"])
    return scored.correct - scored.wrong - 0.1 * float(rubric["effort"]) / int(rubric["max_turns"])


def expert_conversations(
    path: Path, planted: Sequence[Planted], form: EpisodeForm, noise: Noise, seed: int
) -> list[list[ChatMessage]]:
    """Return the expert's conversation about each question on the inbox file, in order; `seed`
    decides its mistakes. Questions whose mails the expert's searches do not find are left out.
    Raises `UserError` without questions."""
    if not planted:
        remedy = "give the recipe a table [data.worlds], or begin with art-e train grpo"
        raise UserError(f"the expert knows synthetic questions alone: {remedy}")
    # Inbox by inbox: few can be open, and opening one takes as long as some episodes.
    by_inbox = sorted(planted, key=lambda each: each.question.inbox_address)
    play = partial(_play, path, form, noise, seed)
    if len(planted) > _AT_ONCE:
        parts = map_in_workers(play, iter(in_groups(by_inbox, _AT_ONCE)))
        played = dict(itertools.chain.from_iterable(part for _, part in parts))
    else:
        played = dict(play(by_inbox))
    return [played[each.question.id] for each in planted if each.question.id in played]


def _play(
    path: Path, form: EpisodeForm, noise: Noise, seed: int, planted: Sequence[Planted]
) -> list[tuple[str, list[ChatMessage]]]:
    """Return the conversations in which the gold mails showed the answer, by questions' ids."""
    material, conversations = Material(InboxFile(path), []), []
    for each in planted:
        episode = material.episode(each.question, form)
        expert = Expert(episode, each, Random(f"{seed}/{each.question.id}"), noise, form.spaced)
        expert.play()
        # The expert knows that it must give up otherwise, and a model can't.
        if not expert.lost and expert.saw_evidence():
            conversations.append((each.question.id, episode.messages))
    return conversations


@dataclass(eq=False)
class Expert:
    """Plays `episode` about the question and gold mails of `planted`, with mistakes by `rng`. With
    `leading_space` a text in its calls begins with a space if it does where it is copied from: a
    small model copies tokens, and a word after a space has other ones. It is `lost` if searches for
    all words did not find all gold mails."""

    episode: Episode
    planted: Planted
    rng: Random
    noise: Noise
    leading_space: bool = False
    lost: bool = False

    def play(self) -> None:
        turns = self._play()
        while not self.episode.done:
            self.episode.step(next(turns))

    def saw_evidence(self) -> bool:
        """Whether each mail of the evidence that it read showed the text that answers."""
        resolve = self.episode.tools.resolve
        read = {resolve(mail["message_id"]): mail["body"] for mail in self._mails("body")}
        evidence = ((read[mail], text) for mail, text in self.planted.evidence if mail in read)
        return all(" ".join(text.split()) in " ".join(body.split()) for body, text in evidence)

    def _play(self) -> Iterator[AssistantMessage]:
        names, telling = searched_words(self.planted.question.question)
        lazy = self._errs("lazy_searches")
        yield self._search((names or telling)[:1] if lazy else names or telling)
        if self._errs("gives_up"):
            yield self._final(NOTHING, [])
            return
        hits = self._hits()
        if hits and hits[0] not in self._gold() and self._errs("guesses"):
            yield self._read(hits[0])
            yield self._final(hits[0], hits[:1])
            return
        count = len(self.planted.question.message_ids)
        if len(self._gold()) < count and names and names != telling and not lazy:
            yield self._search(telling)
        gold, reads_all = self._gold(), self._errs("wrong_reads")
        if not count or len(gold) < count:
            self.lost = bool(count) and not lazy
            for handle in self._hits(self._name()) if reads_all else ():
                yield self._read(handle)
            yield self._final(NOTHING, [])
            return
        for handle in self._above(gold) if reads_all else gold:
            yield self._read(handle)
        if self._errs("needless_turns"):
            yield self._read(gold[-1])
        evidence = self.planted.evidence  # in the words of its mail, if one mail holds the answer
        answer = evidence[0][1] if len(evidence) == 1 else str(self.planted.question.answer)
        yield self._final(answer, gold)

    def _gold(self) -> list[str]:
        by_id = {mail: handle for handle, mail in self.episode.tools.handles.items()}
        return [by_id[each] for each in self.planted.question.message_ids if each in by_id]

    def _above(self, gold: Sequence[str]) -> list[str]:
        """Return the likely hits down to the last of `gold`, then the other gold mails."""
        likely = self._hits(self._name())
        hits = [hit for hit in self._hits() if hit in gold or hit in likely]
        last = max((place for place, hit in enumerate(hits) if hit in gold), default=-1)
        return list(dict.fromkeys([*hits[: last + 1], *gold]))

    def _hits(self, name: str = "") -> list[str]:
        """Return the last search's hits that lack no word of `name`."""
        needed = {*words(name)}
        hits = [hit for result in self._mails("hits")[:1] for hit in result["hits"]]
        lacking = [words(" ".join(hit.get("missing", ()))) for hit in hits]
        pairs = zip(hits, lacking, strict=True)
        return [hit["message_id"] for hit, its_words in pairs if needed.isdisjoint(its_words)]

    def _name(self) -> str:
        """Return the longest name in the question."""
        names = _NAME.findall(self.planted.question.question.partition(" ")[2])
        return max(names, key=len, default=NOTHING).strip()

    def _mails(self, field: str) -> list[dict[str, Any]]:
        """Return the results, and the hits in them, that show that field, the last first."""
        turns = exchanges(self.episode.messages)
        results = [call.results[0] for turn in turns for call in turn.calls]
        shown = [mail for result in results for mail in (*result.get("hits", ()), result)]
        return [mail for mail in reversed(shown) if field in mail]

    def _bodies(self) -> list[str]:
        return [mail["body"] for mail in self._mails("body")]

    def _errs(self, kind: str) -> bool:
        return bool(self.rng.random() < getattr(self.noise, kind))

    def _search(self, telling: Sequence[str]) -> AssistantMessage:
        keywords = self._spaced(" ".join(telling), telling[0], self.planted.question.question)
        return self._call("search_emails", {"keywords": [keywords]})

    def _read(self, handle: str) -> AssistantMessage:
        return self._call("read_email", {"message_id": handle})

    def _final(self, answer: str, sources: Sequence[str]) -> AssistantMessage:
        spaced = self._spaced(answer, answer, *self._bodies())
        return self._call("return_final_answer", {"answer": spaced, "sources": list(sources)})

    def _spaced(self, text: str, beginning: str, *places: str) -> str:
        """Return `text` as it is copied from the first of `places` that has its `beginning`."""
        source = next((each for each in places if beginning in each), "")
        before = source[: source.find(beginning)]
        spaced = self.leading_space and text != NOTHING and before.endswith(" ")
        return f" {text}" if spaced else text

    def _call(self, name: str, arguments: dict[str, Any]) -> AssistantMessage:
        turn = self.episode.rubric.turns
        return AssistantMessage(None, (ToolCall(f"call_{turn}_0", name, compact_json(arguments)),))


def searched_words(question: str) -> tuple[list[str], list[str]]:
    """Return the question's names and numbers, and all its informative words, in order."""
    all_words = [word.removesuffix("'s").removesuffix("’s") for word in _WORD.findall(question)]
    telling = [each for each in all_words if not _IDLE.issuperset(words(each))]
    names = [each for each in telling if each[0].isupper() or each[0].isdigit()]
    return names, telling or all_words
