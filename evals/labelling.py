"""`art-e eval label`: a person labels a run's answers as right or wrong.

It shows the question, the gold answer, the answer and the mails as the model read them, but
neither the model nor a verdict. All of these are untrusted text from the run's folder.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from art_e.cli.mail import shown_mail
from art_e.cli.output import console, note, one_line, plural, pressed_key, text
from art_e.errors import UserError
from art_e.runs import find_run
from art_e.storage import runs_folder
from art_e.trajectory import Trajectory, exchanges
from evals.judges.labels import chosen_for_labels, labels_file, read_labels, write_label
from evals.scored import Scored, load_run

if TYPE_CHECKING:
    from rich.text import Text


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
