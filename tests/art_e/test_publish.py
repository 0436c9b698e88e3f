"""What others may see of names and settings, and folders pushed to a hub on this machine."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e import publish as hub_module
from art_e.errors import UserError
from art_e.publish import RepoType, public_model, public_name, public_text, upload_of
from tests.hub import TOKEN, Hub, running

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
    for shown in (
        public_name(path), public_model(f"local:{path}"), public_text(f"can't read {path}: gone"),
    ):  # fmt: skip
        assert "annsecret" not in shown
        assert "home" not in shown.replace("/".join(parts), "")


NAME = "someone/questions"
EARLIER = ("test.*", "train.*")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    (out / "below").mkdir(parents=True)
    for name, data in (
        ("README.md", b"# Card\n"),
        ("test.parquet", b"PAR1\x00\xff"),
        ("test.jsonl", b"{}\n"),
        ("below/more.json", b"[]"),
    ):
        (out / name).write_bytes(data)
    return out


def push(
    folder: Path,
    name: str = NAME,
    *,
    private: bool = True,
    repo_type: RepoType = "dataset",
    replaces: Sequence[str] = EARLIER,
) -> str:
    upload = upload_of(folder, name, repo_type, private=private)
    return hub_module.push(upload, replaces=replaces, message="New")


def refused(folder: Path, name: str = NAME, *, private: bool = True) -> str:
    with pytest.raises(UserError) as caught:
        push(folder, name, private=private)
    said = str(caught.value)
    assert TOKEN not in said
    assert "\n" not in said
    return said


def test_a_second_push_leaves_nothing_of_the_first_and_all_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        push(folder)
        hub.repos[NAME] |= {"other.md": b"", ".gitattributes": b"*"}
        for form in ("parquet", "jsonl"):
            (folder / f"test.{form}").rename(folder / f"train.{form}")
        push(folder)
    assert sorted(hub.repos[NAME]) == [
        ".gitattributes", "README.md", "below/more.json", "other.md", "train.jsonl",
        "train.parquet",
    ]  # fmt: skip
    assert hub.commits == 2


def test_nothing_is_sent_where_others_would_see_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        hub.repos[NAME], hub.private[NAME] = {}, False
        assert "public on the hub already: push with --public" in refused(folder)
        hub.private[NAME] = True
        assert "push with --private" in refused(folder, private=False)
    assert hub.repos[NAME] == {}


def test_without_a_token_the_hub_is_not_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch, token=None)
        said = refused(folder)
    assert "hf auth login" in said
    assert "HF_TOKEN" in said
    assert hub.requests == 0


@pytest.mark.parametrize(
    ("status", "named"), [(401, "hf auth login"), (403, "HF_TOKEN"), (400, "check the id")]
)
def test_a_refusal_is_one_line_without_the_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch, status: int, named: str
) -> None:
    with running(Hub(refuses=status)) as hub:
        hub.stand_in(monkeypatch)
        assert named in refused(folder)


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "../etc", "-x/--y", "x" * 200])
def test_a_name_that_is_none_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        refused(folder, name)
    assert hub.requests == 0
