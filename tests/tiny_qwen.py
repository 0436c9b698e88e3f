"""A Qwen2 small enough for a test: a real tokenizer, the stock template, weights that learn.

The tokenizer is a byte-level BPE trained on the texts that the model will see, so that a long
system prompt is a few hundred tokens. Everything else is as in Qwen2.5."""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2ForCausalLM, Qwen2Tokenizer

from art_e.message import ChatMessage
from training import start as scratch
from training.expert import NO_LOSS, MarkedTokens, marked_tokens
from training.recipe import HEAD_WIDTH, Scratch
from training.rollout import ChatTokens
from training.start import END, END_OF_TEXT, MARKS, START

__all__ = ["END", "END_OF_TEXT", "MARKS", "START"]

# A model this small gains nothing from a second thread.
torch.set_num_threads(1)


def stock_template() -> str:
    """Return Qwen2.5's chat template, from the copy that TRL ships."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None and spec.origin is not None
    return (Path(spec.origin).parent / "chat_templates" / "qwen2_5.jinja").read_text("utf-8")


def make_tokenizer(
    texts: Sequence[str], *, phrases: Sequence[str] = (), vocabulary: int = 1_200
) -> Qwen2Tokenizer:
    """Train a `Qwen2Tokenizer` of at most `vocabulary` tokens on `texts`. Each of `phrases` becomes
    one more token, so that the fixed parts of prompts take no time."""
    return scratch.make_tokenizer(
        texts, phrases=phrases, vocabulary=vocabulary, template=stock_template()
    )


def make_model(tokenizer: Qwen2Tokenizer, hidden: int = 96, layers: int = 2) -> Qwen2ForCausalLM:
    """Return new float32 weights, with the generation config of Qwen2.5-14B-Instruct."""
    heads = max(1, hidden // HEAD_WIDTH)
    form = Scratch(layers=layers, hidden=hidden, heads=heads, init=hidden**-0.5)
    model = scratch.make_model(tokenizer, form, seed=0)
    end, padding = (tokenizer.get_vocab()[each] for each in (END, END_OF_TEXT))
    ids = {"bos_token_id": padding, "pad_token_id": padding, "eos_token_id": [end, padding]}
    model.generation_config = GenerationConfig(
        **ids, do_sample=True, repetition_penalty=1.05, temperature=0.7, top_p=0.8, top_k=20
    )
    return model


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rendered(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[ChatMessage],
    tools: list[dict[str, Any]], *, to_go_on: bool = False,
) -> str:  # fmt: skip
    """Render a conversation by the stock template, which takes a call's arguments as an object."""
    copied: list[Any] = json.loads(json.dumps(messages))
    for call in [call for each in copied for call in each.get("tool_calls") or ()]:
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    text = tokenizer.apply_chat_template(
        copied, tools=list[Any](tools), tokenize=False, add_generation_prompt=to_go_on
    )
    assert isinstance(text, str)
    return text


def example(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[ChatMessage], *, lean: bool = False
) -> MarkedTokens:
    return marked_tokens(messages, ChatTokens(tokenizer, tokenizer.get_vocab()[END], lean=lean))


def overfit(
    model: Qwen2ForCausalLM, examples: Sequence[MarkedTokens], *, steps: int = 200,
    enough: float = 0.01,
) -> None:  # fmt: skip
    """Learn `examples` by heart, until the loss is below `enough`."""
    inputs, labels = (
        pad_sequence([torch.tensor(each[part]) for each in examples], True, padding)
        for part, padding in ((0, 0), (1, NO_LOSS))
    )
    lengths = torch.tensor([[len(each.input_ids)] for each in examples])
    seen = (torch.arange(inputs.shape[1]) < lengths).long()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / 20))
    loss = torch.tensor(torch.inf)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(input_ids=inputs, attention_mask=seen, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()
        if loss < enough:
            break
    model.train(False)
    assert loss < 2 * enough
