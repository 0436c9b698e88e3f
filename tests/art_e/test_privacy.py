"""Mail and keys stay with their owner: modes of files, proxies, code beside weights, names."""

import json
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.models import clients
from art_e.models.base import ModelOptions, PolicyError
from art_e.models.hosted import LitellmPolicy
from art_e.privacy import REDACTED, redact, without_keys
from art_e.publish import public_name
from tests import tiny_qwen
from tests.builders import QUICK, WAIT_S, act, answer, search, table_rows
from tests.command_line import ANN, MAILS, Process, Run, the_error
from tests.provider import MODELS, Provider, Reply, Request, json_server, openai, says, stand_in


def test_files_with_mail_are_private(art_e: Run, home: Path, tmp_path: Path) -> None:
    (tmp_path / "1.eml").write_bytes(MAILS[0].data)
    before = os.umask(0o022)
    try:
        assert art_e("ingest", tmp_path / "1.eml", "--owner", ANN).exit_code == 0
        assert art_e("ask", "When does the lease end?").exit_code == 0
    finally:
        os.umask(before)
    files = [home, *home.rglob("*")]
    assert {each.name for each in files} >= {"inbox.duckdb", "trajectories.jsonl", "config.json"}
    modes = {str(each): stat.S_IMODE(each.stat().st_mode) for each in files}
    assert modes == {str(each): 0o700 if each.is_dir() else 0o600 for each in files}


def run_ask(process: Process, db: Path, model: str, folder: Path) -> tuple[int, str]:
    """Return the exit code and notes of `art-e ask` as a process of its own in a folder."""
    command = ["ask", "When does the lease end?", "--inbox", ANN, "--db", db, "--model", model]
    started = process(*command, cwd=folder)
    _, notes = started.communicate(timeout=WAIT_S)
    return started.returncode, notes


def test_local_models_are_called_without_a_proxy(
    tmp_path: Path, db: Path, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overhears(_: Request) -> object:
        raise AssertionError("a proxy was asked")

    with Provider([says("I don't know")] * 3) as model, Provider(overhears) as proxy:  # type: ignore[arg-type]
        there = proxy.base_url.removesuffix("/v1")
        places = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), there)
        for name, place in {**places, "NO_PROXY": "intranet.example"}.items():
            monkeypatch.setenv(name, place)
            monkeypatch.setenv(name.lower(), place)
        port = model.base_url.rpartition(":")[2]
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"http://localhost:{port}")
        _, notes = run_ask(process, db, "hosted_vllm/mine", tmp_path)
        assert proxy.requests == []
        assert model.requests, notes


