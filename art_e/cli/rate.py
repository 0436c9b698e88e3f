"""`rate`: whether an answer was good, and what would have been right."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from art_e.cli.options import JsonOption
from art_e.cli.output import example, note, one_line, print_json
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.ratings import add_rating, rated, ratings_file
from art_e.runs import find_run, runs_of
from art_e.storage import runs_folder
from art_e.trajectory import read_trajectories

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example("art-e rate good", 'art-e rate bad --answer "May 3" --source 1842.1075@thyme')
)
def rate(
    rating: Annotated[Literal["good", "bad"], Argument(help="What the answer was.")],
    answer: Annotated[
        str | None, Option(metavar="TEXT", help="The right answer to a question answered badly.")
    ] = None,
    source: Annotated[
        list[str] | None,
        Option(metavar="MESSAGE_ID", help="A mail that tells it; may be repeated."),
    ] = None,
    name: Annotated[
        str | None, Option("--run", metavar="RUN", help="The run of ask [default: the last].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Rate the last answer of ask; art-e golden from-ratings makes questions of ratings."""
    if rating == "good" and (answer is not None or source):
        raise UserError("--answer and --source correct a bad answer: art-e rate bad ...")
    if source and answer is None:
        raise UserError("--source goes with the answer that the mail tells: give --answer")
    if name is not None:
        run = find_run(name, runs_folder())
        if run.config.get("name") != "ask":
            raise UserError(f"{run.id} is not a run of art-e ask; see art-e runs list")
    elif last := next((each for each in runs_of("ask", runs_folder()) if each.complete), None):
        run = last
    else:
        raise UserError("there is no answer to rate yet; ask a question first: art-e ask")
    [trajectory] = read_trajectories(run.trajectories)
    with InboxFile(Path(run.config["db"]), junk=True) as file:
        inbox = file.open_inbox(trajectory.inbox_address)
        found = {each: inbox.canonical_id(each) for each in source or ()}
    if unknown := [each for each, stored in found.items() if stored is None]:
        raise UserError(f"no mail {unknown[0]} in the inbox of {trajectory.inbox_address}")
    sources = [each for each in found.values() if each is not None]
    given = rated(run, trajectory, rating, answer, sources)
    add_rating(given)
    if as_json:
        print_json(given.model_dump())
    else:
        note(f"{rating}: {one_line(given.question)}; kept in {ratings_file()}")
