"""What a run begins from: a model and its tokenizer, loaded, or made from nothing.

Knows nothing of trainers.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from art_e.errors import UserError
from art_e.message import ChatMessage
from art_e.policies.checkpoint import best_device, end_of_turn, load_checkpoint, split_adapter
from art_e.tools import schemas
from training.checkpoints import base_of, meant_checkpoint
from training.processes import sharded
from training.recipe import Recipe
from training.scratch import make_model, make_tokenizer, phrases, template
from training.tables import ModelTable, Scratch
from training.tokens import Tokens

if TYPE_CHECKING:
    from peft import LoraConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


class Start(NamedTuple):
    """A model in memory, with its tokenizer; `adapter` says that only a peft adapter trains."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerFast"
    end_id: int
    adapter: bool = False

    @property
    def pad_id(self) -> int:
        """What pads a batch; it is never attended to."""
        padding = self.tokenizer.pad_token_id
        return self.end_id if padding is None else int(padding)

    @property
    def tokens(self) -> Tokens:
        """Its conversations as tokens."""
        return Tokens(self.tokenizer, schemas(), self.end_id)


def load_start(name: str, table: ModelTable | None = None) -> Start:
    """The model of a checkpoint, of a training run's best one, or of the hub, to be trained as
    `table` says (None: all its weights).

    Where the checkpoint is an adapter, that is what trains on. Raises `UserError` for what
    can't be loaded.
    """
    base, adapter = split_adapter(name)
    folder = Path(base).expanduser()
    if adapter is None and folder.is_dir():
        folder = meant_checkpoint(folder)
        own_base = base_of(folder)
        base, adapter = (str(folder), None) if own_base is None else (own_base, str(folder))
    whole = adapter is None and (table is None or table.lora is None)
    bits = 16 if table is None else table.bits
    loaded = load_checkpoint(base, adapter, exact=whole, bits=bits, sharded=sharded())
    if adapter is not None:
        for parameter_name, parameter in loaded.model.named_parameters():
            parameter.requires_grad_("lora_" in parameter_name)
    return start_of(loaded.model, loaded.tokenizer, adapter=adapter is not None)


def make_start(
    recipe: Recipe, form: Scratch, conversations: Sequence[Sequence[ChatMessage]], seed: int
) -> Start:
    """A new model, whose tokenizer has learnt the words of `conversations`."""
    known = phrases(recipe.episode.prompt or "", years=_years(conversations))
    frames = re.compile("|".join(map(re.escape, sorted(known, key=len, reverse=True))))
    texts = [
        part
        for messages in conversations
        for message in messages
        for part in frames.split(_said(message))
        if part
    ]
    tokenizer = make_tokenizer(
        texts, phrases=known, vocabulary=form.vocabulary, template=template(form.template)
    )
    device, _ = best_device()
    model: Any = make_model(tokenizer, form, seed)
    model = model.to(device)
    return start_of(model, tokenizer)


def start_of(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerFast", *, adapter: bool = False
) -> Start:
    """The model, set to sample from its own distribution and to stop at the end of a turn.

    The published generation config goes: its `repetition_penalty`, `top_p` and `top_k` would
    have rollouts drawn from another distribution than the one that is trained. Raises
    `UserError` for a chat template that ends turns with no special token.
    """
    from transformers import GenerationConfig

    end_id = end_of_turn(tokenizer)
    if end_id is None:
        raise UserError(
            "the chat template ends the model's messages with no special token, so that a turn"
            " has no end to learn; use an instruct model, or another template"
        )
    start = Start(model, tokenizer, end_id, adapter)
    model.generation_config = GenerationConfig.from_dict(
        {"eos_token_id": end_id, "pad_token_id": start.pad_id}
    )
    return start


def adapter_config(table: ModelTable, start: Start) -> "LoraConfig | None":
    """The adapter that the recipe trains; None where it trains all weights, or one is there."""
    if table.lora is None or start.adapter:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=table.lora.rank,
        lora_alpha=table.lora.alpha,
        lora_dropout=table.lora.dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def keep_exact(model: Any) -> None:
    """Have the weights that learn in float32: TRL puts an adapter beside weights of 4 bits into
    bfloat16, in whose rounding steps of 1e-5 are lost."""
    for each in model.parameters():
        if each.requires_grad:
            each.data = each.data.float()


def _said(message: ChatMessage) -> str:
    calls = message.get("tool_calls") or ()
    return "\n".join([message["content"] or "", *(call["function"]["arguments"] for call in calls)])


def _years(conversations: Sequence[Sequence[ChatMessage]]) -> list[int]:
    """The years of the mails that the tools have shown."""
    found: set[Any] = set()
    for messages in conversations:
        for message in messages:
            if message["role"] == "tool":
                found.update(re.findall(r'"date":"(\d{4})-', message["content"]))
    return sorted(map(int, found))
