"""The curves that a training run's own rows give, and the page and pictures that have them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from evals.report.build import build_report
from evals.report.charts import SERIES, CurveChart
from evals.report.entries import measure
from evals.report.training import (
    LEAST_SMOOTHED,
    SMOOTH,
    Row,
    TrainingRows,
    read_training,
    step_charts,
    validation_charts,
)
from tests.evals.runs import episodes, step, trained, training, validation, write_run
from training.progress import Step

HOSTILE = "</script><script>alert(1)</script>\x1b[2J"


def by_name(charts: Sequence[CurveChart]) -> dict[str, CurveChart]:
    return {each.name: each for each in charts}


def values(chart: CurveChart, curve: int = 0) -> list[float | None]:
    return [mark.value for mark in chart.curves[curve].marks]


def test_steps_have_their_curves(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", [step(1), step(2, entropy=0.2, flat_groups=6), step(3)])
    drawn = by_name(step_charts(read_training([run])))
    assert list(drawn) == [
        "steps-reward", "steps-entropy", "steps-flat-groups", "steps-format-errors",
        "steps-tokens-per-second", "steps-loss",
    ]  # fmt: skip
    assert drawn["steps-entropy"].curves[0].steps == (1, 2, 3)
    assert values(drawn["steps-entropy"]) == [0.25, 0.2, 0.25]
    assert values(drawn["steps-flat-groups"]) == [0.25, 0.75, 0.25]
    # Sums over the run: what came before the first step is not told.
    assert values(drawn["steps-tokens-per-second"]) == [None, 500, 500]
    assert [each.label for each in drawn["steps-reward"].curves] == [
        "reward",
        "correctness",
        "format",
    ]


def test_a_run_with_a_kl_term_has_its_curve(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", [step(1, kl=0.001), step(2)])
    assert values(by_name(step_charts(read_training([run])))["steps-kl"]) == [0.001, None]


def test_a_step_beside_a_validation_says_nothing_of_speed(tmp_path: Path) -> None:
    steps = [step(number) for number in range(1, 7)]
    run = trained(tmp_path / "run", steps, [validation(0), validation(3)])
    speed = by_name(step_charts(read_training([run])))["steps-tokens-per-second"]
    assert values(speed) == [None, 500, None, None, 500, 500]


def test_many_components_are_two_charts_by_size(tmp_path: Path) -> None:
    parts = {f"part_{number}": 0.1 * number * (-1) ** number for number in range(1, 9)}
    # A step in which nobody earned a part does not have it.
    run = trained(
        tmp_path / "run", [step(1, components=parts), step(2, components={"part_8": 1.0})]
    )
    drawn = by_name(step_charts(read_training([run])))
    large, small = drawn["steps-reward"], drawn["steps-reward-2"]
    assert [each.label for each in large.curves] == [
        "reward", "part 8", "part 7", "part 6", "part 5", "part 4",
    ]  # fmt: skip
    assert len(large.curves) == len(SERIES)
    assert [each.label for each in small.curves] == ["part 3", "part 2", "part 1"]
    assert values(small) == pytest.approx([-0.3, 0.0])


def test_long_runs_are_smoothed_and_short_ones_are_not(tmp_path: Path) -> None:
    steps = [step(number) for number in range(1, LEAST_SMOOTHED + 1)]
    for count, smooth in ((LEAST_SMOOTHED - 1, 1), (LEAST_SMOOTHED, SMOOTH)):
        [made] = read_training([trained(tmp_path / str(count), steps[:count])])
        drawn = step_charts([made])
        assert {each.smooth for each in drawn} == {smooth}
        assert all((str(SMOOTH) in each.note) == (smooth > 1) for each in drawn)
        assert not [each for each in validation_charts([made]) if each.smooth > 1]


def test_validations_have_a_chart_a_figure_and_a_curve_a_run(tmp_path: Path) -> None:
    runs = [
        trained(tmp_path / name, [step(1), step(2)], [validation(0, None), validation(2, 0.75)])
        for name in ("seed-0", "seed-1")
    ]
    rows = read_training(runs)
    held_out, stepwise = by_name(validation_charts(rows)), by_name(step_charts(rows))
    figures = ("accuracy", "hallucination", "abstention", "turns", "effort", "reward")
    assert list(held_out) == [f"validation-{each}" for each in figures]
    for chart in (held_out["validation-accuracy"], stepwise["steps-entropy"]):
        assert [each.label for each in chart.curves] == ["seed-0", "seed-1"]
    assert values(held_out["validation-accuracy"]) == [None, 0.75]
    assert held_out["validation-accuracy"].note.endswith("200 questions each.")
    assert stepwise["steps-reward-1"].note.startswith("seed-0: ")
    assert stepwise["steps-reward-2"].note.startswith("seed-1: ")


def test_other_models_are_lines_where_they_measure_the_same(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", [], [validation(0), validation(20)])
    other = write_run(tmp_path / "other", episodes("free", {"right": 5}))
    entries = [entry for each in measure([other]) for entry in each.entries]
    drawn = by_name(validation_charts(read_training([run]), entries))
    lines = {name: [each.label for each in chart.baselines] for name, chart in drawn.items()}
    assert lines.pop("validation-accuracy") == ["free"]
    assert lines.pop("validation-abstention") == ["free"]
    assert not any(lines.values())


def test_names_of_files_are_not_given_twice(tmp_path: Path) -> None:
    parts = {f"part_{number}": 0.1 * number for number in range(1, 9)}
    runs = [
        trained(tmp_path / name, [step(1, components=parts)], [validation(0)])
        for name in ("a", "b", "c")
    ]
    made = read_training(runs)
    names = [each.name for each in (*validation_charts(made), *step_charts(made))]
    assert len(names) == len(set(names))


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    runs = [trained(tmp_path / name / "run", [step(1)]) for name in ("a", "b")]
    labels = [each.label for each in read_training(runs)]
    assert len(set(labels)) == 2


def test_what_is_no_figure_is_not_drawn_and_what_is_new_is_ignored(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", training([0], n=5))
    rows: list[dict[str, Any]] = [
        {"step": 2, "entropy": 0.5, "colour": "red", "components": [1]},
        {"step": 1, "entropy": None, "loss": "low", "groups": 0, "flat_groups": 0},
        {"step": 3, "entropy": True, "kl": float("nan"), "components": {"format": None}},
        {"step": 2, "entropy": 0.4},
        {"entropy": 9},
    ]
    (run.folder / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    run.write_json("metrics.json", {"validation": None, "alarms": ["x"]})
    [made] = read_training([run])
    [chart] = step_charts([made])
    assert (chart.name, chart.curves[0].steps) == ("steps-entropy", (1, 2, 3))
    # The last one counts where a step was made again.
    assert values(chart) == [None, 0.4, None]
    assert validation_charts([made]) == [] == made.alarms


def test_a_line_that_a_kill_cut_off_is_left_out(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", [step(1)])
    with (run.folder / "steps.jsonl").open("a") as file:
        file.write('{"step": 2')
    [made] = read_training([run])
    assert list(made.steps) == [1]


@pytest.mark.parametrize("name", ["steps.jsonl", "metrics.json"])
@pytest.mark.parametrize("content", ["no json\n", "\udcff\n"])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, name: str, content: str) -> None:
    run = trained(tmp_path / "run", [step(1)])
    (run.folder / name).write_text(content, errors="surrogateescape")
    with pytest.raises(UserError, match=f"{name} can't be read"):
        build_report([run], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_that_were_not_trained_have_none(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "plain", episodes("m", {"right": 3}))
    assert read_training([plain]) == []
    assert validation_charts([]) == [] == step_charts([])


def test_the_page_and_its_folder_have_them(tmp_path: Path) -> None:
    alarm = {"step": 7, "kind": "no spread", "message": f"says {HOSTILE}"}
    run = trained(tmp_path / "run", [step(1), step(2)], [validation(0), validation(2)], [alarm])
    written = build_report([run], tmp_path / "out")
    plots = {each.stem for each in written[1:]}
    assert {"validation-accuracy", "steps-reward", "steps-loss"} <= plots
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in written[1:])
    page = written[0].read_text("utf-8")
    assert page.index(">Turns when correct<") < page.index(">Entropy<")
    assert "<strong>no spread</strong>, step 7: says &lt;/script&gt;" in page
    assert "Raised while run was trained" in page


def test_a_hostile_name_of_a_component_or_folder_stays_text(tmp_path: Path) -> None:
    run = trained(tmp_path / "r <b>\x1b", [step(1, components={HOSTILE: 0.5, "a_b": 0.1})])
    page = build_report([run], tmp_path / "out")[0].read_text("utf-8")
    assert "<script>alert" not in page
    [made] = read_training([run])
    assert made.label.isprintable()


def test_the_rows_are_those_that_training_writes() -> None:
    """What is read here by name is a field there: renaming one must be seen."""
    steps = [step(1, kl=0.1, accuracy=0.5, turns=3), step(2)]
    rows: dict[int, Row] = {each.step: _row(each) for each in steps}
    made = TrainingRows("t", Path(), rows, {0: validation(0).to_row()}, [])
    drawn = [*step_charts([made]), *validation_charts([made])]
    assert [each.name for each in drawn] == [
        "steps-reward", "steps-accuracy", "steps-turns", "steps-entropy", "steps-kl",
        "steps-flat-groups", "steps-format-errors", "steps-tokens-per-second", "steps-loss",
        "validation-accuracy", "validation-hallucination", "validation-abstention",
        "validation-turns", "validation-effort", "validation-reward",
    ]  # fmt: skip
    assert len(drawn[0].curves) == 3


def _row(made: Step) -> dict[str, Any]:
    return {name: getattr(made, name) for name in Step.__dataclass_fields__}
