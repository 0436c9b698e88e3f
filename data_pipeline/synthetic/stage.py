"""Where a story is told: its people, names and clock, the mails and questions it leaves.

A story's people, teams, vendors and projects are its own, so no other mail of
the world can answer or contradict its questions. Knows nothing of any one
story.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from art_e.question import Kind, Question
from data_pipeline.synthetic import wording as spoken
from data_pipeline.synthetic.letters import (
    Draft,
    Style,
    forwarded,
    letter,
    quoted,
    reply_subject,
)
from data_pipeline.synthetic.people import Person
from data_pipeline.synthetic.plan import REALISM, Planted, StoryPlan, as_written, difficulty
from data_pipeline.synthetic.wording import Deck, pick, read_absent, workday

Slot = str | Person


@dataclass(frozen=True, slots=True)
class Company:
    """What all stories of a world share."""

    style: Style
    staff: tuple[Person, ...]
    owners: int
    cities: tuple[str, ...]


class Stage:
    """One story's stage. `cast` are people of its own, `coined` names of its own."""

    def __init__(
        self,
        rng: Random,
        plan: StoryPlan,
        company: Company,
        cast: Sequence[Person],
        coined: Sequence[str],
        message_ids: Sequence[str],
    ) -> None:
        self.rng = rng
        self.plan = plan
        self.company = company
        self.cast = tuple(cast)
        self.coined = tuple(coined)
        self.owner = company.staff[plan.owner]
        self.bounded = company.style.bounded
        self.drafts: list[Draft] = []
        self.planted: list[Planted] = []
        self._ids = list(reversed(message_ids))
        self._deck = Deck(rng, company.style.wording.story[plan.kind])
        self._used: set[Person] = {self.owner}

    # Who and when.

    def colleague(self) -> Person:
        """A member of staff who owns no inbox and has no part in this story yet."""
        staff = self.company.staff
        while True:
            person = staff[self.rng.randrange(self.company.owners, len(staff))]
            if person not in self._used:
                self._used.add(person)
                return person

    def cities(self, count: int) -> list[str]:
        """Different cities."""
        return self.rng.sample(self.company.cities, count)

    def things(self, bank: str, count: int) -> list[str]:
        """Different entries of a list of the story's phrase file."""
        return self.rng.sample(self.company.style.wording.story[self.plan.kind][bank], count)

    def day(self, offset: int) -> dt.date:
        """The working day `offset` days after the story's first."""
        return workday(self.plan.start + offset)

    # Wording.

    def _first_name_clear(self, person: Person) -> bool:
        """Whether a first name says who is meant: the owner's namesakes need the whole."""
        same = {person.given, person.nick} & {self.owner.given, self.owner.nick}
        return self.plan.first_names_clear and not same

    def ref(self, person: Person) -> str:
        """How a mail calls someone: full name, first name, nickname, or nickname and family."""
        draw = self.rng.random()
        if draw < 0.4:
            return person.full
        if draw < 0.55 or not self._first_name_clear(person):
            return self.clear(person)
        return person.given if draw < 0.78 else person.nick

    def clear(self, person: Person) -> str:
        """A name that nobody else bears: full, or the short form with the family name."""
        return person.full if self.rng.random() < 0.7 else f"{person.nick} {person.family}"

    def date(self, day: dt.date, told: dt.date) -> str:
        """`day` in the words of a mail of `told`."""
        return spoken.say_date(self.rng, day, told, bounded=self.bounded)

    def amount(self, amount: int) -> str:
        """`amount` in the words of a mail."""
        return spoken.say_amount(self.rng, amount, bounded=self.bounded)

    def say(self, bank: str, **slots: Slot) -> str:
        """A phrase of the bank with its slots filled, people as mails call them."""
        filled = {
            key: self.ref(slot) if isinstance(slot, Person) else slot for key, slot in slots.items()
        }
        return self._deck.draw(bank).format_map(filled)

    # Mails.

    def mail(
        self,
        day: dt.date,
        sender: Person,
        subject: str,
        lines: list[str],
        *,
        to: Sequence[Person] = (),
        cc: Sequence[Person] = (),
        parent: Draft | None = None,
        attachment: str = "",
        quoting: bool = True,
    ) -> Draft:
        """Write one mail. The owner always takes part, under the primary address.

        Where neither sender nor `to` is the owner, the owner is put into To,
        Cc or, now and then, Bcc; sometimes a colleague forwards the mail to
        the owner instead.
        """
        rng, style = self.rng, self.company.style
        bare = style.short or self.bounded
        bcc: tuple[Person, ...] = ()
        receivers, copied = list(to), list(cc)
        via: Person | None = None
        if sender is not self.owner and self.owner not in receivers:
            draw = rng.random()
            if draw < 0.12 and parent is None and not bare:
                via, receivers, copied = self.colleague(), [self.owner], []
            elif draw < 0.78 or (not receivers and draw < 0.8):
                receivers.insert(0, self.owner)
            else:
                receivers = receivers or [self.colleague()]
                if draw < 0.95:
                    copied.append(self.owner)
                else:
                    bcc = (self.owner,)
        if via is None and rng.random() < 0.2:
            copied.append(self.colleague())
        writer = via or sender
        minute = day.toordinal() * 1440 + rng.randrange(485, 1060) - writer.utc_offset
        if parent is not None:
            subject = reply_subject(parent.subject)
            minute = max(minute, parent.minute + rng.randrange(15, 240))
        addressed = [via] if via else receivers
        text = letter(rng, style, sender, addressed, lines)
        references: tuple[str, ...] = ()
        if via is not None:
            earlier = minute - rng.randrange(20, 120)
            block = forwarded(sender, via, earlier, subject, text, bare=rng.random() < 0.4)
            intro = pick(rng, style.wording.common["forward_intro"])
            text = f"{letter(rng, style, via, [self.owner], [intro], filler=0.1)}\n\n{block}"
            subject = rng.choice(("Fwd: ", "FW: ")) + subject
        elif parent is not None:
            references = (*parent.references, parent.message_id)
            if quoting and not bare:
                text = f"{text}\n\n\n{quoted(sender, parent)}"
        draft = Draft(
            message_id=self._ids.pop(),
            minute=minute,
            sender=writer,
            to=tuple(receivers),
            cc=tuple(copied),
            bcc=bcc,
            subject=subject,
            text=text,
            references=references,
            attachment="" if bare else attachment,
        )
        self.drafts.append(draft)
        return draft

    def acknowledge(self, day: dt.date, parent: Draft) -> None:
        """The owner's short thanks for a mail, which repeats nothing of it."""
        words = pick(self.rng, self.company.style.wording.common["thanks"])
        self.mail(day, self.owner, "", [words], to=[parent.sender], parent=parent, quoting=False)

    # Questions.

    def ask(
        self,
        kind: Kind,
        bank: str,
        answer: str,
        evidence: Sequence[tuple[Draft, str]],
        *,
        until: Draft | None = None,
        **slots: Slot,
    ) -> None:
        """Plant a question. `evidence`: the gold mails and what stands in each.

        The query date is on or after the last gold mail, and before `until`,
        the mail that would change the answer.
        """
        text = self._deck.draw(bank)
        self._plant(kind, text, answer, evidence, slots, until=until)

    def ask_count(self, bank: str, counted: Sequence[tuple[Draft, str]], **slots: Slot) -> None:
        """Ask how many there are; some are counted before the last has come."""
        counted = sorted(counted, key=lambda item: item[0].minute)
        total = len(counted)
        upto = total if self.rng.random() < 0.6 else self.rng.randrange(2, total + 1)
        while upto < total and counted[upto][0].utc_date <= counted[upto - 1][0].utc_date:
            upto += 1
        until = counted[upto][0] if upto < total else None
        text = self._deck.draw(bank)
        self._plant("count", text, str(upto), counted[:upto], slots, until=until)

    def ask_absent(self, after: Draft, **slots: Slot) -> None:
        """Ask for a detail that no mail gives, some time after `after`."""
        absent = read_absent(self._deck.draw("q_unanswerable"))
        self._plant("unanswerable", absent.text, "", [], slots, after=after, detail=absent.detail)

    def _call(self, person: Person) -> str:
        """How the owner calls someone in a question."""
        draw = self.rng.random()
        clear = self._first_name_clear(person)
        if draw < 0.45 or (not clear and draw < 0.8):
            return person.full
        if draw < 0.6 or not clear:
            return f"{person.nick} {person.family}"
        return person.given if draw < 0.8 else person.nick

    def _plant(
        self,
        kind: Kind,
        template: str,
        answer: str,
        evidence: Sequence[tuple[Draft, str]],
        slots: dict[str, Slot],
        *,
        until: Draft | None = None,
        after: Draft | None = None,
        detail: str = "",
    ) -> None:
        calls = {k: self._call(v) if isinstance(v, Person) else v for k, v in slots.items()}
        text = template.format_map(calls)
        gold = list(dict.fromkeys(draft.message_id for draft, _ in evidence))
        known = [draft for draft, _ in evidence] or ([after] if after else [])
        first = max(draft.utc_date for draft in known)
        query_date = first + dt.timedelta(days=int(self.rng.random() ** 2 * 45))
        if until is not None:
            query_date = min(query_date, until.utc_date - dt.timedelta(days=1))
            if query_date < first:
                raise ValueError(f"story {self.plan.number}: no day between {first} and its update")
        used = [value for key, value in slots.items() if f"{{{key}}}" in template]
        names = tuple(v.full if isinstance(v, Person) else v for v in used)
        question = Question(
            id="",
            question=text,
            inbox_address=self.owner.primary,
            query_date=query_date,
            answer=answer,
            message_ids=tuple(gold),
            how_realistic=REALISM[kind],
            kind=kind,
            difficulty=difficulty(kind, text, known),
            answerable=kind != "unanswerable",
            split=self.plan.split,
            provenance={"model": "synthetic", "story": f"{self.plan.kind}-{self.plan.number}"},
        )
        ledger = tuple((draft.message_id, as_written(draft, said)) for draft, said in evidence)
        self.planted.append(
            Planted(question, ledger, detail, names, until.message_id if until else "")
        )
