"""Conversations for supervised training, and which of their tokens carry loss.

They come from a scripted expert, which knows the answers of the synthetic world and makes mistakes
at the rates of the recipe's `Noise`, or from the best stored episodes."""

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
_AT_ONCE = 500  # questions a worker process plays at a time; fewer are played in this process
_NAME = re.compile(r"(?:[A-ZÀ-Þ][\w’-]*\w ?)+")  # words that begin with a capital


class MarkedTokens(NamedTuple):
    """A conversation's tokens; `labels` has `NO_LOSS` in place of those the model did not write."""

    input_ids: list[int]
    labels: list[int]


def part_of(messages: Sequence[ChatMessage], part: Part) -> list[ChatMessage] | None:
    """Return that part of a conversation (see `training.recipe.SftStage`); None if missing."""
    turns = _own_turns(messages)
    if part in ("whole", "first"):
        return list(messages[: turns[-1 if part == "whole" else 0] + 1])
    # Turns that read a mail, with the turn after each.
    reading = [
        (place, following)
        for place, following in itertools.pairwise(turns)
        for call in (messages[place].get("tool_calls") or ())
        if call["function"]["name"] == "read_email"
    ]
    if not reading or (part == "answer" and reading[-1][1] != turns[-1]):
        return None
    place, following = reading[0] if part == "read" else reading[-1]
    return [*messages[: turns[0]], *messages[place : following + 1]]


def _own_turns(messages: Sequence[ChatMessage]) -> list[int]:
    return [place for place, each in enumerate(messages) if each["role"] == "assistant"]


def marked_tokens(
    messages: Sequence[ChatMessage], tokens: ChatTokens, *, last_alone: bool = False
) -> MarkedTokens:
    """Return the tokens up to the model's last turn; its turns, or the last alone, carry loss."""
    turns = _own_turns(messages)
    transcript = tokens.begin(messages[: turns[0]])
    for place, following in zip(turns, [*turns[1:], None], strict=True):
        transcript.add(tokens.turn(messages[place]), sampled=following is None or not last_alone)
        if following is not None:
            transcript.add(tokens.between(messages[place + 1 : following]), sampled=False)
    sampled = [False] * len(transcript.prompt_ids) + transcript.sampled
    ids = transcript.ids
    labels = [token if counts else NO_LOSS for token, counts in zip(ids, sampled, strict=True)]
    return MarkedTokens(ids, labels)


# ---- The conversations of a run.


def conversations_of(
    recipe: Recipe, material: Material, planted: Mapping[str, Planted], seed: int
) -> list[list[list[ChatMessage]]]:
    """Return the conversations to imitate in each stage of the recipe, shuffled by `seed`.
    `planted` has the evidence for the questions of `material`, by their ids. Raises `UserError` if
    there are no such questions."""
    table = recipe.sft
    assert table is not None
    questions = list(material.questions)
    Random(f"{seed}/sft").shuffle(questions)
    chosen: dict[Noise, list[Planted]] = {}
    for noise in dict.fromkeys(table.noises):
        stages = zip(table.stages, table.noises, strict=True)
        limit = max(stage.steps * stage.batch for stage, its in stages if its == noise)
        chosen[noise] = [planted[each.id] for each in questions[:limit] if each.id in planted]
    played = expert_conversations(material.file.path, chosen, recipe.episode, seed)
    return [played[noise] for noise in table.noises]


def best_conversations(names: Sequence[str], seed: int) -> list[list[ChatMessage]]:
    """Return the best correct episode of each question in these runs, shuffled by `seed`
    (rejection sampling as in AgentEvol, arXiv:2406.04151). Raises `UserError` if there is none."""
    best: dict[str, Scored] = {}
    for episode in stored_episodes(names):
        other = best.get(episode.question.id)
        if episode.correct and (other is None or return_of(episode) > return_of(other)):
            best[episode.question.id] = episode
    if not best:
        raise UserError(f"no episode of {', '.join(names)} is right: train the start longer")
    conversations = [list(each.trajectory.messages) for each in best.values()]
    Random(f"{seed}/best").shuffle(conversations)
    return conversations


