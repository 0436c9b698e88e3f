"""Measure whether the passages shown without a model hold the answer.

    python -m bench.passages enron.duckdb enron

asks the answerable questions of the test split, then those of an invented mailbox (`personal`).
A passage holds the answer if the question's `must` matches it, else if it has 70 % of the answer's
words that the question lacks. In brackets: 95 % Wilson intervals.
"""

import re
import sys
import tempfile
from pathlib import Path

import numpy as np

from art_e.agent import run_episode, run_now
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.tokenizer import STOP_WORDS
from art_e.offline import OfflinePolicy, passages_of
from art_e.passages import Passage, best_passages
from art_e.question import Question, load_questions
from bench import personal
from evals.statistics import Sample

SHOWN, HOLDS = 3, 0.7


def _words(text: str) -> set[str]:
    return {*re.findall(r"[^\W_]+", text.lower())} - STOP_WORDS


def holds(question: Question, text: str, must: str | None = None) -> bool:
    """Return whether `text` holds the answer."""
    if must:
        return re.search(must, text, re.IGNORECASE) is not None
    answer = _words(question.answer or "")
    new = (answer - _words(question.question)) or answer or {""}
    return len(new & _words(text)) >= HOLDS * len(new)


def read_passages(inbox: Inbox, question: Question) -> tuple[Episode, list[Passage]]:
    """Ask the offline policy; return the episode and the passages that it read, best first."""
    episode, policy = Episode(inbox, question), OfflinePolicy()
    run_now(run_episode(episode, policy, "bench"), policy)
    return episode, passages_of(episode.messages)


def measure(db: Path, questions: list[Question], musts: list[str] | None = None) -> str:
    """Return how often the first passage and the first three hold the answer."""
    first, three, sizes = list[bool](), list[bool](), list[int]()
    with InboxFile(db) as file:
        for number, question in enumerate(questions):
            inbox = file.open_inbox(question.inbox_address, question.query_date)
            _, passages = read_passages(inbox, question)
            texts = [each.text for each in best_passages(passages, SHOWN)]
            right = [holds(question, text, musts[number] if musts else None) for text in texts]
            first.append(any(right[:1]))
            three.append(any(right))
            sizes += map(len, texts)
    shares = f"first {_share(first)}, first {SHOWN} {_share(three)}"
    return f"n = {len(questions)}, {shares}, {np.mean(sizes):.0f} characters a passage"


def _share(right: list[bool]) -> str:
    numbers = [f"{number}" for number in range(len(right))]
    estimate = Sample(numbers, numbers).share(right)
    return "{value:.1%} ({low:.1%} to {high:.1%})".format(**estimate)


def main(db: str, source: str) -> None:
    """Print the shares on the golden set's test split and on both halves of the mailbox."""
    questions = [each for each in load_questions(source, "test") if each.answerable]
    print(f"{source}, test: {measure(Path(db), questions)}")
    with tempfile.TemporaryDirectory() as folder:
        personal.write(Path(folder))
        for half, name in enumerate(personal.HALVES):
            musts = [row["must"] for row in personal.questions(half)]
            questions = load_questions(f"{folder}/{name}.jsonl")
            print(f"personal, {name}: {measure(Path(folder, 'personal.duckdb'), questions, musts)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
