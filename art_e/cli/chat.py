"""`chat`: a conversation about one inbox, in the terminal.

What mail and models say is untrusted text.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import typer

from art_e.cli.ask import shown_source, why_no_answer
from art_e.cli.conversation import COMPLETED, Talk, TalkModelOption, policy_of
from art_e.cli.mail import shown_email
from art_e.cli.model_options import MaxCostOption
from art_e.cli.options import (
    AllOption,
    AsOfOption,
    DbOption,
    InboxOption,
    chosen_address,
    chosen_db,
    parse_day,
)
from art_e.cli.output import clean, console, example, note, one_line, print_lines, text
from art_e.cli.trace import shown_turn
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.model import Model, default_model, full_name
from art_e.storage import home
from art_e.trajectory import exchanges

if TYPE_CHECKING:
    from rich.live import Live

HELP = (
    "a question      ask it; a follow-up knows what was said",
    "2, t2           open source 2, or its whole conversation",
    "/why            every step of the last answer",
    "/good, /bad     rate it; /bad May 3 says what is right",
    "/inbox ADDRESS  another inbox of the file",
    "/model NAME     another model",
    "/new            forget what was said",
    "/quit           or Ctrl-D",
)

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@dataclass(kw_only=True)
class Chat(Talk):
    """A conversation whose lines are questions, numbers of sources, and commands.

    `arriving` shows an answer while it arrives.
    """

    arriving: "Live"
    max_cost: float | None = None

    def take(self, line: str) -> None:
        """Do what a line says. Raises `UserError` for one that can't be done, `EOFError` for the
        last."""
        name, _, rest = line.partition(" ")
        number = line.removeprefix("t")
        if line.startswith("/"):
            commands: dict[str, Callable[[str], None]] = {
                "/help": lambda _: print_lines(*HELP),
                "/why": lambda _: self._why(),
                "/good": lambda _: self._rate("good", ""),
                "/bad": lambda right: self._rate("bad", right),
                "/inbox": self._open,
                "/model": self._choose,
                "/new": lambda _: self.forget(),
                "/quit": lambda _: _quit(),
            }
            if name not in commands:
                raise UserError(f"there is no {name}; /help shows what there is")
            commands[name](rest.strip())
        elif number.isdigit() and len(number) <= 3:
            self._show(int(number), whole=line.startswith("t"))
        else:
            self._ask(line)

    def _ask(self, line: str) -> None:
        screen = console()
        self.arriving.update("")
        with self.arriving:
            answered = self.ask(line, say_step)
        without = why_no_answer(answered.trajectory)
        if without is not None:
            screen.print(text(f"no answer: {without}"), soft_wrap=True)
        else:
            screen.print(text((answered.trajectory.final_answer or "", "bold")), soft_wrap=True)
        said = {each.email.message_id: each.text for each in answered.passages}
        for number, mail in enumerate(self.sources, start=1):
            screen.print(text((f"{number}", "bold")), shown_source(mail), soft_wrap=True)
            if mail.message_id in said and mail not in answered.sources:
                screen.print(
                    text((f"    {one_line(said[mail.message_id])}", "italic")), soft_wrap=True
                )
        screen.print(text((self.took, "dim")), soft_wrap=True)

    def _show(self, number: int, *, whole: bool) -> None:
        if not 1 <= number <= len(self.sources):
            raise UserError(f"there is no source {number}; the last answer has {len(self.sources)}")
        mail = self.sources[number - 1]
        for each in self.inbox.thread(mail.message_id) if whole else [mail]:
            console().print(shown_email(each), soft_wrap=True)

    def _why(self) -> None:
        _, answered = self.last()
        for number, exchange in enumerate(exchanges(answered.trajectory.messages), start=1):
            console().print(shown_turn(number, exchange), soft_wrap=True)

    def _rate(self, rating: Literal["good", "bad"], right: str) -> None:
        self.rate(rating, right)
        note(f"kept: {rating}{f', {one_line(right)} is right' if right else ''}")

    def _open(self, address: str) -> None:
        self.inbox = self.file.open_inbox(address, self.today)
        self.forget()
        note(f"the inbox of {self.inbox.address}, {len(self.inbox):,} mails")

    def _choose(self, name: str) -> None:
        model = full_name(name)
        self.policy = policy_of(model, self.max_cost, say_step, shown_in(self.arriving))
        note(Model(model).notice or f"{model} answers")


def say_step(step: str) -> None:
    """Print what happens at the moment."""
    console().print(text((f"  {one_line(step)}", "dim")), soft_wrap=True)


def shown_in(arriving: "Live") -> Callable[[str], None]:
    """Shows an answer as far as it has arrived; once it is whole it is printed below the steps."""
    return lambda answer: arriving.update(text((clean(answer), "bold dim")), refresh=True)


def _quit() -> None:
    raise EOFError


@app.command(epilog=example("art-e chat", "art-e chat --inbox me@example.com --model o3"))
def chat(
    inbox: InboxOption = None,
    model: TalkModelOption = None,
    as_of: AsOfOption = None,
    junk: AllOption = False,
    max_cost: MaxCostOption = None,
    db: DbOption = None,
) -> None:
    """Talk about an inbox: questions, follow-ups, sources, ratings. /help shows what there is."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("chat needs a terminal; without one: art-e ask -c QUESTION")
    from prompt_toolkit import PromptSession, completion, history
    from rich.live import Live

    today = parse_day(as_of, "--as-of")
    chosen = model or default_model()
    kept = home() / "chat_history"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with InboxFile(chosen_db(db), junk=junk) as file:
        opened = file.open_inbox(chosen_address(file, inbox, db), today)
        arriving = Live(console=console(), transient=True)
        policy = policy_of(chosen, max_cost, say_step, shown_in(arriving))
        state = Chat(file, opened, policy, today, arriving=arriving, max_cost=max_cost)
        words = [each.split()[0].rstrip(",") for each in HELP if each.startswith("/")]
        words += ["/bad", *(each.address for each in file.inboxes(COMPLETED))]
        session: PromptSession[str] = PromptSession(
            history=history.FileHistory(str(kept)),
            completer=completion.WordCompleter(words, sentence=False),
        )
        note(f"{opened.address}, {len(opened):,} mails, {chosen}; /help shows what there is")
        if (notice := Model(chosen).notice) is not None:
            note(notice)
        while True:
            try:
                if line := session.prompt("> ").strip():
                    state.take(line)
            except EOFError:
                return
            except KeyboardInterrupt:
                # At the prompt it clears the line, at work it ends the question.
                note("stopped; Ctrl-D leaves")
            except UserError as error:
                note(f"Error: {error}")