def stored_episodes(names: Iterable[str]) -> list[Scored]:
    """Return the judged episodes of training questions. Raises `UserError` for a missing run."""
    return [
        scored
        for name in names
        for scored in load_run(find_run(name, runs_folder()))
        if scored.question.split not in HELD_OUT
        and not scored.unjudged
        and (scored.trajectory.reward is not None or scored.verdicts)
    ]


def return_of(scored: Scored) -> float:
    """Return an episode's reward; without one, 1 if right or -1 if wrong, minus its effort."""
    reward, rubric = scored.trajectory.reward, scored.trajectory.rubric
    if reward is not None:
        return float(reward["total"])
    return scored.correct - scored.wrong - 0.1 * float(rubric["effort"]) / int(rubric["max_turns"])


def expert_conversations(
    path: Path, planted: Mapping[Noise, Sequence[Planted]], form: EpisodeForm, seed: int
) -> dict[Noise, list[list[ChatMessage]]]:
    """Return the expert's conversations with each noise about its questions, in order; `seed`
    decides the mistakes. Leave out questions whose mails its searches miss. Raises `UserError`
    without questions."""
    if not all(planted.values()):
        remedy = "give the recipe a table [data.worlds], or begin with art-e train grpo"
        raise UserError(f"the expert can only play synthetic questions: {remedy}")
    # Inbox by inbox: few can be open at a time, and opening one is as slow as some episodes.
    plays = [(noise, each) for noise, entries in planted.items() for each in entries]
    plays.sort(key=lambda play: play[1].question.inbox_address)
    if len(plays) > _AT_ONCE:
        play_some = partial(_play, path, form, seed)
        parts = map_in_workers(play_some, iter(in_groups(plays, _AT_ONCE)))
        played = dict(itertools.chain.from_iterable(part for _, part in parts))
    else:
        played = dict(_play(path, form, seed, plays))
    keys = {noise: [(noise, each.question.id) for each in planted[noise]] for noise in planted}
    return {noise: [played[key] for key in keys[noise] if key in played] for noise in planted}


def _play(
    path: Path, form: EpisodeForm, seed: int, plays: Sequence[tuple[Noise, Planted]]
) -> list[tuple[tuple[Noise, str], list[ChatMessage]]]:
    material, conversations = Material(InboxFile(path), []), []
    for noise, entry in plays:
        question = entry.question
        episode = material.episode(question, form)
        expert = Expert(episode, entry, Random(f"{seed}/{question.id}"), noise, form.spaced)
        expert.play()
        # Otherwise the expert used knowledge that no mail showed, which a model can't learn.
        if not expert.lost and expert.saw_evidence():
            conversations.append(((noise, question.id), episode.messages))
    return conversations


