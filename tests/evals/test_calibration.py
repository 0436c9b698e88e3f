import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.fit import WEIGHTS
from art_e.models.offline import is_to_be_counted
from art_e.question import Question
from data_pipeline.synthetic.world import WorldConfig, questions
from evals.calibration import Example, choose_threshold, examples, fit_weights

NAMES = list(WEIGHTS)
ONE = np.eye(len(NAMES))


def example(rows: Sequence[Sequence[float]] | np.ndarray, right: Sequence[bool]) -> Example:
    return Example(np.asarray(rows, dtype=np.float64), np.asarray(right, dtype=np.bool_))


def scored(scores: Sequence[float], right: Sequence[bool]) -> list[Example]:
    """Questions of one sentence each, whose score under the weights `ONE[0]` is given."""
    return [
        example([score * ONE[0]], [is_right]) for score, is_right in zip(scores, right, strict=True)
    ]


def made_up(planted: int, sign: int, count: int = 150) -> list[Example]:
    """Sentences of random features; the one with the most (or least) of `planted` is right."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(count):
        rows = rng.random((6, len(NAMES)))
        chosen = np.argmax(sign * rows[:, planted])
        found.append(example(rows, [at == chosen for at in range(6)]))
    return found


@pytest.mark.parametrize(("planted", "sign"), [(0, 1), (6, -1), (10, 1)])
def test_a_planted_feature_is_recovered(planted: int, sign: int) -> None:
    weights = fit_weights(made_up(planted, sign))
    assert weights.shape == (len(NAMES),)
    others = np.delete(np.abs(weights), planted)
    assert sign * weights[planted] > 4 * others.max()


def test_any_of_several_right_sentences_may_win() -> None:
    """Two right ones of different kinds: neither kind is pushed below the wrong ones."""
    found = [example([ONE[0], ONE[1], ONE[2]], [True, True, False])] * 20
    weights = fit_weights(found)
    assert weights[0] == pytest.approx(weights[1], abs=1e-3)
    assert weights[0] > weights[2]


def test_a_feature_that_does_not_occur_weighs_nothing() -> None:
    found = [example([ONE[0], ONE[1]], [True, False])] * 20
    weights = fit_weights(found)
    assert weights[0] > 0 > weights[1]
    assert np.abs(weights[2:]).max() < 1e-6


@pytest.mark.parametrize(
    "found",
    [
        [],
        [example(ONE[:2], [True, True]), example(ONE[:2], [False, False])],
    ],
)
def test_nothing_to_learn_from_is_a_user_error(found: list[Example]) -> None:
    with pytest.raises(UserError, match="right and wrong"):
        fit_weights(found)


def test_the_threshold_lies_where_right_and_wrong_balance() -> None:
    rng = np.random.default_rng(3)
    scores = rng.uniform(0, 10, 800)
    right = rng.random(800) < 1 / (1 + np.exp(-2 * (scores - 6)))
    chosen = choose_threshold(scored(scores.tolist(), right.tolist()), ONE[0])
    assert chosen.score == pytest.approx(6, abs=0.3)
    answered = scores >= chosen.score
    assert (chosen.right, chosen.wrong) == (
        int(right[answered].sum()),
        int((~right[answered]).sum()),
    )
    # Near it, right and wrong are about as many.
    near = np.abs(scores - chosen.score) < 1
    assert right[near].mean() == pytest.approx(0.5, abs=0.1)


def test_only_the_best_sentence_of_a_question_counts() -> None:
    found = [
        example([score * ONE[0], (score - 1) * ONE[0]], [score > 5, score <= 5])
        for score in (1.0, 2.0, 3.0, 4.5, 5.5, 7.0, 8.0, 9.0)
    ]
    # A second sentence that is right changes nothing.
    chosen = choose_threshold(found, ONE[0])
    assert 4.5 < chosen.score < 5.5
    assert (chosen.right, chosen.wrong) == (4, 0)


@pytest.mark.parametrize(
    ("scores", "right"),
    [
        ([], []),
        ([1.0, 2.0, 3.0], [True] * 3),
        ([1.0, 2.0, 3.0], [False] * 3),
        ([1.0, 2.0, 3.0, 4.0], [True, True, False, False]),
    ],
)
def test_scores_that_tell_nothing_are_a_user_error(scores: list[float], right: list[bool]) -> None:
    with pytest.raises(UserError, match="more worlds are needed"):
        choose_threshold(scored(scores, right), ONE[0])


@pytest.fixture(scope="module")
def asked() -> list[Question]:
    return questions(WorldConfig(size=1000))


def test_examples_are_what_the_policy_reads(world: InboxFile, asked: list[Question]) -> None:
    lookups = [each for each in asked if each.kind == "lookup" and each.split == "train"][:8]
    found = examples(world, lookups)
    assert len(found) == len(lookups)
    for each in found:
        assert each.features.shape == (len(each.right), len(NAMES))
    # Most gold mails are among those read, and a sentence or a few of each are right.
    assert sum(each.right.any() for each in found) >= 4
    assert all(each.right.mean() < 0.5 for each in found)


def test_no_sentence_is_right_where_there_is_no_answer(
    world: InboxFile, asked: list[Question]
) -> None:
    unanswerable = [each for each in asked if each.kind == "unanswerable"][:6]
    assert not any(each.right.any() for each in examples(world, unanswerable))


def test_a_sentence_of_another_mail_is_not_right(world: InboxFile, asked: list[Question]) -> None:
    lookups = [each for each in asked if each.kind == "lookup"][:6]
    moved = [dataclasses.replace(each, message_ids=("<none@t>",)) for each in lookups]
    assert any(each.right.any() for each in examples(world, lookups))
    assert not any(each.right.any() for each in examples(world, moved))


def test_questions_to_be_counted_are_left_out(world: InboxFile, asked: list[Question]) -> None:
    counts = [each for each in asked if each.kind == "count"]
    plain = [
        each for each in counts if is_to_be_counted([{"role": "user", "content": each.question}])
    ]
    assert len(plain) > 5
    assert len(examples(world, plain[:6])) < 6


def run(*args: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "evals.calibration", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def linked(world_db: Path, tmp_path: Path) -> Path:
    """The world's inbox file in a folder of its own, for questions beside it."""
    path = tmp_path / "world.duckdb"
    path.symlink_to(world_db)
    return path


