"""The local policy: a checkpoint that generates in this process, with transformers.

    local:PATH-or-hub-id[+ADAPTER]

The model is loaded when the policy is made, so that what is wrong with it is told before
a run starts. It sees the conversation through its own chat template, tools included, and
calls tools in Qwen's form (`qwen_calls.py`). One policy serves many episodes at once
(`batching.py`), and several event loops. Knows nothing of episodes.
"""

from typing import Any

from art_e.message import ChatMessage
from art_e.policies.base import PolicyError, PolicyStep, Usage
from art_e.policies.batching import BatchedGenerator
from art_e.policies.budget import Budget
from art_e.policies.checkpoint import load_checkpoint, split_adapter
from art_e.policies.choose import LOCAL_PREFIX, MAX_OUTPUT_TOKENS, ModelOptions
from art_e.policies.prices import price_of
from art_e.policies.qwen_calls import as_written, parse_reply
from art_e.text import digest


class LocalPolicy:
    """Generates with the checkpoint, and the adapter, of `path_and_adapter`.

    Raises `UserError` for a checkpoint that can't be used, and for a cost limit without
    a price. `temperature` None is greedy decoding, which gives the same messages each time.
    """

    def __init__(self, path_and_adapter: str, options: ModelOptions) -> None:
        self.model = LOCAL_PREFIX + path_and_adapter
        self._path, self._adapter = split_adapter(path_and_adapter)
        self._max_output_tokens = options.max_output_tokens or MAX_OUTPUT_TOKENS
        self._price = price_of(self.model)
        self._budget = Budget(options.max_cost_usd, self._price, self.model)
        self._temperature = options.temperature or 0.0
        self._checkpoint = load_checkpoint(self._path, self._adapter)
        self._generator = BatchedGenerator(self._checkpoint, options.concurrency, self._temperature)

    @property
    def settings(self) -> dict[str, Any]:
        """What an answer depends on besides the messages."""
        template = self._checkpoint.tokenizer.chat_template
        return {
            "path": self._path,
            "adapter": self._adapter,
            "dtype": self._checkpoint.dtype,
            "device": self._checkpoint.device,
            "temperature": self._temperature,
            "max_output_tokens": self._max_output_tokens,
            "chat_template_hash": digest(str(template)),
        }

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """The model's next message. Raises `PolicyError` where it can't be generated.

        Its kinds: context (the conversation is too long), model (out of memory, or what
        else the model failed with), budget. `seconds` are those of the whole batch.
        """
        ids = self._prompt(messages, tools)
        most = min(self._max_output_tokens, self._checkpoint.context - len(ids))
        if most < 1:
            raise PolicyError(
                "context",
                f"the conversation has {len(ids):,} tokens, and the model takes"
                f" {self._checkpoint.context:,}",
            )
        reserved = self._budget.reserve(len(ids), most)
        cost = None
        try:
            generated = await self._generator.generate(ids, most)
            usage = Usage(prompt_tokens=len(ids), completion_tokens=generated.tokens)
            cost = None if self._price is None else self._price.cost(usage)
        except RuntimeError as error:
            line = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise PolicyError("model", f"{type(error).__name__}: {line[:200]}") from None
        finally:
            self._budget.settle(reserved, cost)
        text = self._checkpoint.tokenizer.decode(generated.ids)
        turn = sum(each["role"] == "assistant" for each in messages)
        return PolicyStep(parse_reply(str(text), turn), usage, cost, generated.seconds)

    def _prompt(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> list[int]:
        tokenizer = self._checkpoint.tokenizer
        text = tokenizer.apply_chat_template(
            as_written(messages),
            tools=list[Any](tools),
            add_generation_prompt=True,
            tokenize=False,
        )
        return list(tokenizer.encode(str(text), add_special_tokens=False))
