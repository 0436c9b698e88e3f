"""`ask` answers a question about an inbox, with sources; `chat` answers several; `rate` rates one.

Text of mails and models is untrusted."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Exit, Option, Typer

from art_e.cli import model_options, options, output
from art_e.cli.conversation import Conversation, add_history, format_turn, outside_failure
from art_e.cli.mail import format_email, parse_typed_query, show_hits, show_thread
from art_e.episode import DEFAULT_MAX_TURNS
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.base import OFFLINE
from art_e.models.model import Model, default_model, full_name, suggest_models
from art_e.quotations import added_mails
from art_e.ratings import rate as keep_rating
from art_e.ratings import ratings_file
from art_e.runs import Run, find_run, read_trajectories, runs_of
from art_e.storage import home, runs_folder
from art_e.trajectory import Trajectory, exchanges

OFFLINE_NOTE = "offline only shows matching passages; use --model NAME for an answer"

COMPLETED = 500  # addresses suggested for completion, owners first
CHAT_HELP = Path(__file__).with_name("chat.txt").read_text("utf-8")

app = Typer(rich_markup_mode=None, add_completion=False)


@app.command("chat", help="Talk about an inbox; /help shows how.")
@app.command()
def ask(
    words: Annotated[
        list[str] | None,
        Argument(metavar="QUESTION...", help="- reads it from stdin; without one, start a chat."),
    ] = None,
    inbox: options.InboxOption = None, model: model_options.ModelOption = None,
    as_of: options.AsOfOption = None, junk: options.AllOption = False,
    max_turns: Annotated[
        int | None, options.integer(f"Limit of the model's turns [default: {DEFAULT_MAX_TURNS}].")
    ] = None,
    recipe: model_options.RecipeOption = None,
    follow_up: Annotated[
        bool, Option("--continue", "-c", help="Follow up on the last question, with its inbox.")
    ] = False,
    trace: Annotated[bool, Option("--trace", help="Show each tool call and its result.")] = False,
    effort: model_options.EffortOption = None, temperature: model_options.TemperatureOption = None,
    max_cost: model_options.MaxCostOption = None,
    tool_calls: model_options.ToolCallsOption = "auto", timeout: model_options.TimeoutOption = None,
    retries: model_options.RetriesOption = None,
    db: options.DbOption = None, out: options.OutOption = None, as_json: options.JsonOption = False,
) -> None:  # fmt: skip
    """Answer a question from the mail of one inbox, with sources."""
    if not words and (out is not None or as_json):
        raise UserError('--out and --json need a question: art-e ask "When does it end?" ...')
    question = sys.stdin.read() if words == ["-"] else " ".join(words) if words else None
    if question is not None and not re.search(r"\w", question):
        raise UserError('the question is empty; ask one: art-e ask "When does the lease end?"')
    if question is None and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("a chat needs a terminal; without one: art-e ask QUESTION")
    chosen = model_options.Options(
        recipe, max_turns, effort, temperature, max_cost, tool_calls, junk, timeout, retries
    )
    history: list[list[str]] = []
    conversation_id: str | None = None
    if follow_up:
        run = _last_run()
        [trajectory] = read_trajectories(run.trajectories)
        last = run.config
        history = add_history(last.get("talk", []), last["question"], trajectory)
        conversation_id = last.get("conversation") or run.id
        chosen = chosen.continuing(
            last.get("options", {}), same_model=model in (None, last["model"])
        )
        inbox = (inbox or last["inbox_address"]).strip().lower()
        db, as_of = (db or Path(last["db"])).absolute(), as_of or last["as_of"]
        model = model or last["model"]
        # Earlier answers don't hold for other mail.
        if (inbox, db, as_of) != (last["inbox_address"], Path(last["db"]), last["as_of"]):
            history, conversation_id = [], None
    is_default, model = model is None, model or default_model()
    with options.opened_inbox(db, inbox, as_of, junk=chosen.junk) as (file, opened):
        conversation = Conversation(opened, file.path, chosen, history, id=conversation_id)
        conversation.on_answer = lambda answer: conversation.say(f"answers: {answer}")
        # A trace prints the steps itself.
        with output.status(silent=trace) as conversation.say:
            conversation.say(f"loading {model}")
            conversation.load(model)
        if question is not None:
            conversation.begin(question.strip(), out=out)
        if conversation.policy.model == OFFLINE:
            output.note(OFFLINE_NOTE)
            # Look for local servers only if a person is watching.
            if is_default and sys.stderr.isatty() and (other := next(iter(suggest_models()), None)):
                first = f"{other.export}; " if other.export else ""
                output.note(f"{other.why}: {first}art-e config model {other.model}")
        elif (notice := Model(model).notice) is not None:
            output.note(notice)
        if question is None:
            run_chat(file, conversation)
            return
        show_turn = partial(output.print_text, to_stderr=as_json) if trace else None
        with output.status(silent=trace) as conversation.say:
            answered = conversation.answer(show_turn)
        if as_json:
            output.print_json(answered.to_json())
        else:
            conversation.show()
    exit_for(answered.trajectory)


def _last_run() -> Run:
    for run in runs_of("ask", runs_folder()):
        if run.complete:
            return run
    raise UserError("no question was answered yet; ask one first: art-e ask QUESTION")


def exit_for(trajectory: Trajectory) -> None:
    """Exit with code 1 and a line on stderr if the episode failed for a reason outside of it."""
    if (failure := outside_failure(trajectory)) is not None:
        output.note(f"Error: {failure}")
        raise Exit(1)


# ---- `chat`.


@dataclass
class Chat:
    """A conversation typed line by line; `listed` has the mails that numbers refer to."""

    file: InboxFile
    conversation: Conversation
    listed: options.MailList = field(default_factory=options.MailList)

    def run_line(self, line: str) -> None:
        """Run a command or ask a question. Raises `UserError` if that fails, `EOFError` to quit."""
        name, _, rest = line.partition(" ")
        number = line.removeprefix("t")
        if line.startswith("/"):
            commands: dict[str, Callable[[str], None]] = {
                "/help": lambda _: output.print_text(CHAT_HELP.rstrip()),
                "/why": lambda _: self._why(),
                "/good": lambda _: self._rate("good", ""),
                "/bad": lambda right: self._rate("bad", right),
                "/search": self._search,
                "/inbox": self._open,
                "/model": self._choose,
                "/new": lambda _: self.conversation.forget(),
            }
            if name == "/quit":
                raise EOFError
            if name not in commands:
                raise UserError(f"there is no {name}; /help lists the commands")
            commands[name](rest.strip())
        elif number.isdigit() and len(number) <= 3:
            self._show(int(number), whole=line.startswith("t"))
        else:
            self._ask(line)

    def _ask(self, line: str) -> None:
        with output.status() as self.conversation.say:
            failure = outside_failure(self.conversation.ask(line).trajectory)
        self.listed = self.conversation.show()
        if failure is not None:
            raise UserError(failure)

    def _search(self, line: str) -> None:
        inbox = self.conversation.inbox
        query = parse_typed_query(line, inbox.as_of)
        junk = query.junk or self.conversation.options.junk
        with InboxFile(self.file.path, junk=junk) as file:
            opened = file.open_inbox(inbox.address, inbox.as_of)
            hits = opened.search(query.words, query=query)
            self.listed = show_hits(file, opened, query, hits, junk=junk) or self.listed

    def _show(self, number: int, *, whole: bool) -> None:
        db, address, day, junk, ids = self.listed
        if not 1 <= number <= len(ids):
            raise UserError(f"there is no mail {number}; the last list has {len(ids)}")
        with options.opened_inbox(Path(db), address, day, junk=junk) as (_, opened):
            if whole:
                show_thread(added_mails(opened.thread(ids[number - 1])))
            elif mail := opened.read(ids[number - 1]):
                output.print_text(format_email(mail))

    def _why(self) -> None:
        messages = self.conversation.last().trajectory.messages
        for number, exchange in enumerate(exchanges(messages), start=1):
            output.print_text(format_turn(number, exchange))

    def _rate(self, rating: Literal["good", "bad"], right: str) -> None:
        last = self.conversation.last()
        keep_rating(last.run, last.trajectory, rating, right or None)
        output.note(f"kept: {rating}{f', {output.one_line(right)} is right' if right else ''}")

    def _open(self, address: str) -> None:
        inbox = self.file.open_inbox(address, self.conversation.inbox.as_of)
        self.conversation.inbox, self.listed = inbox, options.MailList()
        self.conversation.forget()
        output.note(f"the inbox of {inbox.address}, {len(inbox):,} mails")

    def _choose(self, name: str) -> None:
        model = full_name(name)
        self.conversation.load(model)
        output.note(Model(model).notice or f"{model} answers")


def run_chat(file: InboxFile, conversation: Conversation) -> None:
    """Run the lines that the user types, until /quit or Ctrl-D."""
    from prompt_toolkit import PromptSession, completion, history

    lines = home() / "chat_history"
    lines.parent.mkdir(parents=True, exist_ok=True)
    chat = Chat(file, conversation)
    words = re.findall(r"/[a-z]+", CHAT_HELP)
    words += [each.address for each in file.inboxes(COMPLETED)]
    earlier, completer = history.FileHistory(str(lines)), completion.WordCompleter(words)
    session: PromptSession[str] = PromptSession(history=earlier, completer=completer)
    inbox, model = conversation.inbox, conversation.policy.model
    output.note(f"{inbox.address}, {len(inbox):,} mails, {model}; /help lists the commands")
    while True:
        try:
            if line := session.prompt("> ").strip():
                chat.run_line(line)
        except EOFError:
            return
        except KeyboardInterrupt:
            # At the prompt Ctrl-C clears the line, later it stops the question.
            output.note("stopped; Ctrl-D leaves")
        except UserError as error:
            output.note(f"Error: {error}")


# ---- `rate`.


@app.command()
def rate(
    rating: Annotated[Literal["good", "bad"], Argument(help="Your rating of the answer.")],
    answer: Annotated[
        str | None, Option(metavar="TEXT", help="The right answer to a question answered badly.")
    ] = None,
    source: Annotated[
        list[str] | None,
        Option(metavar="MAIL", help="A mail with that answer, as for art-e read; may be repeated."),
    ] = None,
    name: Annotated[
        str | None, Option("--run", metavar="RUN", help="A run of art-e ask [default: the last].")
    ] = None,
    as_json: options.JsonOption = False,
) -> None:
    """Rate the last answer of ask; art-e golden from-ratings turns ratings into questions."""
    if rating == "good" and (answer is not None or source):
        raise UserError("--answer and --source correct a bad answer: art-e rate bad ...")
    if source and answer is None:
        raise UserError("--source needs --answer: give the answer that this mail has")
    run = _last_run() if name is None else find_run(name, runs_folder())
    if run.config.get("name") != "ask":
        raise UserError(f"{run.id} is not a run of art-e ask; see art-e runs list")
    [trajectory] = read_trajectories(run.trajectories)
    with InboxFile(Path(run.config["db"]), junk=True) as file:
        inbox, listed = file.open_inbox(trajectory.inbox_address), options.load_list()
        sources = [options.find_mail(each, listed, file, inbox) for each in source or ()]
    saved = keep_rating(run, trajectory, rating, answer, sources)
    if as_json:
        output.print_json(saved.model_dump())
    else:
        output.note(f"{rating}: {output.one_line(saved.question)}; kept in {ratings_file()}")
