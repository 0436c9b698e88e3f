"""Rollouts whose model replies by a script."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import nullcontext

from transformers import PreTrainedTokenizerFast

from art_e.episode import MAX_PROSE
from art_e.message import AssistantMessage
from evals.judges.offline import F1Judge, OfflineJudge
from evals.scored import Judge, Scored
from tests.builders import LEASE, answer, message, read
from tests.tiny_qwen import END
from tests.training.conftest import Begin, written
from training import roller
from training.judging import Judges
from training.reward import RewardWeights
from training.rollout import Follow, Rollout, Transcript, Turn, in_rounds

IDK, SOMETHING = message(answer("I don't know")), message(answer("zebra"))
SPREAD = [SOMETHING, IDK, IDK, SOMETHING]
FLAT = [IDK] * 4
JUDGES = Judges(OfflineJudge(), F1Judge())
# Whole episodes about the lease.
RIGHT = [message(read(LEASE)), message(answer("On May 3."))]
WRONG = [message(read(LEASE)), message(answer("On June 9."))]
DECLINE = [message(answer(None))]
LOST = [AssistantMessage("no call")] * MAX_PROSE


class Script:
    """An engine: each of `rounds` has a reply for each prompt, a message or text without an end
    mark (an endless iterator has enough). All tokens have the same log-probability."""

    awake = staticmethod(nullcontext)

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast,
        rounds: Iterable[Iterable[AssistantMessage | str]], logprob: float | None = None,
    ) -> None:  # fmt: skip
        self._tokenizer, self._rounds, self._logprob = tokenizer, iter(rounds), logprob
        self.seen: list[list[list[int]]] = []

    def __call__(self, prompts: list[list[int]], follow: Follow) -> None:
        in_rounds(self._turns, prompts, follow)

    def _turns(self, prompts: list[list[int]]) -> list[Turn]:
        self.seen.append(prompts)
        turns = []
        replies = next(self._rounds)
        for _, reply in zip(prompts, replies, strict=isinstance(replies, Sequence)):
            text = reply if isinstance(reply, str) else written(reply) + END
            ids = list(self._tokenizer.encode(text))
            turns.append(Turn(ids, None if self._logprob is None else [self._logprob] * len(ids)))
        return turns


def rollouts(begin: Begin, *scripts: Sequence[AssistantMessage]) -> list[Rollout]:
    played = []
    for script in scripts:
        episode = begin()
        for reply in script:
            episode.step(reply)
        played.append(Rollout(episode, Transcript([])))
    return played


def score(judge: Judge, played: Sequence[Rollout], *others: Judge) -> list[Scored]:
    settings = [{"step": 3, "group": "3/q"}]
    scoring = roller.score([played], settings, (judge, *others), RewardWeights(), "run", "tiny")
    return asyncio.run(scoring)
