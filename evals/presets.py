"""Short names of the baselines that results are compared with. Any other name is litellm's own."""

from collections.abc import Mapping

PRESETS: Mapping[str, str] = {
    "offline": "offline",
    "o3": "openai/o3",
    "o4-mini": "openai/o4-mini",
    "gpt-4.1": "openai/gpt-4.1",
    "gemini-2.5-pro": "gemini/gemini-2.5-pro",
    # One's own vLLM server, at HOSTED_VLLM_API_BASE.
    "qwen2.5-14b": "hosted_vllm/Qwen2.5-14B-Instruct",
}


def model_name(name: str) -> str:
    """The model that a preset stands for; a name that is none unchanged."""
    return PRESETS.get(name, name)
