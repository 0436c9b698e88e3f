"""`art-e eval label`: a person labels a run's answers as right or wrong.

It shows the question, the gold answer, the answer and the mails as the model read them, but
neither the model nor a verdict. All of these are untrusted text from the run's folder.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument

from art_e.cli.output import clean, console, note, one_line, plural, text
from art_e.errors import UserError
from art_e.runs import find_run
from art_e.storage import runs_folder
from art_e.trajectory import Trajectory, exchanges
from evals.judges.labels import chosen_for_labels, labels_file, read_labels, write_label
from evals.scored import Scored, load_run

if TYPE_CHECKING:
    from rich.text import Text


# ---- What all commands share that ask a person: single keys, and mails to look at.

BODY_LINES = 40
_LINE_CHARS = 1_000


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


def shown_mail(
    date: str, sender: str, subject: str, body: str, mark: str = "", *, whole: bool = False
) -> "Text":
    """A mail for a person to read, with a word about it, such as "cited", as its `mark`.

    Empty lines are left out; unless `whole`, so are further lines and the ends of long ones.
    """
    lines = [each.rstrip().expandtabs(4) for each in clean(body).split("\n") if each.strip()]
    shown = lines if whole else [each[:_LINE_CHARS] for each in lines[:BODY_LINES]]
    hidden = sum(map(len, lines)) - sum(map(len, shown))
    return text(
        (f"{one_line(date)}  {one_line(sender)}", "cyan"),
        f"  {one_line(subject)}",
        (f"  {one_line(mark)}" if mark else "", "green"),
        ("".join(f"\n| {line}" for line in shown), "dim"),
        (f"\n| ({plural(hidden, 'more character')})" if hidden else "", "dim"),
        "\n",
    )


# ---- The command.

KEYS = "[r]ight [w]rong [s]kip [q]uit"


def label(
    name: Annotated[str, Argument(metavar="RUN", help="Name of a run, or its folder.")],
) -> None:
    """Label a run's answers by hand in random order, blind to its verdicts; stop when you like,
    and continue where you stopped."""
    run = find_run(name, runs_folder())
    chosen = chosen_for_labels(load_run(run))
    if not chosen:
        raise UserError(f"{run.id} has no judged answer to label; name another run")
    labels = read_labels(run)
    left = [each for each in chosen if each.trajectory.episode_id not in labels]
    given = 0
    for number, scored in enumerate(left, start=len(chosen) - len(left) + 1):
        console().print(_shown(scored, f"{number} of {len(chosen)}"), soft_wrap=True)
        key = pressed_key(KEYS, "rwsq", "labels")
        if key == "q":
            break
        if key != "s":
            write_label(run, scored.trajectory.episode_id, correct=key == "r")
            given += 1
    note(f"{plural(given, 'label')} added to {labels_file(run)}")
    note(f"art-e eval judge --run {name} compares the verdicts with them")


def _shown(scored: Scored, heading: str) -> "Text":
    question, trajectory = scored.question, scored.trajectory
    gold = "(the mail does not tell)" if question.answer is None else question.answer
    shown = text((f"\n{heading}\n", "dim"))
    for mail in _mails(trajectory):
        shown.append_text(mail).append("\n")
    asked_on = f"  (asked on {question.query_date})" if question.query_date else ""
    return shown.append_text(
        text(
            *(("question  ", "dim"), (one_line(question.question), "bold"), (asked_on, "dim")),
            *(("\ngold      ", "dim"), (one_line(gold), "green")),
            *(("\nanswer    ", "dim"), (one_line(trajectory.final_answer or ""), "yellow")),
        )
    )


def _mails(trajectory: Trajectory) -> Iterator["Text"]:
    """The mails that were read, each once, as the model was shown them."""
    calls = [call for exchange in exchanges(trajectory.messages) for call in exchange.calls]
    results = [call.results[0] for call in calls if call.results]
    mails = {one_line(str(each.get("message_id"))): each for each in results if "body" in each}
    for name, mail in mails.items():
        date, sender, subject, body = (
            str(mail.get(key, "")) for key in ("date", "from", "subject", "body")
        )
        cited = trajectory.handles.get(name, name) in trajectory.sources
        yield shown_mail(date, sender, subject, body, "cited" if cited else "")