def write_questions(world: Path, asked: list[Question]) -> None:
    lines = "".join(f"{json.dumps(each.to_row())}\n" for each in asked)
    world.with_suffix(".questions.jsonl").write_text(lines, encoding="utf-8")


def test_the_command_prints_a_weight_for_each_feature_and_a_threshold(
    linked: Path, asked: list[Question]
) -> None:
    write_questions(linked, [each for each in asked if each.split in ("train", "validation")])
    done = run(linked)
    assert (done.returncode, done.stderr) == (0, "")
    *weights, threshold = done.stdout.splitlines()
    # As it stands in fit.py.
    printed = json.loads(f"{{{' '.join(weights).strip().rstrip(',')}}}")
    assert list(printed) == NAMES
    assert all(isinstance(each, float) and abs(each) < 10 for each in printed.values())
    # What any world says: words and the value asked for speak for a sentence.
    assert min(printed["own"], printed["stated"]) > 0.5
    assert printed["short"] < 0
    assert threshold.startswith("ABSTAIN_BELOW = ")
    assert threshold.endswith(" validation questions")


def test_errors_are_one_line(linked: Path, asked: list[Question], tmp_path: Path) -> None:
    (tmp_path / "broken.duckdb").write_bytes(b"no database")
    cases = [(tmp_path / "none.duckdb", "no inbox file"), (tmp_path / "broken.duckdb", "rebuild")]
    cases.append((linked, "no questions at"))
    for path, words in cases:
        done = run(path)
        assert (done.returncode, done.stdout) == (2, ""), path
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("Error: ")
        assert words in done.stderr


def test_a_split_that_is_missing_is_named(linked: Path, asked: list[Question]) -> None:
    write_questions(linked, [each for each in asked if each.split == "train"][:2])
    done = run(linked)
    assert done.returncode == 2
    assert "validation" in done.stderr
    assert len(done.stderr.splitlines()) == 1
