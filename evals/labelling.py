"""`art-e eval label`: a person labels a run's answers as right or wrong.

It shows the question, the gold answer, the answer and the mails as the model read them, but
neither the model nor a verdict. Everything comes from the run's folder. The trajectory is
untrusted: where a tool's answer should be, there may be no JSON.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer import Argument, Option

from art_e.cli.output import clean, console, note, one_line, plural, text
from art_e.errors import UserError
from art_e.runs import find_run
from art_e.storage import runs_folder
from art_e.trajectory import Trajectory, exchanges
from evals.judges.labels import chosen_for_labels, labels_file, read_labels, write_label
from evals.scored import Scored, load_run

if TYPE_CHECKING:
    from rich.text import Text


# ---- What the commands that ask a person share: single keys, and mails to look at.

BODY_LINES = 40
_LINE_CHARS = 1_000


class ShownMail(NamedTuple):
    """A mail as a person sees it; `mark` is a word about it, such as "cited"."""

    date: str
    sender: str
    subject: str
    body: str
    mark: str = ""


def pressed_key(keys: str, of: str, things: str) -> str:
    """Waits for one of the keys in `of`; the line `keys` explains them.

    Ctrl-C, Ctrl-D and the end of the input are "q". Raises `UserError` without a terminal, naming
    the `things` to enter.
    """
    note(keys)
    while True:
        try:
            key = typer.getchar().lower()
        except (EOFError, KeyboardInterrupt):
            return "q"
        except OSError:
            raise UserError(f"{things} need a terminal, and there is no terminal here") from None
        # A closed terminal gives the empty string.
        if len(key) <= 1 and key in of:
            return key or "q"
        note(f"there is no key {key!r}; {keys}")


def shown_mail(mail: ShownMail, lines_shown: int | None = BODY_LINES) -> "Text":
    """The mail's head and the first `lines_shown` lines of its body that are not empty.

    None shows all lines, and long lines whole; otherwise a line longer than a screen is cut with a
    mark.
    """
    lines = [each.rstrip() for each in clean(mail.body).split("\n") if each.strip()]
    shown = [_cut(each.expandtabs(4), lines_shown is None) for each in lines[:lines_shown]]
    body = "".join(f"\n| {line}" for line in shown)
    if len(shown) < len(lines):
        body += f"\n| ({plural(len(lines) - len(shown), 'more line')})"
    return text(
        (f"{one_line(mail.date)}  {one_line(mail.sender)}", "cyan"),
        f"  {one_line(mail.subject)}",
        (f"  {one_line(mail.mark)}" if mail.mark else "", "green"),
        (body, "dim"),
        "\n",
    )


def _cut(line: str, whole: bool) -> str:
    if whole or len(line) <= _LINE_CHARS:
        return line
    return f"{line[:_LINE_CHARS]} ({plural(len(line) - _LINE_CHARS, 'more character')})"


# ---- The command.

KEYS = "[r]ight [w]rong [s]kip [q]uit"


def label(
    name: Annotated[str, Argument(metavar="RUN", help="Name of a run, or its folder.")],
    sample: Annotated[
        int | None, Option(metavar="N", min=1, help="How many answers [default: all].")
    ] = None,
    seed: Annotated[int, Option(help="Another seed draws another sample.")] = 0,
) -> None:
    """Label a run's answers by hand, blind to its verdicts; continue where you stopped."""

    run = find_run(name, runs_folder())
    chosen = chosen_for_labels(load_run(run), sample, seed)
    if not chosen:
        raise UserError(f"{run.id} has no judged answer to label; name another run")
    known = read_labels(run)
    left = [each for each in chosen if each.trajectory.episode_id not in known]
    given = 0
    for number, scored in enumerate(left, start=len(chosen) - len(left) + 1):
        _show(scored, number, len(chosen))
        key = pressed_key(KEYS, "rwsq", "labels")
        if key == "q":
            break
        if key != "s":
            write_label(run, scored.trajectory.episode_id, correct=key == "r")
            given += 1
    note(f"{plural(given, 'label')} added to {labels_file(run)}")
    note(f"art-e eval judge --run {name} compares the verdicts with them")


def _show(scored: "Scored", number: int, of: int) -> None:
    screen = console()
    question, trajectory = scored.question, scored.trajectory
    screen.print(text((f"\n{number} of {of}", "dim")), soft_wrap=True)
    for mail in _mails(trajectory):
        screen.print(mail, soft_wrap=True)
    asked_on = f"  (asked on {question.query_date})" if question.query_date else ""
    gold = "(the mail does not tell)" if question.answer is None else one_line(question.answer)
    rows = (
        ("question  ", one_line(question.question), "bold", asked_on),
        ("gold      ", gold, "green", ""),
        ("answer    ", one_line(trajectory.final_answer or ""), "yellow", ""),
    )
    for heading, shown, style, more in rows:
        screen.print(text((heading, "dim"), (shown, style), (more, "dim")), soft_wrap=True)


def _mails(trajectory: "Trajectory") -> "Iterator[Text]":
    """The mails that were read, each once, as the model was shown them."""
    seen: set[str] = set()
    for exchange in exchanges(trajectory.messages):
        for mail in (result for call in exchange.calls for result in call.results[:1]):
            name = one_line(str(mail.get("message_id")))
            if "body" in mail and name not in seen:
                seen.add(name)
                cited = trajectory.handles.get(name, name) in trajectory.sources
                people, date, subject, body = (
                    str(mail.get(key, "")) for key in ("from", "date", "subject", "body")
                )
                yield shown_mail(ShownMail(date, people, subject, body, "cited" if cited else ""))
