"""The model and tokenizer that a run starts from, loaded or new."""

import itertools
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

import torch
from accelerate.utils import is_peft_model
from peft import LoraConfig
from tokenizers import pre_tokenizers, trainers
from transformers import AddedToken, GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.qwen2 import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer
from trl.chat_template_utils import qwen3_training_chat_template

from art_e.errors import UserError
from art_e.message import ChatMessage
from art_e.models.checkpoint import best_device, resolve_checkpoint
from art_e.models.loading import end_of_turn, load_checkpoint
from art_e.tools import ARGUMENTS
from training.processes import sharded
from training.recipe import HEAD_WIDTH, ModelTable, Recipe, Scratch, Setting
from training.rollout import ChatTokens

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# Added tokens that are not special, as in Qwen2.5.
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_TEMPLATES = resources.files("training").joinpath("templates")


class Start(NamedTuple):
    """A model in memory, with or without a LoRA adapter, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerFast
    end_id: int
    lean: bool = False

    @property
    def pad_id(self) -> int:
        padding = self.tokenizer.pad_token_id
        return self.end_id if padding is None else int(padding)

    @property
    def tokens(self) -> ChatTokens:
        return ChatTokens(self.tokenizer, self.end_id, lean=self.lean)


def load_start(name: str, table: ModelTable | None = None) -> Start:
    """Load a checkpoint, a training run's best one, or a model of the hub, for training by `table`
    (None: all weights). Raises `UserError` if it can't be loaded."""
    (base, adapter), table = resolve_checkpoint(name), table or ModelTable(base=name)
    whole = adapter is None and not table.lora
    loaded = load_checkpoint(base, adapter, exact=whole, bits=table.bits, sharded=sharded())
    written = str(loaded.tokenizer.chat_template)
    if "last_query_index" in written and "<function=" not in written:
        # Qwen3's own template drops earlier reasoning, which rules out training turn by turn.
        loaded.tokenizer.chat_template = qwen3_training_chat_template
    if adapter is not None:
        for parameter_name, parameter in loaded.model.named_parameters():
            parameter.requires_grad_("lora_" in parameter_name)
    return start_of(loaded.model, loaded.tokenizer)


def load_init(setting: Setting) -> Start:
    """Load the model that --init or the recipe names. Raises `UserError` if there is none."""
    recipe = setting.recipe
    if (name := setting.init or recipe.model.base) is None:
        remedy = "train a start with art-e train sft, and name its folder with --init"
        raise UserError(f"the recipe {recipe.name} trains a new model: {remedy}")
    return load_start(name, recipe.model)._replace(lean=recipe.episode.lean)


def start_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Start:
    """Make the model stop at the end of a turn and sample without the published
    `repetition_penalty`, `top_p` and `top_k`, as training assumes. Raises `UserError` if the
    template ends turns without a token."""
    end_id = end_of_turn(tokenizer)
    if end_id is None:
        lack = "the chat template ends turns without a special token that a model could learn"
        raise UserError(f"{lack}; use an instruct model, or another template")
    start = Start(model, tokenizer, end_id)
    ids = {"eos_token_id": end_id, "pad_token_id": start.pad_id}
    model.generation_config = GenerationConfig.from_dict(ids)
    return start


def adapter_config(table: ModelTable, start: Start) -> LoraConfig | None:
    """Return the config of a new adapter; None to train all weights or an existing adapter."""
    if not table.lora or is_peft_model(start.model):
        return None
    rank, targets, task = table.lora, "all-linear", "CAUSAL_LM"  # W + 2 B A, as alpha / r = 2
    return LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=targets, task_type=task)


def keep_float32(model: Any) -> None:
    """Keep trained weights in float32: TRL's bfloat16 for 4-bit bases loses small steps."""
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()


# ---- A new model, with a tokenizer trained on conversations.


