"""How a mail's text is put together: greeting, sentences, signature, quoted mail.

Knows people and phrase banks; knows nothing of facts, questions or bytes.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from data_pipeline.synthetic.people import Person
from data_pipeline.synthetic.wording import MONTHS, WEEKDAYS, Wording, pick

_WIDTH = 72


@dataclass(slots=True)
class Draft:
    """A mail before it is bytes. `minute` is UTC, in minutes since year 1.

    `old_addresses` lets owners appear under their other address too.
    """

    message_id: str
    minute: int
    sender: Person
    to: tuple[Person, ...]
    cc: tuple[Person, ...]
    bcc: tuple[Person, ...]
    subject: str
    text: str
    references: tuple[str, ...] = ()
    attachment: str = ""
    html_only: bool = False
    old_addresses: bool = False

    @property
    def utc_date(self) -> dt.date:
        """The day on which the mail is sent, in UTC."""
        return dt.date.fromordinal(self.minute // 1440)

    @property
    def people(self) -> tuple[Person, ...]:
        """Everyone in the headers."""
        return (self.sender, *self.to, *self.cc, *self.bcc)


@dataclass(frozen=True, slots=True)
class Style:
    """What the mails of a world look like. `company` stands in signatures."""

    wording: Wording
    company: str
    short: bool
    bounded: bool


def capital(text: str) -> str:
    """`text` as it stands at the start of a sentence."""
    return text[0].upper() + text[1:]


def reply_subject(subject: str) -> str:
    """`Re: subject`, once."""
    return subject if subject[:4].lower() == "re: " else f"Re: {subject}"


def wrap(text: str) -> str:
    """`text` with lines of at most 72 characters, as older mail programs send it."""
    lines = []
    for line in text.split("\n"):
        while len(line) > _WIDTH:
            cut = line.rfind(" ", 0, _WIDTH + 1)
            if cut <= 0:
                break
            lines.append(line[:cut])
            line = line[cut + 1 :]  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines)


def _signature(rng: Random, sender: Person, style: Style) -> str:
    draw = rng.random()
    if draw < 0.45:
        return f"\n{sender.signs}"
    if draw < 0.55:
        return ""
    if draw < 0.75:
        return f"\n{pick(rng, style.wording.common['closing'])}\n{sender.signs}"
    phone = f"(555) 01{sender.number % 90 + 10}-{sender.number * 7919 % 9000 + 1000}"
    return (
        f"\n{pick(rng, style.wording.common['closing'])}\n{sender.signs}\n\n"
        f"{sender.full}\n{sender.role}\n{style.company}\n{phone}"
    )


def letter(
    rng: Random,
    style: Style,
    sender: Person,
    to: Sequence[Person],
    lines: list[str],
    *,
    filler: float = 0.5,
) -> str:
    """The sender's own text. Filler and typos go into sentences that carry no fact."""
    if style.short:
        return " ".join(lines)
    common = style.wording.common
    parts = []
    if rng.random() < 0.7:
        if len(to) == 1:
            called = to[0].nick if rng.random() < 0.6 else to[0].given
            parts.append(pick(rng, common["greeting"]).format(a=called))
        else:
            parts.append(pick(rng, common["greeting_all"]))
    body = list(lines)
    if rng.random() < filler:
        bank = "typos" if rng.random() < 0.16 else "filler"
        # A sentence that greets or excuses may lead, most come last.
        body.append(pick(rng, common[bank]))
        if rng.random() < 0.35:
            second = pick(rng, common["filler"])
            if second not in body:
                body.append(second)
    if len(body) > 2 and rng.random() < 0.5:
        parts.append(" ".join(body[:-1]))
        parts.append(body[-1])
    else:
        parts.append(" ".join(body))
    gap = "\n\n" if rng.random() < 0.75 else "\n"
    text = gap.join(parts)
    if style.bounded:
        return text
    text += "\n" + _signature(rng, sender, style)
    text = text.rstrip()
    return wrap(text) if sender.number % 3 else text


def _clock(minute: int, utc_offset: int) -> tuple[dt.date, str]:
    days, rest = divmod(minute + utc_offset, 1440)
    hour, half = rest // 60, "AM" if rest < 720 else "PM"
    return dt.date.fromordinal(days), f"{(hour - 1) % 12 + 1}:{rest % 60:02d} {half}"


def _original(
    sender: Person, to: Sequence[Person], minute: int, offset: int, subject: str, text: str
) -> str:
    day, clock = _clock(minute, offset)
    names = "; ".join(f"{person.family}, {person.given}" for person in to[:4])
    sent = f"{WEEKDAYS[day.weekday()]}, {MONTHS[day.month - 1]} {day.day}, {day.year} {clock}"
    return (
        f"-----Original Message-----\nFrom: {sender.full} [mailto:{sender.primary}]\n"
        f"Sent: {sent}\nTo: {names}\nSubject: {subject}\n\n{text}"
    )


def quoted(replier: Person, parent: Draft) -> str:
    """The parent as the replier's mail program quotes it (three programs are in use)."""
    day, clock = _clock(parent.minute, replier.utc_offset)
    if replier.number % 3 == 0:
        lead = (
            f"On {WEEKDAYS[day.weekday()][:3]}, {MONTHS[day.month - 1][:3]} {day.day}, {day.year} "
            f"at {clock}, {parent.sender.full} wrote:\n"
        )
        return lead + "\n".join(f"> {line}" for line in parent.text.split("\n"))
    if replier.number % 3 == 1:
        return _original(
            parent.sender, parent.to, parent.minute, replier.utc_offset, parent.subject, parent.text
        )
    names = ", ".join(person.full for person in parent.to[:4])
    return (
        f"\t{parent.sender.full}\n\t{day.month:02d}/{day.day:02d}/{day.year} {clock}\n\n"
        f"\tTo: {names}\n\tSubject: {parent.subject}\n\n{parent.text}"
    )


def forwarded(
    first: Person, via: Person, minute: int, subject: str, text: str, *, bare: bool
) -> str:
    """A mail that `first` sent to `via`, as it stands in what `via` forwards."""
    if bare:
        lead = f"---------- Forwarded message ----------\nFrom: {first.full}\n"
        return f"{lead}Subject: {subject}\n\n{text}"
    return _original(first, [via], minute, via.utc_offset, subject, text)