@dataclass(eq=False)
class Expert:
    """Plays `episode` knowing the answer and gold mails of `planted`, with mistakes drawn by `rng`.
    With `leading_space` a text in its calls keeps the space that precedes it in its source, because
    a small model copies tokens, and a word's tokens differ after a space. It is `lost` if searches
    for all words missed a gold mail."""

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
        """Return True if every gold mail that the expert read showed its evidence."""
        resolve = self.episode.tools.resolve
        read = {resolve(mail["message_id"]): mail["body"] for mail in self._mails("body")}
        evidence = ((read[mail], text) for mail, text in self.planted.evidence if mail in read)
        return all(" ".join(text.split()) in " ".join(body.split()) for body, text in evidence)

    def _play(self) -> Iterator[AssistantMessage]:
        names, telling = search_words(self.planted.question.question)
        lazy = self._errs("lazy_searches")
        yield self._search((names or telling)[:1] if lazy else names or telling)
        if self._errs("gives_up"):
            yield self._final(NOTHING, [])
            return
        hits = self._hits()
        if hits and hits[0] not in self._gold() and self._errs("reads_one"):
            yield self._read(hits[0])
            yield self._final(NOTHING, [])
            return
        count = len(self.planted.question.message_ids)
        if len(self._gold()) < count and names and names != telling and not lazy:
            yield self._search(telling)
        gold, reads_all = self._gold(), self._errs("wrong_reads")
        if not count or len(gold) < count:
            self.lost = bool(count) and not lazy
            for handle in self._hits(self._longest_name()) if reads_all else ():
                yield self._read(handle)
            yield self._final(NOTHING, [])
            return
        for handle in self._above(gold) if reads_all else gold:
            yield self._read(handle)
        if self._errs("needless_turns"):
            yield self._read(gold[-1])
        evidence = self.planted.evidence  # quote the mail if one mail holds the answer
        answer = evidence[0][1] if len(evidence) == 1 else str(self.planted.question.answer)
        yield self._final(answer, gold)

    def _gold(self) -> list[str]:
        by_id = {mail: handle for handle, mail in self.episode.tools.handles.items()}
        return [by_id[each] for each in self.planted.question.message_ids if each in by_id]

    def _above(self, gold: Sequence[str]) -> list[str]:
        """Return the likely hits down to the last gold mail, then the other gold mails."""
        likely = self._hits(self._longest_name())
        hits = [hit for hit in self._hits() if hit in gold or hit in likely]
        last = max((place for place, hit in enumerate(hits) if hit in gold), default=-1)
        return list(dict.fromkeys([*hits[: last + 1], *gold]))

    def _hits(self, name: str = "") -> list[str]:
        """Return the last search's hits that have all words of `name`."""
        needed = {*words(name)}
        hits = [hit for result in self._mails("hits")[:1] for hit in result["hits"]]
        lacking = [words(" ".join(hit.get("missing", ()))) for hit in hits]
        pairs = zip(hits, lacking, strict=True)
        return [hit["message_id"] for hit, its_words in pairs if needed.isdisjoint(its_words)]

    def _longest_name(self) -> str:
        names = _NAME.findall(self.planted.question.question.partition(" ")[2])
        return max(names, key=len, default="").strip()

    def _mails(self, field: str) -> list[dict[str, Any]]:
        """Return the results and hits that have that field, newest first."""
        turns = exchanges(self.episode.messages)
        results = [call.results[0] for turn in turns for call in turn.calls]
        mails = [mail for result in results for mail in (*result.get("hits", ()), result)]
        return [mail for mail in reversed(mails) if field in mail]

    def _errs(self, kind: str) -> bool:
        return bool(self.rng.random() < getattr(self.noise, kind))

    def _search(self, telling: Sequence[str]) -> AssistantMessage:
        keywords = self._spaced(" ".join(telling), telling[0], self.planted.question.question)
        return self._call("search_emails", {"keywords": [keywords]})

    def _read(self, handle: str) -> AssistantMessage:
        return self._call("read_email", {"message_id": handle})

    def _final(self, answer: str, sources: Sequence[str]) -> AssistantMessage:
        spaced = self._spaced(answer, answer, *(mail["body"] for mail in self._mails("body")))
        return self._call("return_final_answer", {"answer": spaced, "sources": list(sources)})

    def _spaced(self, text: str, beginning: str, *places: str) -> str:
        """Prefix `text` with a space if the first of `places` with `beginning` has one there."""
        source = next((each for each in places if beginning in each), "")
        before = source[: source.find(beginning)]
        spaced = self.leading_space and text != NOTHING and before.endswith(" ")
        return f" {text}" if spaced else text

    def _call(self, name: str, arguments: dict[str, Any]) -> AssistantMessage:
        turn = self.episode.rubric.turns
        return AssistantMessage(None, (ToolCall(f"call_{turn}_0", name, compact_json(arguments)),))


def search_words(question: str) -> tuple[list[str], list[str]]:
    """Return the question's names and numbers, and all of its content words, in order."""
    all_words = [word.removesuffix("'s").removesuffix("’s") for word in _WORD.findall(question)]
    telling = [each for each in all_words if not _IDLE.issuperset(words(each))]
    names = [each for each in telling if each[0].isupper() or each[0].isdigit()]
    return names, telling or all_words
