"""The stage of a story: its people, names and dates, and the mails and questions it creates.

No other story has its people, teams, vendors and projects, so no other mail can answer or
contradict its questions."""

import datetime as dt
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

from art_e.question import Difficulty, Kind, Question, Split
from data_pipeline.synthetic import wording
from data_pipeline.synthetic.mail import Draft, capital, forwarded, letter, quoted, reply_subject
from data_pipeline.synthetic.wording import Company, FactValue, Person

Slot = str | FactValue

# How likely people are to ask such a question about their mail; our estimate.
_REALISM: dict[Kind, float] = {
    "lookup": 0.9, "latest-update": 0.85, "unanswerable": 0.8, "multi-mail": 0.7, "count": 0.7,
}  # fmt: skip
# Share of the questions that are repeated, in phrases of the same bank, as unanswerable.
_ASKED_AGAIN = 1 / 3
_STOP = frozenset(
    "a an and at be by did do does for from had has have how i in is it many much of on or our the"
    " this to was we what when where which who whose will with us s".split()
)


@dataclass(frozen=True, slots=True)
class Planted:
    """A question with its ground truth: the `evidence` (id and text) in each gold mail, the full
    names of its `subjects`, and `until`, the id of the mail that first gives or changes the answer,
    if any. Without it, an unanswerable question has a subject that no mail of the inbox names."""

    question: Question
    evidence: tuple[tuple[str, str], ...]
    subjects: tuple[str, ...]
    until: str


@dataclass(frozen=True, slots=True)
class StoryPlan:
    """A story: its kind, its owner's number, its first day (days after the epoch)."""

    number: int
    kind: str
    owner: int
    split: Split
    start: int
    first_names_clear: bool


class Fact(NamedTuple):
    """A mail and a value that it states."""

    mail: Draft
    value: FactValue


def facts_of(mail: Draft, slots: Mapping[str, Slot | Person]) -> dict[str, Fact]:
    """Return the facts in a mail: the slots of its phrase that are not people."""
    values = {k: FactValue(v, v) if isinstance(v, str) else v for k, v in slots.items()}
    return {k: Fact(mail, value) for k, value in values.items() if isinstance(value, FactValue)}


