"""`demo`: the 60-second tour, with no key, no network and no mail of one's own.

It makes a synthetic inbox once and keeps it, asks the offline policy one question
of the world's test split, chosen by a rule that knows no answers, and shows the
world's own answer beside the one given. Knows nothing of how worlds are made.
"""

import json
from typing import TYPE_CHECKING

import typer

from art_e import __version__
from art_e.cli.ask import (
    MAX_TURNS,
    OFFLINE_NOTE,
    answer_question,
    begin_run,
    exit_for,
    show_answer,
)
from art_e.cli.options import JsonOption, OutOption
from art_e.cli.output import console, example, note, print_json, print_line, text
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.model import Model
from art_e.question import Question
from art_e.storage import home
from art_e.text import digest
from data_pipeline.cli import read_sources
from data_pipeline.synthetic.world import WorldConfig, questions

if TYPE_CHECKING:
    from pathlib import Path


SIZE, SEED = 2_000, 0

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=example("art-e demo", "art-e demo --json"))
def demo(out: OutOption = None, as_json: JsonOption = False) -> None:
    """Take the tour: a sample inbox, one question, every step, the answer."""

    world = questions(WorldConfig(size=SIZE, seed=SEED))
    asked = tour_question(world)
    db = _sample_inbox(world)
    policy = Model("offline").policy()
    note(OFFLINE_NOTE)
    with InboxFile(db) as file:
        opened = file.open_inbox(asked.inbox_address, asked.query_date)
        if not as_json:
            screen = console()
            screen.print(text(("question  ", "dim"), (asked.question, "bold")), soft_wrap=True)
            about = f"{asked.inbox_address}, {len(opened):,} mails up to {opened.as_of}"
            screen.print(text((f"inbox     {about}\n", "dim")), soft_wrap=True)
        run = begin_run("demo", asked, policy, db, MAX_TURNS, out)
        answered = answer_question(opened, asked, policy, run, trace=not as_json)
    if as_json:
        print_json({**answered.to_json(), "gold_answer": asked.answer})
    else:
        show_answer(answered)
        expected = text(("\nexpected: ", "dim"), asked.answer or "", (" (the world's own)", "dim"))
        console().print(expected, soft_wrap=True)
        print_line("\nnext, with mail of your own (mbox, Maildir, .eml, Google Takeout):")
        print_line("  art-e ingest ~/mail.mbox --owner you@example.com")
        print_line("  art-e search invoice march")
        print_line('  art-e ask "When does the lease end?" --trace')
    exit_for(answered.trajectory)


def tour_question(world: "list[Question]") -> "Question":
    """The first easy look-up of the test split that asks when, like the talk's own question.

    A world without one gives its first easy look-up.
    """
    easy = [
        each
        for each in world
        if (each.split, each.kind, each.difficulty) == ("test", "lookup", "easy")
    ]
    return next((each for each in easy if each.question.startswith("When ")), easy[0])


def _sample_inbox(world: "list[Question]") -> "Path":
    """The sample inbox's file, made if there is none that fits these questions."""

    rows = json.dumps([question.to_row() for question in world])
    db = home() / "demo" / f"{SIZE}-mails-{digest(f'{__version__}/{rows}')}.duckdb"
    try:
        InboxFile(db).close()
    except UserError:
        note(f"making a sample inbox of {SIZE:,} mails, once: {db}")
        read_sources([f"synthetic:{SIZE},seed={SEED}"], db)
    return db