def make_start(
    recipe: Recipe, form: Scratch, conversations: Sequence[Sequence[ChatMessage]], seed: int
) -> Start:
    """Make a new model, with a tokenizer trained on `conversations`."""
    messages = [message for conversation in conversations for message in conversation]
    results = (str(each["content"]) for each in messages if each["role"] == "tool")
    years = {int(year) for text in results for year in re.findall(r'"date":"(\d{4})-', text)}
    whole = phrases(recipe.episode.prompt or "", years=sorted(years))
    frames = re.compile("|".join(map(re.escape, sorted(whole, key=len, reverse=True))))
    texts = [part for each in messages for part in frames.split(_text_of(each)) if part]
    tokenizer = make_tokenizer(
        texts, phrases=whole, vocabulary=form.vocabulary, template=template()
    )
    model: Any = make_model(tokenizer, form, seed)
    return start_of(model.to(best_device()[0]), tokenizer)


def template() -> str:
    """Return our chat template, which names the tools without their schemas."""
    return _TEMPLATES.joinpath("nano.jinja").read_text("utf-8")


def phrases(prompt: str, years: Sequence[int]) -> list[str]:
    """Return the phrases that conversations in the template "nano" repeat; each becomes one token.
    Parts of numbers have tokens by their place, such as " $33" and ",500", which tell a small model
    what comes next. No phrase crosses the end of a turn, so that a conversation has the same tokens
    encoded turn by turn or at once."""
    fixed = _TEMPLATES.joinpath("nano.phrases.txt").read_text("utf-8")
    return [
        f"{START}system\n{prompt} {' '.join(ARGUMENTS)}{END}\n{START}user\n",
        *(line.replace("⏎", "\n") for line in fixed.splitlines()),
        *(f"m{number}" for number in range(1, 17)),  # as many mails as a short episode returns
        *(f"{year}-{month:02d}-" for year, month in itertools.product(years, range(1, 13))),
        *(f"T{hour:02d}:" for hour in range(24)),
        *(f" {each}" for each in [*years, *range(10)]),
        *(f"{before}{number:02d}" for before in ("", " ", "-") for number in range(100)),
        *(f"-{number:02d}-" for number in range(100)),
        *(f" ${thousands}" for thousands in range(1, 100)),
        *(f",{hundreds}00" for hundreds in range(10)),
    ]


def make_tokenizer(
    texts: Sequence[str], *, phrases: Sequence[str] = (), vocabulary: int, template: str
) -> Qwen2Tokenizer:
    """Train a byte-level BPE of at most `vocabulary` tokens on `texts`, pre-tokenized like Qwen's;
    each of `phrases` is one more token."""
    bpe: Any = Qwen2Tokenizer().backend_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()  # 256 bytes: any text can be encoded
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator(texts, trainer)
    model = json.loads(bpe.to_str())["model"]
    merges: Any = [tuple(each) for each in model["merges"]]
    marks: dict[str, Any] = {"eos_token": END, "pad_token": END_OF_TEXT}
    marks["extra_special_tokens"] = [START]
    tokenizer = Qwen2Tokenizer(vocab=model["vocab"], merges=merges, **marks)
    whole = dict.fromkeys([*MARKS, *phrases])
    tokenizer.add_tokens([AddedToken(each, normalized=False) for each in whole])
    tokenizer.chat_template = template
    return tokenizer


def make_model(tokenizer: Qwen2Tokenizer, form: Scratch, seed: int) -> Qwen2ForCausalLM:
    """Return a new float32 model for `tokenizer`, with the end token of Qwen2.5's turns."""
    end, padding = (tokenizer.get_vocab()[each] for each in (END, END_OF_TEXT))
    config = Qwen2Config(
        vocab_size=len(tokenizer), hidden_size=form.hidden,
        intermediate_size=form.widening * form.hidden, num_hidden_layers=form.layers,
        num_attention_heads=form.heads, num_key_value_heads=form.heads, head_dim=HEAD_WIDTH,
        max_position_embeddings=8_192, initializer_range=form.init, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": form.rope_theta},
        bos_token_id=None, eos_token_id=end, pad_token_id=padding,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    model.train(False)
    return model


def _text_of(message: ChatMessage) -> str:
    calls = message.get("tool_calls") or ()
    return "\n".join([message["content"] or "", *(call["function"]["arguments"] for call in calls)])