@dataclass
class Stage:
    """A story's stage. `cast` and `coined` are its people and names; `strangers` pairs them with
    those of a story in another inbox."""

    rng: Random
    plan: StoryPlan
    company: Company
    cast: Sequence[Person]
    coined: Sequence[str]
    strangers: Sequence[tuple[Person, Person] | tuple[str, str]]
    message_ids: Iterator[str]

    def __post_init__(self) -> None:
        self.owner, self.bounded = self.company.staff[self.plan.owner], self.company.bounded
        self.drafts: list[Draft] = []
        self.planted: list[Planted] = []
        # Each question's bank and slots, and the mail before which it has no answer, if known.
        self._phrasings: list[tuple[Question, str, Mapping[str, str | Person], Draft | None]] = []
        self._banks = self.company.wording.story[self.plan.kind]
        self._decks: dict[str, list[str]] = {}
        self._used: set[Person] = {self.owner}

    def colleague(self) -> Person:
        """Draw a member of staff without an inbox who is new to this story."""
        staff, person = self.company.staff, self.owner
        while person in self._used:
            person = staff[self.rng.randrange(self.company.owners, len(staff))]
        self._used.add(person)
        return person

    def things(self, bank: str, count: int) -> list[str]:
        return self.rng.sample(self._banks[bank], count)

    def day(self, offset: int) -> dt.date:
        return wording.workday(self.plan.start + offset)

    # Wording.

    def name(self, person: Person) -> FactValue:
        """Return a unique name: the full one, or the short form with the family name."""
        full = self.bounded or self.rng.random() < 0.7
        return FactValue(person.full, person.full if full else f"{person.nick} {person.family}")

    def say(self, bank: str, **slots: Slot | Person) -> str:
        """Draw a phrase of the bank and fill its slots; `{x_cap}` is slot `x`, capitalized."""
        names, filled = wording.slots_of(self.plan.kind, bank), dict[str, str]()
        for name, slot in slots.items():
            if name in names:
                filled[name] = self._ref(slot) if isinstance(slot, Person) else str(slot)
            if f"{name}_cap" in names:
                filled[f"{name}_cap"] = capital(str(slot))
        return self._draw(bank).format_map(filled)

    def _draw(self, bank: str) -> str:
        """Draw a phrase of the bank, without repeats until all have been used."""
        if not self._decks.get(bank):
            self._decks[bank] = list(self._banks[bank])
            self.rng.shuffle(self._decks[bank])
        return self._decks[bank].pop()

    def _ref(self, person: Person) -> str:
        """Return a name for a person in a mail: full, first, nickname, or nickname and family."""
        draw = self.rng.random()
        if draw < 0.4 or self.bounded:
            return person.full
        if draw < 0.55 or not self._first_name_clear(person):
            return self.name(person).text
        return person.forename if draw < 0.78 else person.nick

    def _call(self, person: Person) -> str:
        draw = self.rng.random()
        clear = self._first_name_clear(person)
        if draw < 0.45 or self.bounded or (not clear and draw < 0.8):
            return person.full
        if draw < 0.6 or not clear:
            return f"{person.nick} {person.family}"
        return person.forename if draw < 0.8 else person.nick

    def _first_name_clear(self, person: Person) -> bool:
        same = {person.forename, person.nick} & {self.owner.forename, self.owner.nick}
        return self.plan.first_names_clear and not same

    # Dates, amounts and reference numbers, in free or bounded vocabulary.

    def date(self, day: dt.date, offset: int) -> FactValue:
        """Write `day` for a mail of story day `offset`, without the year only if `day` is near."""
        ahead = (day - self.day(offset)).days
        kind = "far" if abs(ahead) > 150 else "soon" if 0 < ahead <= 24 else "near"
        forms = wording.load_toml("dates.toml")["bounded" if self.bounded else kind]
        text = self.rng.choice(forms).format(day=day, ordinal=wording.ordinal(day.day))
        return FactValue(wording.date_answer(day), text)

    def target(self, day: dt.date) -> FactValue:
        """Write `day` vaguely: End of Feb, the end of February, mid-April."""
        parts = (("beginning", "early "), ("middle", "mid-"), ("end", "end of "))
        long, short = parts[min(2, (day.day - 1) // 10)]
        text = f"the {long} of {day:%B}"
        if not self.bounded:
            forms = (text, f"the {long} of {day:%b}", f"{short}{day:%B}", f"{short}{day:%b}")
            text = self.rng.choice(forms)
        return FactValue(f"The {long} of {day:%B} {day.year}", text)

    def draw_amount(self, low: int = 12, high: int = 480) -> int:
        draw = self.rng.randrange
        if self.bounded:
            return draw(1, 60) * 1000 + draw(1, 10) * 100
        return draw(low, high) * 100 + self.rng.choice((0, 0, 0, 50, 25, 80))

    def dollars(self, amount: int) -> FactValue:
        answer = f"${amount:,}"
        if self.bounded:
            return FactValue(answer, answer)
        forms = [answer, f"${amount}", f"USD {amount:,}", f"{amount:,} dollars"]
        if amount % 100 == 0 and amount >= 2000:
            forms += [f"{amount / 1000:g}k", f"${amount / 1000:g}k"]
        return FactValue(answer, self.rng.choice(forms))

    def reference(self, kind: str) -> str:
        draw, choice = self.rng.randrange, self.rng.choice
        if self.bounded:
            return "-".join(str(draw(10, 100)) for _ in range(2 if kind == "flight" else 3))
        if kind == "flight":
            return f"{choice(('KX', 'BN', 'TQ', 'WZ', 'NJ'))}{draw(100, 9999)}"
        if kind == "ticket":
            return choice((f"INC{draw(10**6, 10**7)}", f"#{draw(10**5, 10**6)}"))
        number = draw(10_000, 10**6)
        return choice((f"INV-{number}", f"RE{number}", f"{number // 1000}-{number % 1000:03d}"))

    # Mails.

    def tell(
        self, bank: str, offset: int, sender: Person | None = None, *, to: Sequence[Person] = (),
        cc: Sequence[Person] = (), parent: Draft | None = None, subject_first: bool = False,
        **slots: Slot | Person,
    ) -> dict[str, Fact]:  # fmt: skip
        """Write a mail of one phrase on story day `offset`, by default from a colleague; return its
        facts. The subject comes from the bank `{bank}_subject`, or in a reply from the parent."""
        subject = self.say(f"{bank}_subject", **slots) if subject_first else ""
        line = self.say(bank, **slots)
        if not subject_first and parent is None:
            subject = self.say(f"{bank}_subject", **slots)
        sender = sender or self.colleague()
        mail = self.mail(offset, sender, subject, [line], to=to, cc=cc, parent=parent)
        return facts_of(mail, slots)

    def mail(
        self, offset: int, sender: Person, subject: str, lines: list[str], *,
        to: Sequence[Person] = (), cc: Sequence[Person] = (), parent: Draft | None = None,
        attachment: str = "", quoting: bool = True,
    ) -> Draft:  # fmt: skip
        """Write a mail on the story's day `offset`. An owner who neither sends nor gets it is added
        to To, Cc or, rarely, Bcc; sometimes a colleague forwards it to the owner."""
        rng, company = self.rng, self.company
        bcc: tuple[Person, ...] = ()
        receivers, copied = list(to), list(cc)
        via: Person | None = None
        if sender is not self.owner and self.owner not in receivers:
            draw = rng.random()
            if draw < 0.12 and parent is None and not company.plain:
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
        minute = self.day(offset).toordinal() * 1440 + rng.randrange(485, 1060) - writer.utc_offset
        if parent is not None:
            subject = reply_subject(parent.subject)
            minute = max(minute, parent.minute + rng.randrange(15, 240))
        text = letter(rng, company, sender, [via] if via else receivers, lines)
        if via is not None:
            earlier = minute - rng.randrange(20, 120)
            block = forwarded(sender, via, earlier, subject, text, bare=rng.random() < 0.4)
            intro = wording.pick(rng, company.wording.common["forward_intro"])
            text = f"{letter(rng, company, via, [self.owner], [intro], filler=0.1)}\n\n{block}"
            subject = rng.choice(("Fwd: ", "FW: ")) + subject
        elif parent is not None and quoting and not company.plain:
            text = f"{text}\n\n\n{quoted(sender, parent)}"
        draft = Draft(next(self.message_ids), minute, writer, tuple(receivers), subject, text)
        draft.cc, draft.bcc = tuple(copied), bcc
        draft.references = (*parent.references, parent.message_id) if parent else ()
        draft.attachment = "" if company.plain else attachment
        self.drafts.append(draft)
        return draft

    # Questions.

    def ask(
        self, kind: Kind, bank: str, *evidence: Fact, answer: str = "", first: Fact | None = None,
        until: Draft | None = None, **slots: str | Person,
    ) -> None:  # fmt: skip
        """Plant a question about the facts in `evidence`; the last is the answer. It is asked after
        their mails and before `until`, which changes it; `first` is the earliest answer."""
        text, subjects = self._question(bank, slots)
        mails = [fact.mail for fact in evidence]
        last = max(mails, key=lambda mail: mail.minute)
        query_date = last.utc_date + dt.timedelta(int(self.rng.random() ** 2 * 45))  # mostly soon
        if until is not None:
            query_date = min(query_date, until.utc_date - dt.timedelta(1))
        question = Question(
            id="", question=text, inbox_address=self.owner.address, query_date=query_date,
            answer=answer or evidence[-1].value.answer,
            message_ids=tuple(dict.fromkeys(mail.message_id for mail in mails)),
            how_realistic=_REALISM[kind], kind=kind, difficulty=_difficulty(kind, text, mails),
            answerable=True, split=self.plan.split,
            provenance={"model": "synthetic", "story": f"{self.plan.kind}-{self.plan.number}"},
        )  # fmt: skip
        written = tuple((fact.mail.message_id, _as_written(fact)) for fact in evidence)
        self.planted.append(Planted(question, written, subjects, until.message_id if until else ""))
        before = first.mail if first else last if kind in ("lookup", "multi-mail") else None
        # A question that names the day of an event is not asked before that day.
        self._phrasings.append((question, bank, slots, None if "date" in slots else before))

    def _question(
        self, bank: str, slots: Mapping[str, str | Person]
    ) -> tuple[str, tuple[str, ...]]:
        template = self._draw(bank)
        calls = {k: self._call(v) if isinstance(v, Person) else v for k, v in slots.items()}
        subjects = [slot for name, slot in slots.items() if f"{{{name}}}" in template]
        names = (each.full if isinstance(each, Person) else each for each in subjects)
        return template.format_map(calls), tuple(names)

    def ask_update(self, bank: str, new: Fact, old: Fact, chance: float, **slots: Any) -> None:
        """Ask for the newest answer, and with probability `chance` also for the one before it."""
        self.ask("latest-update", bank, new, first=old, **slots)
        if self.rng.random() < chance:
            self.ask("latest-update", bank, old, first=old, until=new.mail, **slots)

    def ask_count(self, bank: str, facts: Sequence[Fact], **slots: Any) -> None:
        facts, total = sorted(facts, key=lambda fact: fact.mail.minute), len(facts)
        upto = total if self.rng.random() < 0.6 else self.rng.randrange(2, total + 1)
        while upto < total and facts[upto].mail.utc_date <= facts[upto - 1].mail.utc_date:
            upto += 1  # a query date can't fall between two mails of one day
        until = facts[upto].mail if upto < total else None
        self.ask("count", bank, *facts[:upto], answer=str(upto), until=until, **slots)

    def ask_absent(self) -> None:
        """Repeat some questions, in phrases of the same bank, as unanswerable: asked before their
        mails, or about names of another inbox. All questions have the same chance, so that the
        wording does not reveal whether one is answerable."""
        first_day = min(draft.utc_date for draft in self.drafts)
        for like, bank, slots, first in self._phrasings:
            if self.rng.random() >= _ASKED_AGAIN:
                continue
            date, until, about = like.query_date, "", slots
            days = (first.utc_date - first_day).days if first else 0
            if first and days > 0 and (not self.strangers or self.rng.random() < 0.7):
                date, until = first_day + dt.timedelta(self.rng.randrange(days)), first.message_id
            elif self.strangers:
                about = self._strange(slots)
            else:
                continue
            text, subjects = self._question(bank, about)
            question = replace(
                like, question=text, query_date=date, answer=None, message_ids=(),
                how_realistic=_REALISM["unanswerable"], kind="unanswerable", answerable=False,
                difficulty="hard" if until else "medium",
                provenance={**like.provenance, "like": like.kind},
            )  # fmt: skip
            self.planted.append(Planted(question, (), subjects, until))

    def _strange(self, slots: Mapping[str, str | Person]) -> Mapping[str, str | Person]:
        changes: list[dict[str, str | Person]] = []
        for (name, slot), (member, other) in itertools.product(slots.items(), self.strangers):
            if slot == member:
                changes.append({name: other})
            elif isinstance(slot, str) and isinstance(other, str) and str(member) in slot:
                changes.append({name: slot.replace(str(member), other)})
        return {**slots, **self.rng.choice(changes)}


def _as_written(fact: Fact) -> str:
    """Return the fact's text as its mail has it: with a capital if it starts a sentence."""
    text = fact.value.text
    written = f"{fact.mail.subject}\n{' '.join(fact.mail.text.split())}"
    return text if text in written else capital(text)


def _difficulty(kind: Kind, question: str, mails: Sequence[Draft]) -> Difficulty:
    """Rate a question: easy with 0 points, medium with 1, else hard. One point each: its gold mails
    have under 60 % of its words; under 40 %; they are 2 or more; 4 or more; the answer changed."""
    words = wording.words_of(question) - _STOP
    text = " ".join(f"{mail.subject} {mail.text}" for mail in mails)
    share = len(words & wording.words_of(text)) / max(1, len(words))
    points = (share < 0.6) + (share < 0.4) + (len(mails) >= 2) + (len(mails) >= 4)
    points += kind == "latest-update"
    return "easy" if points == 0 else "medium" if points == 1 else "hard"
