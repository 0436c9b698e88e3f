"""A Qwen2 small enough for a test: a real tokenizer, the stock template, weights that learn.

The tokenizer is a byte-level BPE trained on the texts that the model will see, so that a long
system prompt is a few hundred tokens. Everything else is as in Qwen2.5.
"""

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Tokenizer,
)

from art_e.message import ChatMessage
from training import start as scratch
from training.start import END, END_OF_TEXT, MARKS, START

__all__ = ["END", "END_OF_TEXT", "MARKS", "START"]

# So small a model gains nothing by a second thread.
torch.set_num_threads(1)

NO_LOSS = -100

# The ids of a sequence, and the same with `NO_LOSS` for tokens that the model did not write.
Example = tuple[list[int], list[int]]


def stock_template() -> str:
    """Qwen2.5's own chat template, from the copy that TRL ships."""
    spec = importlib.util.find_spec("trl")
    assert spec is not None and spec.origin is not None
    template = Path(spec.origin).parent / "chat_templates" / "qwen2_5.jinja"
    return template.read_text(encoding="utf-8")


def make_tokenizer(
    texts: Sequence[str], *, phrases: Sequence[str] = (), vocabulary: int = 1_200
) -> Qwen2Tokenizer:
    """A `Qwen2Tokenizer` of at most `vocabulary` tokens learnt from `texts`.

    Each of `phrases` becomes one more token: the fixed parts of prompts then cost no time.
    """
    return scratch.make_tokenizer(
        texts, phrases=phrases, vocabulary=vocabulary, template=stock_template()
    )


def make_model(
    tokenizer: Qwen2Tokenizer, hidden: int = 96, layers: int = 2, seed: int = 0
) -> Qwen2ForCausalLM:
    """New float32 weights for `tokenizer`, with the generation config of Qwen2.5-14B-Instruct."""
    torch.manual_seed(seed)
    end, padding = (tokenizer.get_vocab()[each] for each in (END, END_OF_TEXT))
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4_096,
        # With the default of 0.02 it never learns to copy.
        initializer_range=hidden**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=padding,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        bos_token_id=padding,
        pad_token_id=padding,
        eos_token_id=[end, padding],
        do_sample=True,
        repetition_penalty=1.05,
        temperature=0.7,
        top_p=0.8,
        top_k=20,
    )
    model.train(False)
    return model


def save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    """The checkpoint in `folder`, as `transformers` writes it."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def rendered(
    tokenizer: PreTrainedTokenizerFast,
    messages: Sequence[ChatMessage],
    tools: list[dict[str, Any]],
    *,
    to_go_on: bool = False,
) -> str:
    """The conversation by the stock template, which takes tool calls as objects."""
    messages = [dict(each) for each in messages]
    for each in messages:
        if "tool_calls" in each:
            functions = [call["function"] for call in each["tool_calls"]]
            each["tool_calls"] = [
                {"function": {**one, "arguments": json.loads(one["arguments"])}}
                for one in functions
            ]
    text = tokenizer.apply_chat_template(
        messages, tools=list[Any](tools), tokenize=False, add_generation_prompt=to_go_on
    )
    assert isinstance(text, str)
    return text


def example(
    tokenizer: PreTrainedTokenizerFast, messages: Sequence[ChatMessage], tools: list[dict[str, Any]]
) -> Example:
    """A conversation to learn: all its tokens, with loss on what the model wrote."""
    ids: list[int] = []
    labels: list[int] = []
    done = ""
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt = rendered(tokenizer, messages[:number], tools, to_go_on=True)
        assert prompt.startswith(done)
        read = tokenizer.encode(prompt.removeprefix(done))
        turn = rendered(tokenizer, messages[: number + 1], tools).removeprefix(prompt)
        written, newline, _ = turn.partition(END)
        own = tokenizer.encode(written + newline)
        ids += read + own
        labels += [NO_LOSS] * len(read) + own
        done = prompt + written + newline
    return ids, labels


def overfit(
    model: Qwen2ForCausalLM,
    examples: Sequence[Example],
    *,
    steps: int = 200,
    rate: float = 3e-3,
    enough: float = 0.01,
) -> float:
    """Learn `examples` by heart, until the loss is below `enough`; the last loss."""
    longest = max(len(ids) for ids, _ in examples)
    inputs = torch.zeros(len(examples), longest, dtype=torch.long)
    labels = torch.full((len(examples), longest), NO_LOSS)
    seen = torch.zeros(len(examples), longest, dtype=torch.long)
    for row, (ids, own) in enumerate(examples):
        inputs[row, : len(ids)] = torch.tensor(ids)
        labels[row, : len(ids)] = torch.tensor(own)
        seen[row, : len(ids)] = 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.0)
    warm_up = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(1.0, (done + 1) / 20))
    loss = float("inf")
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        output = model(input_ids=inputs, attention_mask=seen, labels=labels)
        output.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warm_up.step()
        loss = output.loss.item()
        if loss < enough:
            break
    model.train(False)
    return loss
