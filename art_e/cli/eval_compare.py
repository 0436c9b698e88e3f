"""`art-e eval compare`: two models, or two prompts, on the same questions.

Reads what runs left on disk; asks no model. Heavy imports are made inside the functions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from art_e.cli.options import JsonOption, example
from art_e.errors import UserError

if TYPE_CHECKING:
    from evals.scored import Scored

# The flipped questions that people are shown; --json has all.
_SHOWN_FLIPS = 20


class _Side(NamedTuple):
    run: str
    model: str
    prompt: str
    judges: tuple[str, ...]
    timed: bool
    cost_source: str | None
    scored: "Sequence[Scored]"

    def __str__(self) -> str:
        return f"{self.model}, prompt {self.prompt}, run {self.run}"


def register(app: typer.Typer) -> None:
    """Add the command `compare` to the group."""
    app.command(
        epilog=example(
            "art-e eval compare 20260101-120000-eval 20260101-130000-eval",
            "art-e eval compare 20260101-120000-eval:openai/o3"
            " 20260101-120000-eval:openai/gpt-4.1 --json",
        )
    )(compare)


def compare(
    run_a: Annotated[
        str, typer.Argument(metavar="RUN_A[:MODEL]", help="Name or folder of a run, and a model.")
    ],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B[:MODEL]", help="What to hold against it.")],
    json_output: JsonOption = False,
) -> None:
    """Compare two models or prompts, question by question: difference, significance, flips."""
    from art_e.cli.output import note, print_json
    from evals import paired

    a, b = _side(run_a), _side(run_b)
    if a.judges != b.judges:
        note(f"A was judged by {', '.join(a.judges)}, B by {', '.join(b.judges)}")
    found = paired.compare(a.scored, b.scored, timed=a.timed and b.timed)
    if json_output:
        sides = {
            name: {
                "run": side.run,
                "model": side.model,
                "prompt": side.prompt,
                "judges": list(side.judges),
                "cost_source": side.cost_source,
            }
            for name, side in (("a", a), ("b", b))
        }
        print_json({**sides, **found})
    else:
        _print(a, b, found)


def _side(argument: str) -> _Side:
    from art_e.home import runs_folder
    from art_e.runs import find_run
    from evals.gpu_time import servings
    from evals.scored import load_run

    name, model = _parted(argument)
    run = find_run(name, runs_folder())
    scored = load_run(run)
    models = list(dict.fromkeys(each.trajectory.model for each in scored))
    if model is None and len(models) > 1:
        raise UserError(f"{name} has {', '.join(models)}; say which, such as {name}:{models[0]}")
    chosen = models[0] if model is None else _model(model, models, name)
    of_model = [each for each in scored if each.trajectory.model == chosen]
    policy = of_model[0].trajectory.policy
    judges = dict.fromkeys(each.verdicts[0]["judge"] for each in of_model if each.verdicts)
    return _Side(
        run.id,
        chosen,
        f"{policy.get('prompt', 'default')} ({policy['prompt_hash']})",
        tuple(judges),
        not run.config.get("cache", False),
        str(served[chosen]) if chosen in (served := servings(run.config)) else None,
        of_model,
    )


def _parted(argument: str) -> tuple[str, str | None]:
    """The run and the model of `RUN:MODEL`; a name of either may have colons of its own."""
    from art_e.home import runs_folder
    from art_e.runs import Run

    parts = argument.split(":")
    for end in range(len(parts), 0, -1):
        name = ":".join(parts[:end])
        if any(Run(folder).begun for folder in (runs_folder() / name, Path(name))):
            return name, ":".join(parts[end:]) or None
    return parts[0], None


def _model(model: str, models: Sequence[str], run: str) -> str:
    from evals.presets import model_name

    name = model_name(model)
    if name not in models:
        raise UserError(f"{run} has no model {model}; it has {', '.join(models)}")
    return name


def _print(a: _Side, b: _Side, found: dict[str, Any]) -> None:
    from rich.table import Table

    from art_e.cli.clean import one_line
    from art_e.cli.eval_tables import percent
    from art_e.cli.output import console, plural, text
    from evals.report.pairs import differences

    table = Table(title=f"{found['n']:,} pairs", caption="in brackets: 95 % interval of B - A")
    for number, heading in enumerate(("", "A", "B", "B - A")):
        table.add_column(heading, justify="right" if number else "left")
    for row in differences(found["figures"]):
        table.add_row(row.label, *(f"{cell.value} {cell.interval}".strip() for cell in row.cells))
    left_out = [f"{plural(found['left_out'][side], 'episode')} of {side.upper()}" for side in "ab"]
    needed = found["needed"]
    lines = [
        f"A: {a}",
        f"B: {b}",
        *(
            f"cost of {name}: {side.cost_source}"
            for name, side in (("A", a), ("B", b))
            if side.cost_source is not None
        ),
        f"left out, for the other was not asked: {' and '.join(left_out)}",
        f"right in A alone {found['only_a']}, in B alone {found['only_b']},"
        f" exact McNemar p = {found['p']:.3g}"
        f" ({'significant' if found['p'] < 0.05 else 'may be chance'})",
        f"of A's errors B mends {percent(found['mended'])},"
        f" of B's errors A has right {percent(found['broken'])}",
    ]
    if needed is not None:
        lines.append(f"questions that would show such a difference 4 times of 5: {needed:,}")
    console().print(table)
    for line in lines:
        console().print(text(one_line(line)), soft_wrap=True)
    for flip in found["flipped"][:_SHOWN_FLIPS]:
        answers = (
            one_line("(none)" if flip[side] is None else flip[side]) for side in ("gold", "a", "b")
        )
        gold, of_a, of_b = answers
        console().print(
            text(
                f"right in {flip['right'].upper()} alone: ",
                (one_line(flip["question"]), "bold"),
                f"\n  gold {gold}\n  A    {of_a}\n  B    {of_b}",
            ),
            soft_wrap=True,
        )
    more = len(found["flipped"]) - _SHOWN_FLIPS
    if more > 0:
        console().print(f"and {more:,} more flipped; --json has them all")
