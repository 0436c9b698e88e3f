"""`chat`: a conversation about one inbox, in the terminal.

What mail and models say is untrusted text.
"""

import datetime as dt
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from art_e.cli.conversation import Conversation, failure_reason
from art_e.cli.mail import shown_email
from art_e.cli.model_options import Options, ready_model
from art_e.cli.options import chosen_address, chosen_db
from art_e.cli.output import clean, console, note, one_line, print_lines, print_text, text
from art_e.cli.trace import shown_source, shown_turn
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.model import Model, full_name
from art_e.storage import home
from art_e.trajectory import exchanges

if TYPE_CHECKING:
    from rich.live import Live

COMPLETED = 500  # addresses that are suggested, the owners first
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


@dataclass
class Chat:
    """A conversation whose lines are questions, numbers of sources, and commands.

    `arriving` shows an answer while it arrives.
    """

    file: InboxFile
    talk: Conversation
    arriving: "Live"

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
                "/new": lambda _: self.talk.forget(),
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
        self.arriving.update("")
        with self.arriving:
            answered = self.talk.ask(line, say_step)
        without = failure_reason(answered.trajectory)
        answer = (answered.trajectory.final_answer or "", "bold")
        print_text(f"no answer: {without}" if without else answer)
        for number, mail in enumerate(answered.mails, start=1):
            print_text((f"{number} ", "bold"), shown_source(mail))
            quote = answered.quotes.get(mail.message_id)
            if quote is not None and mail not in answered.sources:
                print_text((f"    {one_line(quote)}", "italic"))
        print_text((answered.took, "dim"))

    def _show(self, number: int, *, whole: bool) -> None:
        mails = self.talk.answered.mails if self.talk.answered else []
        if not 1 <= number <= len(mails):
            raise UserError(f"there is no source {number}; the last answer has {len(mails)}")
        mail = mails[number - 1]
        for each in self.talk.inbox.thread(mail.message_id) if whole else [mail]:
            print_text(shown_email(each))

    def _why(self) -> None:
        messages = self.talk.last().trajectory.messages
        for number, exchange in enumerate(exchanges(messages), start=1):
            print_text(shown_turn(number, exchange))

    def _rate(self, rating: Literal["good", "bad"], right: str) -> None:
        self.talk.last().rate(rating, right)
        note(f"kept: {rating}{f', {one_line(right)} is right' if right else ''}")

    def _open(self, address: str) -> None:
        self.talk.inbox = self.file.open_inbox(address, self.talk.inbox.as_of)
        self.talk.forget()
        note(f"the inbox of {self.talk.inbox.address}, {len(self.talk.inbox):,} mails")

    def _choose(self, name: str) -> None:
        model = full_name(name)
        ready = ready_model(model, self.talk.options, say_step, shown_in(self.arriving))
        self.talk.policy, self.talk.form = ready
        note(Model(model).notice or f"{model} answers")


def say_step(step: str) -> None:
    """Print what happens at the moment."""
    print_text((f"  {one_line(step)}", "dim"))


def shown_in(arriving: "Live") -> Callable[[str], None]:
    """Show an answer as far as it has arrived; once it is whole it is printed below the steps."""
    return lambda answer: arriving.update(text((clean(answer), "bold dim")), refresh=True)


def _quit() -> None:
    raise EOFError


def talk(
    db: Path | None,
    address: str | None,
    today: dt.date | None,
    model: str,
    options: Options,
    past: list[list[str]],
) -> None:
    """Take lines until the last one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("a chat needs a terminal; without one: art-e ask QUESTION")
    from prompt_toolkit import PromptSession, completion, history
    from rich.live import Live

    lines = home() / "chat_history"
    lines.parent.mkdir(parents=True, exist_ok=True)
    with InboxFile(chosen_db(db), junk=options.junk) as file:
        inbox = file.open_inbox(chosen_address(file, address, db), today)
        arriving = Live(console=console(), transient=True)
        ready = ready_model(model, options, say_step, shown_in(arriving))
        chat = Chat(file, Conversation(inbox, file.path, *ready, options, past), arriving)
        words = [each.split()[0].rstrip(",") for each in HELP if each.startswith("/")]
        words += ["/bad", *(each.address for each in file.inboxes(COMPLETED))]
        session: PromptSession[str] = PromptSession(
            history=history.FileHistory(str(lines)),
            completer=completion.WordCompleter(words, sentence=False),
        )
        note(f"{inbox.address}, {len(inbox):,} mails, {model}; /help shows what there is")
        if (notice := Model(model).notice) is not None:
            note(notice)
        while True:
            try:
                if line := session.prompt("> ").strip():
                    chat.take(line)
            except EOFError:
                return
            except KeyboardInterrupt:
                # At the prompt it clears the line, at work it ends the question.
                note("stopped; Ctrl-D leaves")
            except UserError as error:
                note(f"Error: {error}")
