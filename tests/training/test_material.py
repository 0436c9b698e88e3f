"""What is asked: splits share nothing, and a world's file is made once and used again."""

import json
from pathlib import Path

import pytest

from art_e.errors import UserError
from data_pipeline.cli import read_sources
from data_pipeline.ingest.sources import questions_of
from tests.training import tiny
from training import material as module
from training.material import load_material, load_part, planted_in
from training.recipe import Data, EpisodeForm
from training.rollout import Material


@pytest.fixture
def data(home: Path) -> Data:
    return tiny.recipe().data


def test_splits_share_no_question_and_no_inbox(data: Data) -> None:
    train, validation = load_material(data, "train"), load_material(data, "validation")
    for made, split in ((train, "train"), (validation, "validation")):
        assert {each.split for each in made.questions} == {split}
        assert {each.kind for each in made.questions} == set(data.kinds)
    assert {each.id for each in train.questions} <= set(planted_in(data))
    mails = [
        {each for q in made.questions for each in q.message_ids} for made in (train, validation)
    ]
    assert not mails[0] & mails[1]
    assert not {each.id for each in train.questions} & {each.id for each in validation.questions}


def test_a_golden_set_may_be_held_out_beside_worlds_that_are_trained_on(
    data: Data, tmp_path: Path
) -> None:
    db = tmp_path / "held-out.duckdb"
    source = "synthetic:1000,seed=7,short,split="
    read_sources([f"{source}test"], db)
    asked = tmp_path / "held-out.questions.jsonl"
    both = data.model_copy(update={"questions": str(asked), "db": str(db)})
    test = load_material(both, "test")
    assert {each.id for each in test.questions} <= {
        each.id for each in questions_of(f"{source}test")
    }
    assert test.inbox_file.path == db
    train = load_material(both, "train")
    assert [each.id for each in train.questions] == [
        each.id for each in load_material(data, "train").questions
    ]
    with pytest.raises(UserError, match="validation"):
        load_material(both, "validation")
    strangers = load_part(both, "strangers")
    assert strangers is not None
    assert strangers.inbox_file.path != db


@pytest.mark.parametrize("share", [0.1, 0.34, 0.9])
def test_no_greater_share_is_unanswerable(data: Data, share: float) -> None:
    every = load_material(data.model_copy(update={"unanswerable": None}), "train").questions
    kept = load_material(data.model_copy(update={"unanswerable": share}), "train").questions
    assert [each for each in kept if each.answerable] == [each for each in every if each.answerable]
    assert [each for each in every if each in kept] == kept
    left = [each for each in kept if not each.answerable]
    had = sum(not each.answerable for each in every)
    assert len(left) / len(kept) <= share
    # One more would be too many, or there is none.
    assert len(left) == had or (len(left) + 1) / (len(kept) + 1) > share


def test_strangers_have_no_name_of_training(data: Data) -> None:
    strangers = load_part(data, "strangers")
    assert strangers is not None
    known = {
        word
        for planted in planted_in(data).values()
        for subject in planted.subjects
        for word in subject.split()
    }
    assert data.worlds is not None
    apart = data.worlds.model_copy(update={"train": data.worlds.strangers, "names": None})
    theirs = planted_in(data.model_copy(update={"worlds": apart}))
    about = {name: each.subjects for name, each in theirs.items()}
    for each in strangers.questions:
        assert each.split == "test"
        assert not known & set(" ".join(about[each.id]).split())
    assert data.worlds is not None
    none = data.worlds.model_copy(update={"strangers": None})
    assert load_part(data.model_copy(update={"worlds": none}), "strangers") is None


def test_a_worlds_file_is_made_once(
    data: Data, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_material(data, "train")
    files = {each.name: each.stat().st_mtime_ns for each in (home / "worlds").glob("*.duckdb")}

    def ingest(*_: object) -> None:
        raise AssertionError("made again")

    monkeypatch.setattr(module, "ingest", ingest)
    again = load_material(data, "train")
    assert again.questions == first.questions
    assert files == {
        each.name: each.stat().st_mtime_ns for each in (home / "worlds").glob("*.duckdb")
    }
    # Another world is another file.
    assert data.worlds is not None
    other = data.worlds.model_copy(update={"vocabulary": 900})
    with pytest.raises(AssertionError, match="made again"):
        load_material(data.model_copy(update={"worlds": other}), "train")


def test_no_question_of_a_kind_is_refused(data: Data, tmp_path: Path) -> None:
    golden = tmp_path / "golden.jsonl"
    material = load_material(data, "train")
    rows = [
        {**each.to_row(), "split": "train"} for each in material.questions if each.kind == "lookup"
    ]
    golden.write_text("".join(f"{json.dumps(each)}\n" for each in rows), encoding="utf-8")
    named = Data(questions=str(golden), db=str(material.inbox_file.path))
    told = load_material(named, "train")
    assert [each.id for each in told.questions] == [each["id"] for each in rows]
    # No expert can be asked about these.
    assert not planted_in(named)
    with pytest.raises(UserError, match="split train has no question of count"):
        load_material(named.model_copy(update={"kinds": ("count",)}), "train")


def test_the_golden_set_of_the_home_is_used_where_none_is_named(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    material = load_material(data, "train")
    monkeypatch.setenv("ART_E_HOME", str(tmp_path))
    own = Data(db=str(material.inbox_file.path), train_questions=5)
    with pytest.raises(UserError, match=r"no golden set at .*art-e golden import"):
        load_material(own, "train")
    (tmp_path / "golden").mkdir()
    for name in ("train", "test"):
        rows = (json.dumps(each.to_row() | {"split": name}) for each in material.questions)
        (tmp_path / "golden" / f"{name}.jsonl").write_text("\n".join(rows), encoding="utf-8")
    few = load_material(own, "train").questions
    assert len(few) == 5
    assert [each.id for each in load_material(own, "train").questions] == [e.id for e in few]
    # Training alone has fewer.
    assert len(load_material(own, "test").questions) == len(material.questions)


def test_an_episode_is_held_as_the_recipe_says(material: Material) -> None:
    form = EpisodeForm(max_turns=2, prompt="Be brief.", hits=2, snippet_chars=10, addresses=False)
    question = material.questions[0]
    episode = material.episode(question, form)
    assert episode.messages[0]["content"] == "Be brief."
    assert episode.rubric.max_turns == 2
    assert episode.question == question
    assert material.episode(question, form) is not episode
