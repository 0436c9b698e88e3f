"""A Qwen2 made from nothing: a real `Qwen2Tokenizer` learnt from texts, and new weights.

So small a model spends its time on tokens. Its tokenizer knows the words of its world as
whole tokens, and what is the same in every conversation, the frames of calls and of what the
tools answer, as one token each (`phrases`). Its chat template names the tools and leaves
their schemas out. Knows nothing of training.
"""

import itertools
import json
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from art_e.tools import ARGUMENTS
from training.tables import Scratch

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

END_OF_TEXT, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
# As in Qwen2.5: tokens of their own, but not special ones.
MARKS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

_TEMPLATES = "templates"
# Handles of the mails that an episode of few turns comes to see.
_HANDLES = 16


def template(name: str) -> str:
    """The chat template of that name."""
    return resources.files("training").joinpath(f"{_TEMPLATES}/{name}.jinja").read_text("utf-8")


def phrases(prompt: str, years: Sequence[int]) -> list[str]:
    """What conversations in the template "nano" repeat, each to be one token.

    So are the parts of numbers, each another by its place: " $33" and ",500", " 36" and "-15-" and
    "93". A small model sees by the kind of a token what comes next sooner than by what stood before
    it. `prompt` is the system prompt, `years` those of the world's mails. None runs across the end
    of a turn of the model, so that a conversation has the same tokens as it grows and when it is
    encoded whole.
    """
    begin, go_on = f"\n{START}user\n", f"{END}\n{START}assistant\n"
    answered, over = f"{begin}<tool_response>\n", f"\n</tool_response>{go_on}"
    first = {name: next(iter(model.model_fields)) for name, model in ARGUMENTS.items()}
    opened = {"search_emails": '["', "read_email": '"', "return_final_answer": '"'}
    calls = [
        f'<tool_call>\n{{"name": "{name}", "arguments": {{"{first[name]}":{opened[name]}'
        for name in ARGUMENTS
    ]
    closed = [f"{each}\n</tool_call>" for each in ('"]}}', '"}}', '","sources":[]}}')]
    shown = [f'{answered}{{"hits":[{{"message_id":"', f'{answered}{{"message_id":"']
    ends = [f"{each}{over}" for each in ('"}]}', '"]}]}', '"}')]
    fields = [f'","{each}":"' for each in ("date", "from", "subject", "snippet", "body")]
    # Behind a date, which comes before them where a mail is shown.
    fields += [f'Z","{each}":"' for each in ("from", "subject")]
    lists = [f'","{each}":["' for each in ("to", "cc", "missing", "sources")]
    between = ['"],"cc":["', '"],"subject":"', '"},{"message_id":"', '"]},{"message_id":"', '","']
    nothing = '{"hits":[],"note":"no mail matches; try other words or fewer filters"}'
    no_call = '{"error":"no tool was called; every message calls a tool"}'
    named = " ".join(ARGUMENTS)
    return [
        f"{START}system\n{prompt} {named}{END}\n{START}user\n",
        f"?{go_on}",
        go_on,
        *calls,
        *closed,
        *shown,
        *ends,
        f"{answered}{nothing}{over}",
        f"{begin}{no_call}{go_on}",
        *fields,
        *lists,
        *between,
        "I don't know",
        "...",
        '.example"',
        *(f"m{number}" for number in range(1, _HANDLES + 1)),
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
) -> "Qwen2Tokenizer":
    """A byte-level BPE of `vocabulary` tokens or fewer learnt from `texts`, cut as Qwen's.

    Each of `phrases` is one token more. `template` is the text of the chat template.
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
    from transformers import AddedToken, Qwen2Tokenizer
    from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    model = json.loads(trained.to_str())["model"]
    merges: Any = [tuple(each) for each in model["merges"]]
    tokenizer = Qwen2Tokenizer(
        vocab=model["vocab"],
        merges=merges,
        eos_token=END,
        pad_token=END_OF_TEXT,
        extra_special_tokens=[START],
    )
    whole = dict.fromkeys([*MARKS, *phrases])
    tokenizer.add_tokens([AddedToken(each, normalized=False) for each in whole])
    tokenizer.chat_template = template
    return tokenizer


def make_model(tokenizer: "Qwen2Tokenizer", form: Scratch, seed: int) -> "Qwen2ForCausalLM":
    """New weights for `tokenizer`, in float32, that end a turn as Qwen2.5 does."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    end, padding = (tokenizer.get_vocab()[each] for each in (END, END_OF_TEXT))
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=form.hidden,
        intermediate_size=3 * form.hidden,
        num_hidden_layers=form.layers,
        num_attention_heads=form.heads,
        num_key_value_heads=form.heads,
        max_position_embeddings=form.context,
        initializer_range=form.init,
        rope_parameters={"rope_type": "default", "rope_theta": form.rope_theta},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=padding,
    )
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    model.train(False)
    return model
