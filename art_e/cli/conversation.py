"""A conversation about one inbox, as `art-e chat` holds it in a terminal and `art-e web` on a page.

Each question is a run of its own, as `art-e ask -c` makes it, so that runs can be listed, shown and
rated.
"""

import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from typer import Option

from art_e.cli.ask import Answered, answer_question, begin_run, talk_after, what_it_took, with_talk
from art_e.cli.model_options import model_options, own_form, ready_policy, turn_tokens
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, format_date
from art_e.models.base import Policy
from art_e.models.fit import ReadMail, candidates
from art_e.models.model import Model, full_name
from art_e.question import Question
from art_e.ratings import add_rating, rated
from art_e.runs import Run

TalkModelOption = Annotated[
    str | None, Option(metavar="MODEL", parser=full_name, help="As for art-e ask.")
]
COMPLETED = 500  # addresses that are suggested, the owners first


@dataclass
class Talk:
    """The open inbox, the model, what was said, and the last answer.

    `talk` holds the last questions and answers. `sources` are the mails of the last answer: those
    that it cites, then those of its passages.
    """

    file: InboxFile
    inbox: Inbox
    policy: Policy
    today: dt.date | None
    talk: list[list[str]] = field(default_factory=list)
    run: Run | None = None
    answered: Answered | None = None
    sources: list[Email] = field(default_factory=list)
    took: str = ""

    def ask(self, line: str, say: Callable[[str], None]) -> Answered:
        """Ask a question, or a follow-up; `say` gets what happens at the moment."""
        began = time.monotonic()
        own = Question("ask", with_talk(line, self.talk), self.inbox.address, self.today)
        talk = (line, self.talk)
        path, form = self.file.path, own_form([self.policy.model])
        self.run = begin_run("ask", own, self.policy, path, form.max_turns, None, None, talk)
        self.answered = answer_question(self.inbox, own, self.policy, self.run, form, say=say)
        trajectory, passages = self.answered.trajectory, self.answered.passages
        self.took = what_it_took(trajectory, began)
        mails = [*self.answered.sources, *(each.email for each in passages)]
        self.sources = list({each.message_id: each for each in mails}.values())
        self.talk = talk_after(self.talk, line, trajectory)
        return self.answered

    def last(self) -> tuple[Run, Answered]:
        """The last answer and its run. Raises `UserError` without one."""
        if self.run is None or self.answered is None:
            raise UserError("nothing was asked yet")
        return self.run, self.answered

    def rate(self, rating: Literal["good", "bad"], right: str) -> None:
        """Keep a rating of the last answer; `right` may say what would be right."""
        run, answered = self.last()
        add_rating(rated(run, answered.trajectory, rating, right or None, []))

    def forget(self) -> None:
        """Forget what was said."""
        self.talk, self.run, self.answered, self.sources = [], None, None, []


def policy_of(
    model: str, max_cost: float | None, say: Callable[[str], None], on_answer: Callable[[str], None]
) -> Policy:
    """The policy of a model's full name; `say` gets each retry of a call, `on_answer` the answer as
    it arrives.

    Raises `UserError` for a model that can't be used.
    """

    def retried(number: int, most: int) -> None:
        say(f"{model}: trying again, {number} of {most}")

    limit = turn_tokens(own_form([model]), model)
    options = model_options(None, None, max_cost, "auto", 1, limit, retried, on_answer)
    return ready_policy(Model(model), options)


def supporting_sentence(email: Email, question: str, answer: str) -> str | None:
    """The sentence of a mail that shares most words with the answer, then fits the question best.

    None if none shares a word with it.
    """
    date, sender = format_date(email.date), str(email.sender)
    mail = [ReadMail(email.message_id, date, email.subject, sender, email.body, 0)]
    fits = {each.text: each.score for each in candidates(question, mail)}
    shared = {
        each.text: (each.features["own"], fits.get(each.text, 0.0))
        for each in candidates(answer, mail)
        if each.features["own"]
    }
    return max(shared, key=lambda text: shared[text], default=None)
