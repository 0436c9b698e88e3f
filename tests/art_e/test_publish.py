"""What others may see of names and settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.publish import public_model, public_name

CACHED = "/home/ann/.cache/huggingface/hub/models--Qwen--Qwen2.5-14B-Instruct/snapshots/0a1b"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Qwen/Qwen2.5-14B-Instruct", "Qwen/Qwen2.5-14B-Instruct"),
        ("/home/ann/runs/golden", "golden"),
        ("~/runs/golden/", "golden"),
        ("../ann/secret/golden", "golden"),
        ("C:\\Users\\ann\\golden", "golden"),
        (CACHED, "Qwen/Qwen2.5-14B-Instruct"),
        ("/data/datasets--me--mail/snapshots/1/x.parquet", "me/mail"),
        ("golden", "golden"),
        ("~", "~"),
        ("~ann", "~"),
        ("~ann/runs", "runs"),
        ("", ""),
        ("/", "/"),
    ],
)
def test_a_name(name: str, shown: str) -> None:
    assert public_name(name) == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("offline", "offline"),
        ("openai/o3", "openai/o3"),
        ("openrouter/google/gemini-2.5-pro", "openrouter/google/gemini-2.5-pro"),
        ("local:Qwen/Qwen2.5-14B-Instruct", "local:Qwen/Qwen2.5-14B-Instruct"),
        ("local:/home/ann/base", "local:base"),
        ("local:/home/ann/base+/home/ann/run/adapter", "local:base+adapter"),
        (
            "local:Qwen/Qwen2.5-14B-Instruct+me/adapter",
            "local:Qwen/Qwen2.5-14B-Instruct+me/adapter",
        ),
        ("/home/ann/base", "base"),
        ("local:~nobody", "local:~"),
    ],
)
def test_a_model(name: str, shown: str) -> None:
    assert public_model(name) == shown


@given(st.lists(st.text("abcXYZ019._-", min_size=1, max_size=8), min_size=1, max_size=5))
def test_nothing_of_a_path_but_its_end_is_left(parts: list[str]) -> None:
    path = f"/home/annsecret/{'/'.join(parts)}"
    for shown in (public_name(path), public_model(f"local:{path}")):
        assert "annsecret" not in shown
        assert "home" not in shown.replace("/".join(parts), "")
