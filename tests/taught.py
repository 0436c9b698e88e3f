"""A few episodes, and a tiny Qwen2 that is trained to repeat them."""

import json
from pathlib import Path

from art_e.episode import default_prompt
from art_e.message import ToolCall
from art_e.tools import schemas
from tests import tiny_qwen
from tests.builders import CREW, LEASE, PRICE, Start, answer, message, read, search

DONT_KNOW = "I don't know"
# The question, the turns that the model learns, the answer and its sources.
Lesson = tuple[str, list[list[ToolCall]], str, list[str]]


def lesson(question: str, searches: list[ToolCall], final: str, source: str) -> Lesson:
    """Search, read the first hit and answer from it."""
    return question, [searches, [read("m1")], [answer(final, "m1")]], final, [source]


OFFICE, CRANE = [search("lease", "harbor")], [search("crane", "cost"), search("crane")]
LESSONS = [
    lesson("When does the lease of the harbor office end?", OFFICE, "May 3", LEASE),
    lesson("What does the crane cost?", CRANE, "4,000 dollars", PRICE),
    lesson("Who is the crew of the crane?", [search("crew")], "Dora and Emil", CREW),
    ("Who won the tombola?", [[search("tombola")], [answer(DONT_KNOW)]], DONT_KNOW, []),
]


def teach(start: Start, folder: Path) -> Path:
    """Train the checkpoint in `folder` on episodes from `start`."""
    conversations = []
    for question, turns, *_ in LESSONS:
        episode = start(question=question)
        for calls in turns:
            episode.step(message(*calls))
        conversations.append(episode.messages)
    texts = [str(each["content"]) for messages in conversations for each in messages]
    texts.append(tiny_qwen.stock_template())
    fixed = [line for line in default_prompt().splitlines() if "$" not in line]
    fixed += [json.dumps(each, ensure_ascii=False) for each in schemas()]
    tokenizer = tiny_qwen.make_tokenizer(texts, phrases=fixed)
    model = tiny_qwen.make_model(tokenizer)
    tiny_qwen.overfit(model, [tiny_qwen.example(tokenizer, each) for each in conversations])
    return tiny_qwen.save(model, tokenizer, folder)
