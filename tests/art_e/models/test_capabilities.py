"""What is known of models without asking them."""

import pytest

from art_e.errors import UserError
from art_e.models.providers import Capabilities, capabilities_of

KEYS = ("OPENAI", "GEMINI", "ANTHROPIC", "DEEPSEEK", "DASHSCOPE")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in KEYS:
        monkeypatch.setenv(f"{each}_API_KEY", "a-key-that-is-set")
        monkeypatch.delenv(f"{each}_API_BASE", raising=False)
        monkeypatch.delenv(f"{each}_BASE_URL", raising=False)


def test_openai_o3() -> None:
    o3 = capabilities_of("openai/o3")
    assert o3 == Capabilities(
        native_tools=True,
        reasons=True,
        tool_choice="required",
        temperature=False,
        reasoning_effort=True,
        max_tokens="max_completion_tokens",
        system_role="developer",
        endpoint=None,
    )
    assert (
        capabilities_of("o3") == capabilities_of("openai/o4-mini") == capabilities_of("openai/o3")
    )


@pytest.mark.parametrize(
    ("model", "tool_choice", "temperature", "reasoning_effort"),
    [
        ("openai/gpt-4.1", "required", True, False),
        ("openai/gpt-5", "required", False, True),
        ("gemini/gemini-2.5-pro", "required", True, True),
        # Its thoughts would have to be sent back with each call.
        ("anthropic/claude-sonnet-4-5", "required", True, False),
        # Servers of one's own: calls in the form that the model was taught.
        ("hosted_vllm/Qwen/Qwen2.5-14B-Instruct", "auto", True, True),
        ("openai/qwen-of-our-own", "auto", True, True),
        ("dashscope/qwen-max", "auto", True, True),
        # A request with a choice of tools hangs.
        ("ollama_chat/qwen2.5:14b", None, True, True),
    ],
)
def test_models_with_tool_calls(
    model: str, tool_choice: str | None, temperature: bool, reasoning_effort: bool
) -> None:
    takes = capabilities_of(model)
    assert takes.native_tools
    assert takes.tool_choice == tool_choice
    assert takes.temperature == temperature
    assert takes.reasoning_effort == reasoning_effort


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UserError, match=r"export OPENAI_API_KEY, or put it into \.env"):
        capabilities_of("openai/o3")
