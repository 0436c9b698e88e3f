"""`ask`: a question about an inbox, answered with its sources; `chat`: one after another."""

import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from art_e.cli.chat import talk
from art_e.cli.conversation import Answered, Conversation, after, failure_reason
from art_e.cli.model_options import (
    EffortOption,
    MaxCostOption,
    ModelOption,
    Options,
    RecipeOption,
    TemperatureOption,
    ToolCallsOption,
    ready_model,
)
from art_e.cli.options import (
    AllOption,
    AsOfOption,
    DbOption,
    InboxOption,
    JsonOption,
    OutOption,
    chosen_address,
    chosen_db,
    parse_day,
)
from art_e.cli.output import console, example, note, one_line, print_json, print_text, status
from art_e.cli.trace import shown_source
from art_e.episode import DEFAULT_MAX_TURNS
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.base import OFFLINE
from art_e.models.model import Model, default_model
from art_e.models.nearby import nearby
from art_e.runs import runs_of
from art_e.storage import runs_folder
from art_e.trajectory import Trajectory, read_trajectories

OFFLINE_NOTE = (
    "offline is the baseline: it quotes the best sentence it finds and understands nothing;"
    " --model NAME asks a model instead"
)

# Failures that the same command would meet again.
_LASTING = {"auth", "no-model", "no-credit", "budget", "context", "request"}

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    "chat",
    help="Talk about an inbox; /help shows how.",
    epilog=example("art-e chat", "art-e chat --model o3"),
)
@app.command(
    epilog=example(
        'art-e ask "When is Shari\'s move to Portland targeted for?" \\',
        "    --inbox tim.belden@enron.com --as-of 2000-12-30 --db enron.duckdb --trace",
        'art-e ask "When does the lease end?" --model openai/o3 --max-cost 0.50',
        'art-e ask "When does the lease end?" --model local:mine/checkpoints/checkpoint-40'
        " --recipe mine",
    )
)
def ask(
    question: Annotated[
        str | None,
        Argument(
            metavar="QUESTION",
            help="In plain words, quoted; - reads standard input; without one it is a chat.",
        ),
    ] = None,
    inbox: InboxOption = None,
    model: ModelOption = None,
    as_of: AsOfOption = None,
    junk: AllOption = False,
    max_turns: Annotated[
        int | None,
        Option(
            metavar="N", min=1, help=f"Messages the model may write [default: {DEFAULT_MAX_TURNS}]."
        ),
    ] = None,
    recipe: RecipeOption = None,
    follow_up: Annotated[
        bool,
        Option("--continue", "-c", help="Go on from the last question: same inbox, model, talk."),
    ] = False,
    trace: Annotated[
        bool, Option("--trace", help="Show each tool call and what came back.")
    ] = False,
    effort: EffortOption = None,
    temperature: TemperatureOption = None,
    max_cost: MaxCostOption = None,
    tool_calls: ToolCallsOption = "auto",
    db: DbOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question from the mail of one inbox, with sources."""
    if question is None and (out is not None or as_json):
        raise UserError('--out and --json go with a question: art-e ask "When does it end?" ...')
    question = sys.stdin.read() if question == "-" else question
    if question is not None and not re.search(r"\w", question):
        raise UserError('the question is empty; ask one: art-e ask "When does the lease end?"')
    options = Options(recipe, max_turns, effort, temperature, max_cost, tool_calls, junk)
    history: list[list[str]] = []
    if follow_up:
        last, history = _last_question()
        options = options.following(
            last.get("options", {}), same_model=model in (None, last["model"])
        )
        inbox, model = inbox or last["inbox_address"], model or last["model"]
        db, as_of = db or Path(last["db"]), as_of or last["as_of"]
    today = parse_day(as_of, "--as-of")
    is_default, model = model is None, model or default_model()
    if question is None:
        talk(db, inbox, today, model, options, history)
        return
    # The trace says itself what happens.
    with nullcontext(lambda _: None) if trace else status() as say:
        say(f"loading what calls {model}")
        ready = ready_model(
            model,
            options,
            lambda step: say(step),  # noqa: PLW0108 - the answer has another status line
            lambda answer: say(f"answers: {answer}"),
        )
    with InboxFile(chosen_db(db), junk=options.junk) as file:
        opened = file.open_inbox(chosen_address(file, inbox, db), today)
        conversation = Conversation(opened, file.path, *ready, options, history)
        conversation.begin(question.strip(), out=out)
        if ready.policy.model == OFFLINE:
            note(OFFLINE_NOTE)
            # Look for local servers only if a person is watching.
            if is_default and sys.stderr.isatty() and (near := next(iter(nearby()), None)):
                first = f"{near.export}; " if near.export else ""
                note(f"{near.why}: {first}art-e config model {near.model}")
        elif (notice := Model(model).notice) is not None:
            note(notice)
        screen = console(to_stderr=as_json) if trace else None
        with nullcontext(lambda _: None) if trace else status() as say:
            answered = conversation.answer(say, screen)
    if as_json:
        print_json(answered.to_json())
    else:
        show_answer(answered)
    exit_for(answered.trajectory)


def _last_question() -> tuple[dict[str, Any], list[list[str]]]:
    """The configuration of the last question, and what was asked and answered so far."""
    runs = (run for run in runs_of("ask", runs_folder()) if run.complete)
    if (run := next(runs, None)) is None:
        raise UserError("there is no question to go on from; ask one without --continue")
    [trajectory] = read_trajectories(run.trajectories)
    config = run.config
    return config, after(config.get("talk", []), config["question"], trajectory)


def show_answer(answered: Answered) -> None:
    """Print the answer, its sources, passages if no model answered, time and cost."""
    trajectory = answered.trajectory
    without = failure_reason(trajectory)
    if without is not None:
        also = "; the best passages:" if answered.passages else ""
        print_text(f"no answer: {without}{also}")
    elif answered.kind == "passages":
        print_text("best passages, for no model was asked:")
    if without is None:
        print_text((trajectory.final_answer or "", "bold"))
    for email in answered.sources:
        print_text(shown_source(email))
    if without is None and not answered.sources:
        print_text(("  (no source was given)", "dim"))
    cited = {email.message_id for email in answered.sources}
    for passage in answered.passages:
        if passage.email.message_id not in cited:
            print_text((one_line(passage.text), "bold"))
            print_text(shown_source(passage.email))
    print_text((answered.took, "dim"))


def exit_for(trajectory: Trajectory) -> None:
    """Exit with code 1 and a line on stderr if the episode failed for an outside reason."""
    if trajectory.error is not None:
        kind, message = trajectory.error["kind"], trajectory.error["message"]
        note(f"Error: {kind}: {message}{'' if kind in _LASTING else '; try again'}")
        raise typer.Exit(1)
