from evals.benchmark import PRESETS, model_name


def test_short_names_are_those_of_the_baselines() -> None:
    assert model_name("o3") == "openai/o3"
    assert model_name("gemini-2.5-pro") == "gemini/gemini-2.5-pro"
    assert model_name("qwen2.5-14b") == "hosted_vllm/Qwen2.5-14B-Instruct"
    assert model_name("offline") == "offline"


def test_any_other_name_goes_through_unchanged() -> None:
    assert model_name("ollama_chat/o3") == "ollama_chat/o3"
    # What a preset stands for is no preset of something else.
    assert all(model_name(full) == full for full in PRESETS.values())
