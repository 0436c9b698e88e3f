"""Pushing an export, against a hub on this machine: what arrives, and what is refused."""

from pathlib import Path

import pytest

from art_e.errors import UserError
from data_pipeline.golden.hub import push
from tests.hub import TOKEN, Hub, running

NAME = "someone/questions"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    out.mkdir()
    for name, data in (
        ("README.md", b"# Card\n"),
        ("test.parquet", b"PAR1\x00\xff"),
        ("test.jsonl", b"{}\n"),
    ):
        (out / name).write_bytes(data)
    return out


def refused(folder: Path, name: str = NAME, *, private: bool = True) -> str:
    with pytest.raises(UserError) as caught:
        push(folder, name, private=private)
    said = str(caught.value)
    assert TOKEN not in said
    assert "\n" not in said
    return said


@pytest.mark.parametrize("private", [True, False])
def test_every_file_arrives_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        assert push(folder, NAME, private=private).endswith(f"/datasets/{NAME}")
    assert hub.repos[NAME] == {each.name: each.read_bytes() for each in folder.iterdir()}
    assert hub.private[NAME] is private
    assert hub.tokens == {TOKEN}


def test_a_second_push_leaves_nothing_of_the_first_and_all_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        push(folder, NAME, private=True)
        hub.repos[NAME] |= {"other/train.parquet": b"", ".gitattributes": b"*"}
        for form in ("parquet", "jsonl"):
            (folder / f"test.{form}").rename(folder / f"train.{form}")
        push(folder, NAME, private=True)
    assert sorted(hub.repos[NAME]) == [
        ".gitattributes", "README.md", "other/train.parquet", "train.jsonl", "train.parquet",
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
    assert not hub.tokens


@pytest.mark.parametrize(
    ("status", "named"), [(401, "hf auth login"), (403, "HF_TOKEN"), (400, "check the id")]
)
def test_a_refusal_is_one_line_without_the_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch, status: int, named: str
) -> None:
    with running(Hub(refuses=status)) as hub:
        hub.stand_in(monkeypatch)
        assert named in refused(folder)


def test_a_hub_that_is_away_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
    assert "check the id (NAME/SET) and the network" in refused(folder)


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "../etc", "-x/--y", "x" * 200])
def test_a_name_that_is_none_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        refused(folder, name)
    assert not hub.repos
