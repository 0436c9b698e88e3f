"""The episode as an environment of TRL's GRPOTrainer (`environment_factory`, experimental in 1.16).

    rows = question_rows("golden", "inbox.duckdb", split="train")
    GRPOTrainer(model, args=args, train_dataset=Dataset.from_list(rows),
                environment_factory=lambda: InboxEpisode("inbox.duckdb"))

TRL runs the loop: a message without a call ends an episode, and each call counts as a turn. Only
`art-e train grpo` has recipes, validations and resuming.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from art_e.agent import episode_record
from art_e.episode import DEFAULT_MAX_TURNS, Episode
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ToolCall, compact_json, observation_json
from art_e.question import Question, load_questions
from evals.judges import choose_judge
from evals.scored import Scored, check_questions, judge_episode
from training.reward import RewardWeights
from training.roller import rewarded

open_file = cache(InboxFile)


def question_rows(
    questions: str, db: str, *, split: str | None = None, max_turns: int = DEFAULT_MAX_TURNS
) -> list[dict[str, Any]]:
    """Return the rows of a training set: the prompt of each question, and the question itself.
    Raises `UserError` for questions that don't fit the inbox file."""
    file = open_file(Path(db))
    items = load_questions(questions, split)
    check_questions(items, file)
    return [
        {
            "prompt": Episode(file.inbox_of(item), item, max_turns=max_turns).messages,
            "question": compact_json(item.to_row()),
        }
        for item in items
    ]


class InboxEpisode:
    """Episodes over an inbox file, one at a time, rewarded by `judge` and `weights`."""

    def __init__(
        self,
        db: str,
        *,
        judge: str = "offline",
        weights: RewardWeights | None = None,
        max_turns: int = DEFAULT_MAX_TURNS,
    ) -> None:
        self._file = open_file(Path(db))
        self._judge, self._weights = choose_judge(judge), weights or RewardWeights()
        self._max_turns = max_turns

    def reset(self, **row: Any) -> None:
        """Start the episode of a row's question."""
        self._question = Question.from_row(json.loads(row["question"]))
        inbox = self._file.inbox_of(self._question)
        self._episode = Episode(inbox, self._question, max_turns=self._max_turns)

    def search_emails(
        self,
        keywords: list[str],
        from_addr: str | None = None,
        to_addr: str | None = None,
        sent_after: str | None = None,
        sent_before: str | None = None,
        max_results: int = 10,
    ) -> str:
        """
        Search the inbox by keywords, best match first. Fewer matching words are accepted.

        Args:
            keywords: words to look for, the telling ones
            from_addr: sender: an address, or part of it or a name
            to_addr: recipient (To, Cc, Bcc), likewise
            sent_after: YYYY-MM-DD, that day included
            sent_before: YYYY-MM-DD, that day excluded
            max_results: 1 to 10
        """
        arguments = {name: value for name, value in locals().items() if name != "self"}
        return self._step("search_emails", arguments)

    def read_email(self, message_id: str) -> str:
        """
        Read one mail in full.

        Args:
            message_id: as a search gave it
        """
        return self._step("read_email", {"message_id": message_id})

    def return_final_answer(self, answer: str, sources: list[str]) -> str:
        """
        Give the final answer. Say "I don't know" where the mail does not tell.

        Args:
            answer: short and complete, or "I don't know"
            sources: message ids of the mails that hold the answer
        """
        return self._step("return_final_answer", {"answer": answer, "sources": sources})

    async def get_reward(self) -> float | None:
        """Return the episode's reward; None, which TRL leaves out, if the judge failed."""
        if not self._episode.done:
            self._episode.cut_off()
        trajectory = episode_record(self._episode, "trl", "trl", {})
        scored = Scored(self._question, trajectory)
        scored = await judge_episode(scored, [self._judge], self._episode.tools.inbox)
        reward = rewarded(self._weights, scored, self._episode.rubric).trajectory.reward
        return None if reward is None else float(reward["total"])

    def _step(self, name: str, arguments: dict[str, Any]) -> str:
        if self._episode.done:
            return observation_json({"error": "the episode is over; write nothing more"})
        call = ToolCall(f"call_{self._episode.rubric.turns}", name, compact_json(arguments))
        [observation] = self._episode.step(AssistantMessage(None, (call,)))
        return str(observation["content"])
