"""`art-e train plan`: what a recipe takes, before it is run, and beside what a run reported."""

from typing import TYPE_CHECKING, Annotated

import typer

from art_e.cli.options import JsonOption, example
from art_e.errors import UserError

if TYPE_CHECKING:
    from art_e.runs import Run
    from training.planning.cards import Card
    from training.planning.plan import Plan
    from training.recipe import Recipe


def register(app: typer.Typer) -> None:
    """Put the command among those of `app`."""
    app.command(
        epilog=example(
            "art-e train plan --recipe talk",
            "art-e train plan --recipe talk-24gb --gpu rtx4090-24gb --usd-per-hour 0.35",
            "art-e train plan --recipe talk-multi --gpus 4",
            "art-e train plan --against trained",
        )
    )(plan)


def plan(
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME|FILE",
            help="A recipe's name or a TOML file [default: nano; with --against the run's own].",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="TABLE.FIELD=VALUE", help="Change the recipe; repeatable."),
    ] = None,
    base_model: Annotated[
        str | None,
        typer.Option(
            "--base-model",
            metavar="MODEL",
            help="Folder or hub id, in place of the recipe's model.",
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="CARD", help="The card [default: h100-80gb].")
    ] = None,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", min=1, help="How many.")] = 1,
    usd_per_hour: Annotated[
        float | None,
        typer.Option(
            "--usd-per-hour", metavar="USD", min=0, help="Price of one card [default: typical]."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="RUN", help="Compare with what that run reported."),
    ] = None,
    json_output: JsonOption = False,
) -> None:
    """Tell what a recipe takes: memory, tokens, hours, money. Nothing is run."""
    from art_e.cli.output import print_json
    from art_e.cli.plan_tables import print_comparison, print_plan
    from art_e.home import runs_folder
    from art_e.runs import find_run
    from training.planning.cards import DEFAULT, card_of
    from training.planning.plan import plan as make_plan
    from training.planning.remedies import remedies
    from training.planning.reported import measured_in, reported_by
    from training.planning.row import compared, row_of
    from training.recipe import load_recipe

    card = card_of(gpu or DEFAULT)
    run = None if against is None else find_run(against, runs_folder())
    reported = None if run is None else reported_by(run)
    named = recipe or "nano"
    given = tuple(changes or ())

    def again(further: tuple[str, ...], other: "Card | None") -> "Plan":
        changed = load_recipe(named, [*given, *further], base_model=base_model)
        return make_plan(changed, other or card, gpus=gpus, usd_per_hour=usd_per_hour)

    if run is None:
        chosen = load_recipe(named, given, base_model=base_model)
        planned = make_plan(chosen, card, gpus=gpus, usd_per_hour=usd_per_hour)
        row = row_of(planned, remedies(planned, again))
        if json_output:
            print_json(row)
        else:
            print_plan(row)
        return
    chosen = _recipe_of(run, recipe, given, base_model)
    first = make_plan(chosen, card, gpus=gpus, usd_per_hour=usd_per_hour)
    told = measured_in(run)
    by_run = make_plan(chosen, card, gpus=gpus, usd_per_hour=usd_per_hour, told=told)
    assert reported is not None
    rows = compared(first, reported)
    by_its_own = [] if told is None else compared(by_run, reported)
    row = {**row_of(by_run), "run": str(run.folder), "compared": rows, "by_its_own": by_its_own}
    if json_output:
        print_json(row)
        return
    print_plan(row)
    print_comparison(row)


def _recipe_of(
    run: "Run", recipe: str | None, changes: tuple[str, ...], base_model: str | None
) -> "Recipe":
    """The recipe that a run is compared by: its own, unless one of that name is given."""
    from training.forms import named_recipe
    from training.recipe import load_recipe

    if recipe is None:
        if changes or base_model is not None:
            raise UserError("--against plans the run's own recipe: name --recipe to change it")
        return named_recipe(str(run.folder))
    own = run.config["recipe"]["name"]
    chosen = load_recipe(recipe, changes, base_model=base_model)
    if chosen.name != own:
        raise UserError(f"{run.folder} is a run of the recipe {own}: leave out --recipe")
    return chosen
