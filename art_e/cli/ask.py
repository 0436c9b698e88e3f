"""`ask`: one question about an inbox, one episode, one answer with its sources."""

import datetime as dt
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from art_e.cli.clean import one_line
from art_e.cli.options import (
    AsOfOption,
    DbOption,
    InboxOption,
    JsonOption,
    OutOption,
    chosen_address,
    chosen_db,
    example,
    parse_day,
)
from art_e.cli.output import console, note, plural, print_json, text
from art_e.cli.trace import shown_turn
from art_e.errors import UserError

if TYPE_CHECKING:
    from art_e.inbox.inbox import Inbox
    from art_e.inbox.mail import Email
    from art_e.message import AssistantMessage, ChatMessage
    from art_e.policies.base import Policy
    from art_e.question import Question
    from art_e.runs import Run
    from art_e.trajectory import Trajectory

# As art_e.episode.DEFAULT_MAX_TURNS, which would cost its imports here.
MAX_TURNS = 10
OFFLINE_NOTE = (
    "offline is the floor: it quotes the best sentence it finds and understands nothing;"
    " --model NAME asks a model instead"
)

app = typer.Typer()


class Answered(NamedTuple):
    """An episode that has ended: what happened, the mails it cites, and where it is kept."""

    question: str
    trajectory: "Trajectory"
    sources: "list[Email]"
    path: Path

    def to_json(self) -> dict[str, Any]:
        """The episode as `art-e ask --json` prints it; `seconds` are those of the wall clock."""
        from art_e.inbox.mail import format_date

        trajectory = self.trajectory
        return {
            "question": self.question,
            "inbox_address": trajectory.inbox_address,
            "as_of": trajectory.as_of,
            "answer": trajectory.final_answer,
            "abstained": trajectory.rubric["abstained"],
            "sources": [
                {
                    "message_id": email.message_id,
                    "date": format_date(email.date),
                    "from": str(email.sender),
                    "subject": email.subject,
                }
                for email in self.sources
            ],
            "turns": trajectory.rubric["turns"],
            "seconds": round(trajectory.seconds["total"], 3),
            "cost_usd": trajectory.cost_usd,
            "model": trajectory.model,
            "trajectory": str(self.path),
        }


@app.command(
    epilog=example(
        'art-e ask "When is Shari\'s move to Portland targeted for?" \\',
        "    --inbox tim.belden@enron.com --as-of 2000-12-30 --db enron.duckdb --trace",
    )
)
def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="In plain words, quoted.")],
    inbox: InboxOption = None,
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="What answers; offline needs no model.")
    ] = "offline",
    as_of: AsOfOption = None,
    max_turns: Annotated[
        int, typer.Option("--max-turns", metavar="N", min=1, help="Messages the model may write.")
    ] = MAX_TURNS,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show each tool call and what came back.")
    ] = False,
    db: DbOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question from the mail of one inbox, with sources."""
    if not re.search(r"\w", question):
        raise UserError('the question is empty; ask one: art-e ask "When does the lease end?"')
    today = parse_day(as_of, "--as-of")

    from art_e.inbox.file import InboxFile
    from art_e.policies.choose import choose_policy

    policy = choose_policy(model)
    with InboxFile(chosen_db(db)) as file:
        opened = file.open_inbox(chosen_address(file, inbox, db), today)
        asked = _own_question(question.strip(), opened.address, today)
        run = begin_run("ask", asked, policy, file.path, max_turns, out)
        if policy.model == "offline":
            note(OFFLINE_NOTE)
        answered = answer_question(
            opened, asked, policy, run, max_turns=max_turns, trace=trace, trace_to_stderr=as_json
        )
    if as_json:
        print_json(answered.to_json())
    else:
        show_answer(answered)
    exit_for(answered.trajectory)


def begin_run(
    name: str, question: "Question", policy: "Policy", db: Path, max_turns: int, out: Path | None
) -> "Run":
    """The folder for a run of one question."""
    from art_e.home import runs_folder
    from art_e.runs import start_run

    config = {
        "question": question.question,
        "inbox_address": question.inbox_address,
        "as_of": None if question.query_date is None else question.query_date.isoformat(),
        "model": policy.model,
        "max_turns": max_turns,
        "db": str(db),
    }
    return start_run(name, config, runs_folder(), out)


def answer_question(
    opened: "Inbox",
    question: "Question",
    policy: "Policy",
    run: "Run",
    *,
    max_turns: int = MAX_TURNS,
    trace: bool = False,
    trace_to_stderr: bool = False,
) -> Answered:
    """Run the episode, showing its turns if `trace`; `run` keeps it and is complete then."""
    import asyncio

    from art_e.agent import run_episode
    from art_e.episode import Episode

    episode = Episode(opened, question, max_turns=max_turns)
    screen = console(to_stderr=trace_to_stderr) if trace else None

    def show(message: "AssistantMessage", observations: "list[ChatMessage]") -> None:
        if screen is not None:
            turn = shown_turn(episode.rubric.turns, message.to_chat(), observations)
            screen.print(turn, soft_wrap=True)

    trajectory = asyncio.run(run_episode(episode, policy, run.id, show))
    with run.log() as log:
        log.append(trajectory)
    run.finish()
    if screen is not None:
        screen.print()
    mails = (opened.read(message_id) for message_id in trajectory.sources)
    sources = [email for email in mails if email is not None]
    return Answered(question.question, trajectory, sources, run.trajectories)


def show_answer(answered: Answered) -> None:
    """Print the answer, its sources and what it took."""
    from art_e.inbox.mail import format_date

    screen = console()
    trajectory = answered.trajectory
    without = why_no_answer(trajectory)
    if without is None:
        screen.print(text((trajectory.final_answer or "", "bold")), soft_wrap=True)
    else:
        screen.print(text(f"no answer: {without}"), soft_wrap=True)
    for email in answered.sources:
        line = text(
            f"  {format_date(email.date)[:10]}  ",
            (one_line(str(email.sender)), "cyan"),
            f"  {one_line(email.subject) or '(no subject)'}  ",
            (one_line(email.message_id), "dim"),
        )
        screen.print(line, soft_wrap=True)
    if without is None and not answered.sources:
        screen.print(text(("  (no source was given)", "dim")))
    cost = trajectory.cost_usd
    price = "cost unknown" if cost is None else f"${cost:.4f}" if cost else "no cost"
    took = f"{plural(trajectory.rubric['turns'], 'turn')}, {trajectory.seconds['total']:.2f} s"
    screen.print(text((f"{took}, {price}, {trajectory.model}", "dim")), soft_wrap=True)


def why_no_answer(trajectory: "Trajectory") -> str | None:
    """Why an episode ended without an answer; None where it has one."""
    rubric = trajectory.rubric
    if trajectory.error is not None:
        return f"the model failed ({trajectory.error['kind']})"
    if rubric["ran_out_of_turns"]:
        return f"out of turns ({rubric['max_turns']}); --max-turns allows more"
    if rubric["lost_to_format"]:
        return "too many wrong calls in a row"
    if rubric["abstained"]:
        return "the model found none in this inbox"
    return None


def exit_for(trajectory: "Trajectory") -> None:
    """Leave with 1 and a line on stderr where the episode failed for an outside reason."""
    if trajectory.error is not None:
        note(f"Error: {trajectory.error['kind']}: {trajectory.error['message']}; try again")
        raise typer.Exit(1)


def _own_question(question: str, address: str, as_of: dt.date | None) -> "Question":
    from art_e.question import Question

    return Question(id="ask", question=question, inbox_address=address, query_date=as_of)
