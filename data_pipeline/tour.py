"""`demo`: a tour of a made-up inbox.

It needs no key, no network and no mail: it makes a synthetic inbox once and keeps it, asks the
offline policy one question of the world's test split, and shows the gold answer beside.
"""

import json
from collections.abc import Iterator

import typer

from art_e import __version__
from art_e.cli import output
from art_e.cli.ask import OFFLINE_NOTE, exit_for
from art_e.cli.conversation import Conversation
from art_e.cli.options import JsonOption, OutOption
from art_e.inbox.file import InboxFile
from art_e.models.model import Model
from art_e.question import Question
from data_pipeline.ingest.build import made_up_file
from data_pipeline.ingest.records import RawMessage
from data_pipeline.synthetic.world import WorldConfig, messages, questions

# The world of the tour.
SIZE, SEED = 2_000, 0

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=output.example("art-e demo", "art-e demo --json"))
def demo(out: OutOption = None, as_json: JsonOption = False) -> None:
    """Take the tour: a sample inbox, one question, every step, the answer."""
    config = WorldConfig(size=SIZE, seed=SEED)
    question = tour_question(world := questions(config))

    def mails() -> Iterator[RawMessage]:
        output.note(f"making a sample inbox of {SIZE:,} mails, once")
        return messages(config)

    rows = json.dumps([each.to_row() for each in world])
    db = made_up_file(f"{__version__}/{rows}", mails)
    policy = Model("offline").policy()
    output.note(OFFLINE_NOTE)
    with InboxFile(db) as file:
        opened = file.inbox_of(question)
        if not as_json:
            about = f"{question.inbox_address}, {len(opened):,} mails up to {opened.as_of}"
            output.print_text(("question  ", "dim"), (question.question, "bold"))
            output.print_text((f"inbox     {about}\n", "dim"))
        conversation = Conversation(opened, db, policy)
        conversation.begin(question, "demo", out)
        answered = conversation.answer(screen=None if as_json else output.console())
    if as_json:
        output.print_json({**answered.to_json(), "gold_answer": question.answer})
    else:
        answered.show()
        output.print_text(
            ("\nexpected: ", "dim"), question.answer or "", (" (the gold answer)", "dim")
        )
        output.print_line("\nnext, with mail of your own (mbox, Maildir, .eml, Google Takeout):")
        output.print_line("  art-e ingest ~/Downloads/takeout-*.zip")
        output.print_line("  art-e search invoice march")
        output.print_line('  art-e ask "When does the lease end?" --trace')
    exit_for(answered.trajectory)


def tour_question(world: list[Question]) -> Question:
    """The first easy look-up of the test split, if possible one that asks when."""
    wanted = ("test", "lookup", "easy")
    easy = [each for each in world if (each.split, each.kind, each.difficulty) == wanted]
    return next((each for each in easy if each.question.startswith("When ")), easy[0])
