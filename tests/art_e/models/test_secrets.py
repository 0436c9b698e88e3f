"""Keys don't pass `redact`, whole or in part; innocent text does."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.privacy import REDACTED, load_env, redact

NAMES = (
    "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "apikey", "DB_PASSWD",
    "GOOGLE_APPLICATION_CREDENTIALS", "VAULT_TOKENS",
)  # fmt: skip
key_text = st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="-_+/="))
anything = st.text(max_size=40)


@given(
    st.lists(st.tuples(st.sampled_from(NAMES), key_text.filter(lambda key: len(key) >= 8))),
    st.lists(anything, min_size=1),
    st.data(),
)
def test_no_value_of_a_key_passes(
    keys: list[tuple[str, str]], parts: list[str], data: st.DataObject
) -> None:
    pieces = [*parts, *(key for _, key in keys), *(f"Bearer {key}" for _, key in keys)]
    text = "".join(data.draw(st.permutations(pieces)))
    with pytest.MonkeyPatch.context() as environment:
        for name, key in keys:
            environment.setenv(name, key)
        shown = redact(text)
    for name, key in dict(keys).items():
        assert key not in shown.replace(REDACTED, "\0"), name


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcDEF123456_789-xyz",
        "sk-abc***************xyz",
        "sk-ant-api03-abcdefgh",
        "sk-proj-...wxyz",
        "test-key*********1234",
        "****1234",
        "abcd••••••••",
        "AIzaSyD-abcdefghijklmnopqrstuvwxyz12345",
        "hf_abcdefghijklmnopqrst",
        "gsk_abcdefghijklmnop",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N",
    ],
)
@pytest.mark.parametrize("frame", ["{}", "Incorrect API key provided: {}. See x.", "'{}',", "({})"])
def test_what_has_the_shape_of_a_key_does_not_pass(secret: str, frame: str) -> None:
    shown = redact(frame.format(secret))
    assert REDACTED in shown
    assert secret not in shown
    for part in (secret[:6], secret[-4:]):
        assert part not in shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "429: Rate limit reached for o3 in organization org on tokens per min",
        "missing bearer or basic authentication in header",
        "the task-oriented desk-mate asks for risk-free music",
        "set HF_HUB_OFFLINE=1 or export OPENAI_API_KEY=",
        "write to ann@harbor.example, see https://platform.openai.com/account/api-keys.",
        "a ** bold ** word and a rule:\n****\n2 * 3 * 4",
        "TOKENIZERS_PARALLELISM is unset",
    ],
)
def test_innocent_text_passes(text: str) -> None:
    assert redact(text) == text


def test_the_beginning_of_a_known_key_with_dots_is_taken_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "correct-horse-battery")
    assert redact("got correct-ho...ery, want another") == f"got {REDACTED}, want another"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    load_env.cache_clear()
    return tmp_path


def test_what_is_set_wins_over_the_file(folder: Path) -> None:
    os.environ["B_KEY"] = "set"
    (folder / ".env").write_text("A_KEY=file\nexport B_KEY='file'\n# C_KEY=no\n", encoding="utf-8")
    load_env()
    assert (os.environ["A_KEY"], os.environ["B_KEY"]) == ("file", "set")
    assert "C_KEY" not in os.environ