def test_env_file_sets_only_keys(
    tmp_path: Path, db: Path, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the working directory's `.env` keys count, and neither an address nor a proxy."""
    answers = [says("I don't know")] * 3
    with Provider(answers, key="sk-own-0123456789") as model, Provider(answers) as trap:
        trapped = trap.base_url.removesuffix("/v1")
        refused = {
            "HTTP_PROXY": trapped, "HOSTED_VLLM_API_BASE": trap.base_url,
            "AWS_SHARED_CREDENTIALS_FILE": tmp_path / "aws", "GEMINI_API_KEY": trapped,
            "GITHUB_COPILOT_API_KEY_URL": trapped, "GITHUB_COPILOT_TOKEN_DIR": "${HOME}",
        }  # fmt: skip
        lines = {
            "OPENAI_API_KEY": "sk-own-0123456789", "OPENAI_BASE_URL": trap.base_url,
            "https_proxy": trapped, "ART_E_HOME": tmp_path / "trap", "HF_ENDPOINT": trapped,
            "NO_PROXY": "", **refused,
        }  # fmt: skip
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        (tmp_path / ".env").write_text(text)
        monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
        for name, code in (("openai/o3", 0), ("hosted_vllm/mine", 2)):
            ended, notes = run_ask(process, db, name, tmp_path)
            [note] = [each for each in notes.splitlines() if each.startswith(".env")]
            named = note.partition(" export: ")[2].split(", ")
            assert refused.keys() <= {*named} and "OPENAI_API_KEY" not in named
            assert ended == code, notes
        assert model.requests and trap.requests == []
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize("model", [*MODELS, "openai/gpt-5.5", "ollama/mine", "cohere_chat/mine"])
def test_a_redirect_is_refused_with_both_hosts(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trapped: list[str] = []
    paths: list[str] = []
    statuses: list[int] = []

    def trap(_: str, path: str, *__: object) -> tuple[int, object]:
        trapped.append(path)
        return 200, {}

    def send_on(_: str, path: str, *__: object) -> Reply:
        paths.append(path)
        return Reply(b"{}", statuses[-1], {"Location": f"{there}/v1?key=4"})

    with json_server(trap) as there, json_server(send_on) as here:
        stand_in(monkeypatch, model, here)
        hosts = [each.removeprefix("http://") for each in (here, there)]
        for status in (301, 302, 303, 307, 308):
            statuses.append(status)
            paths.clear()
            with pytest.raises(PolicyError) as error:
                act(LitellmPolicy(model, ModelOptions(), QUICK))
            assert f"{model}: {hosts[0]} redirects the call to {hosts[1]}, and" in str(error.value)
            assert (error.value.kind, error.value.retries) == ("redirect", 0)
            assert len(paths) == 1
        if model.startswith("openai"):
            streamed = ModelOptions(on_answer=lambda _: None)
            with pytest.raises(PolicyError, match="redirects are not followed"):
                act(LitellmPolicy(model, streamed, QUICK))
    assert trapped == []


@pytest.mark.parametrize("model", ["hosted_vllm/mine", "ollama/mine", "gemini/gemini-2.5-pro"])
def test_an_answer_without_an_end_is_not_read(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_MAX_BYTES", 1_000_000)
    with json_server(lambda *_: (200, {"no": "end" * 1_000_000})) as here:
        stand_in(monkeypatch, model, here)
        with pytest.raises(PolicyError, match="an answer of over 1 MB"):
            act(LitellmPolicy(model, ModelOptions(), QUICK))


def test_code_that_comes_with_weights_is_never_run(art_e: Run, db: Path, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    tiny_qwen.make_tokenizer(["When does the lease end?"]).save_pretrained(tmp_path)
    (tmp_path / "evil.py").write_text(f"import pathlib; pathlib.Path({str(marker)!r}).touch()")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = art_e("ask", "When?", "--inbox", ANN, "--db", db, "--model", f"local:{tmp_path}")
    assert "can't be loaded" in the_error(done)
    assert not marker.exists()


NAMES = (
    "OPENAI_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "apikey", "DB_PASSWD",
    "GOOGLE_APPLICATION_CREDENTIALS", "VAULT_TOKENS",
)  # fmt: skip


def test_key_values_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each begins with the one before, which must not end it.
    keys = {name: "Q7-x+/=" * 2 + "y" * number for number, name in enumerate(NAMES)}
    for name, key in keys.items():
        monkeypatch.setenv(name, key)
    redacted = redact(", ".join(f"Bearer {key}" for key in keys.values()))
    assert "Q7" not in redacted and "y" not in redacted.replace(REDACTED, "")


SECRETS = """sk-proj-abcDEF123456_789-xyz sk-proj-...wxyz test-key*********1234 abcd••••••••
    AIzaSyD-abcdefghijklmnopqrstuvwxyz12345 hf_abcdefghijklmnopqrst AKIAIOSFODNN7EXAMPLE
    eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N""".split()


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("frame", ["Incorrect API key provided: {}. See x.", "('{}',)"])
def test_text_shaped_like_a_key_is_redacted(secret: str, frame: str) -> None:
    redacted = redact(frame.format(secret))
    assert REDACTED in redacted
    assert secret[:6] not in redacted and secret[-4:] not in redacted


ECHOED = "sk-proj-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0"
# Letters that the key has not: one beside a piece of it would go on with it.
PARTS = st.text("ux\n =-.:/", max_size=5)


@given(PARTS, PARTS, st.integers(0, len(ECHOED) - 8), st.integers(8, 40), st.sampled_from(" \n-|"))
def test_a_key_is_redacted(before: str, after: str, start: int, size: int, gap: str) -> None:
    """In pieces of 8 characters and more, and split; the words around it stay."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPENAI_API_KEY", ECHOED)
        patched.setenv("VLLM_API_KEY", "correct-horse-battery")
        redacted = without_keys(f"{before}{ECHOED[start : start + size]}{after}")
        pieces = [ECHOED[at : at + 8] for at in range(8, len(ECHOED) - 7)]
        assert not any(each in redacted for each in pieces)
        assert redacted.replace(REDACTED, "").startswith(before.rstrip("-"))
        assert gap.join(ECHOED)[9:] not in without_keys(f"{before}{gap.join(ECHOED)}{after}")
        text = "The provider's battery, of horses, sk-or-what, 2001-05-03, <lease.1@x.example>"
        assert without_keys(text) == text
        text = "429: Rate limit for o3 in organization org\nthe task-oriented desk-mate, risk-free"
        text += "\nhttps://platform.openai.com/account/api-keys.\na ** bold ** word\n****\n2 * 3"
        assert redact(text) == text
        assert redact("got correct-ho...ery, want another") == f"got {REDACTED}, want another"


def test_keys_echoed_by_a_server_are_redacted(art_e: Run, db: Path, home: Path) -> None:
    says_it = answer(f"Your key is {ECHOED}, or {ECHOED[8:22]} and {' '.join(ECHOED)}")
    replies = [says(f"{ECHOED}?", search("lease")), says(None, says_it)]
    with openai(replies, ECHOED):
        done = art_e("ask", "When?", "--inbox", ANN, "--db", db, "--model", "o3", "--trace")
        reported = art_e("eval", "report", "last")
    assert done.exit_code == 0 and REDACTED in done.stdout, reported.stderr
    written = "".join(each.read_text("utf-8", "replace") for each in home.rglob("*.*"))
    for text in (done.stdout, done.stderr, written):
        assert ECHOED[8:16] not in text.replace(" ", "")


def test_names_of_files_show_no_folder() -> None:
    for name, public in table_rows(__file__, "public_names.tsv"):
        assert public_name(name) == public
