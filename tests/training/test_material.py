"""The questions of training: splits share nothing, and a world's file is made once."""

import json
from pathlib import Path
from unittest import mock

import pytest

from art_e.errors import UserError
from data_pipeline.cli import read_sources
from data_pipeline.ingest import build
from data_pipeline.ingest.sources import questions_of
from tests.training import tiny
from training.cli import load_material, planted_in
from training.recipe import Data
from training.rollout import Material


@pytest.fixture
def data(home: Path) -> Data:
    return tiny.recipe().data


def ids(material: Material) -> list[str]:
    return [each.id for each in material.questions]


def test_splits_share_no_question_and_no_inbox(data: Data) -> None:
    train, validation = load_material(data, "train"), load_material(data, "validation")
    for made, split in ((train, "train"), (validation, "validation")):
        assert {each.split for each in made.questions} == {split}
        assert {each.kind for each in made.questions} == set(data.kinds)
    assert set(ids(train)) <= set(planted_in(data))
    one, other = (
        {m for q in each.questions for m in q.message_ids} for each in (train, validation)
    )
    assert not one & other
    assert not set(ids(train)) & set(ids(validation))


def test_a_golden_set_may_be_held_out_beside_training_worlds(data: Data, tmp_path: Path) -> None:
    db = tmp_path / "held-out.duckdb"
    source = "synthetic:1000,seed=7,short,split="
    read_sources([f"{source}test"], db)
    questions = tmp_path / "held-out.questions.jsonl"
    both = data.model_copy(update={"questions": str(questions), "db": str(db)})
    test = load_material(both, "test")
    assert set(ids(test)) <= {each.id for each in questions_of(f"{source}test")}
    assert {file.path for file in test.file_of.values()} == {db}
    assert ids(load_material(both, "train")) == ids(load_material(data, "train"))


@pytest.mark.parametrize("share", [0.1, 0.34, 0.9])
def test_the_share_of_unanswerable_questions_is_capped(data: Data, share: float) -> None:
    every = load_material(data.model_copy(update={"unanswerable": None}), "train").questions
    kept = load_material(data.model_copy(update={"unanswerable": share}), "train").questions
    assert [each for each in kept if each.answerable] == [each for each in every if each.answerable]
    assert [each for each in every if each in kept] == kept
    left, had = (sum(not each.answerable for each in some) for some in (kept, every))
    assert left / len(kept) <= share
    # One more would be too many, or there is none.
    assert left == had or (left + 1) / (len(kept) + 1) > share


def test_a_worlds_file_is_made_once(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_material(data, "train")
    monkeypatch.setattr(build, "ingest", mock.Mock(side_effect=AssertionError("made again")))
    assert load_material(data, "train").questions == first.questions
    # Another world is another file.
    assert data.worlds is not None
    other = data.worlds.model_copy(update={"vocabulary": 900})
    with pytest.raises(AssertionError, match="made again"):
        load_material(data.model_copy(update={"worlds": other}), "train")


def test_golden_set_of_the_home(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    material = load_material(data, "train")
    monkeypatch.setenv("ART_E_HOME", str(tmp_path))
    own = Data(db=str(next(iter(material.file_of.values())).path), train_questions=5)
    with pytest.raises(UserError, match=r"no golden set at .*art-e golden import"):
        load_material(own, "train")
    (tmp_path / "golden").mkdir()
    for name in ("train", "test"):
        rows = (json.dumps(each.to_row() | {"split": name}) for each in material.questions)
        (tmp_path / "golden" / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    few = load_material(own, "train")
    assert len(few.questions) == 5
    assert ids(load_material(own, "train")) == ids(few)
    # Training alone has fewer.
    assert len(load_material(own, "test").questions) == len(material.questions)
    named = Data(questions=str(tmp_path / "golden"), db=own.db)
    assert ids(load_material(named, "train")) == ids(material)
    # Nothing is planted for the expert in these.
    assert not planted_in(named)
    with pytest.raises(UserError, match="split train has no question of count"):
        load_material(named.model_copy(update={"kinds": ("count",)}), "train")


def test_held_out_questions_are_always_the_same(material: Material) -> None:
    first = material.held_out(10)
    assert len(first) == 10
    assert material.held_out(20)[:10] == first != material.questions[:10]
    assert len(material.held_out(10**6)) == len(material.questions)
