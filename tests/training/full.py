"""The full-scale recipes cut to seconds, with a tiny Qwen2 as base, on synthetic mail.

How they train stays as in the recipe: adapter, bits, checkpointing, groups, engine."""

import re
from collections.abc import Sequence
from pathlib import Path

from art_e.models.tool_formats import render_calls
from art_e.tools import schemas
from tests.builders import answer, message
from tests.tiny_qwen import example, make_model, make_tokenizer, overfit, rendered, save
from tests.training import tiny
from training.cli import load_material
from training.recipe import Recipe, load_recipe

CHANGES = tiny.SETS["full"]


def recipe(name: str, base: Path | str, changes: Sequence[str] = ()) -> Recipe:
    return load_recipe(name, [f"model.base={base}", *CHANGES, *changes])


def make_base(folder: Path, hidden: int = 64) -> Path:
    """Make a tiny Qwen2 with the stock template that abstains from half of the questions and
    answers the others, so that groups have spread. A prompt's frame takes only a few tokens."""
    small = recipe("talk", "none")
    material = load_material(small.data, "train")
    messages = [material.episode(each, small.episode).messages for each in material.questions[:20]]
    question = material.questions[0]
    # What differs between inboxes and days.
    variable = rf"{re.escape(question.inbox_address)}|{question.query_date}, a \w+day"
    plain = make_tokenizer([str(each["content"]) for one in messages for each in one])
    replies = [message(answer(each)).to_chat() for each in ("I don't know", "zebra")]
    frames = re.split(variable, rendered(plain, messages[0][:1], schemas(lean=True)))
    frames += [str(render_calls([each])[0]["content"]) for each in replies]
    questions = [str(one[-1]["content"]) for one in messages]
    tokenizer = make_tokenizer(questions, phrases=frames, vocabulary=600)
    model = make_model(tokenizer, hidden=hidden, layers=2)
    learnt = [
        example(tokenizer, [*one, reply], lean=True) for one in messages[:10] for reply in replies
    ]
    # Both replies to each question are equally likely: the best possible loss is ln(2) / 2.
    overfit(model, learnt, steps=80, enough=0.37)
    return save(model, tokenizer, folder)
