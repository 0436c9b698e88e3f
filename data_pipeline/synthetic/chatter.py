"""Mail that plants nothing: lunch, meetings, drafts, thanks, all-hands, newsletters.

Its people are staff and its projects its own: it can't answer or contradict a planted question.
"""

import bisect
import itertools
from collections.abc import Sequence
from random import Random

from data_pipeline.synthetic.mail import Draft, letter, quoted, reply_subject
from data_pipeline.synthetic.people import Company, Person
from data_pipeline.synthetic.wording import WEEKDAYS, pick, workday

_TIMES = ("9:30 am", "10 am", "11:30 am", "12:15 pm", "1 pm", "2:30 pm", "3 pm", "4:45 pm")
_ALL_HANDS = ("All hands {day}", "To all staff", "Notes from the office", "{city} office: notes")


class Chatter:
    """Threads of chatter, each from its own random stream; `weights` are the owners' shares."""

    def __init__(
        self, seed: int, company: Company, projects: Sequence[str], weights: Sequence[float]
    ) -> None:
        self._seed, self._company, self._projects = seed, company, tuple(projects)
        self._cumulative = tuple(itertools.accumulate(weights))
        self._banks = company.wording.chatter
        others = ("words", "more", "newsletter")
        self._topics = [topic for name, topic in self._banks.items() if name not in others]

    def thread(self, number: int, offset: int) -> tuple[Random, list[Draft]]:
        """Thread `number`, begun `offset` days after the epoch, and its random stream."""
        rng = Random(f"{self._seed}/chatter/{number}")
        kind = rng.random()
        minute = workday(offset).toordinal() * 1440 + rng.randrange(470, 1130)
        if kind >= 0.075 or self._company.plain:
            return rng, self._talk(rng, minute)
        announce = self._newsletter if kind < 0.06 else self._all_hands
        return rng, [announce(rng, minute)]

    def _somebody(self, rng: Random) -> Person:
        staff = self._company.staff
        if rng.random() < 0.78:
            mark = rng.random() * self._cumulative[-1]
            return staff[bisect.bisect_right(self._cumulative, mark)]
        return staff[int(rng.random() * len(staff))]

    def _near(self, rng: Random, person: Person, count: int) -> list[Person]:
        """Members of staff whom the person often writes to: `count` of 24."""
        staff, chosen = self._company.staff, [person]
        while len(chosen) <= count:
            step = 1 + int(rng.random() * 24) * 5
            other = staff[(person.number * 3 + step) % len(staff)]
            if other not in chosen:
                chosen.append(other)
        return chosen[1:]

    def _slots(self, rng: Random) -> dict[str, object]:
        words = self._banks["words"]
        return {
            "day": WEEKDAYS[int(rng.random() * 5)], "time": pick(rng, _TIMES),
            "room": rng.randrange(11, 99), "place": pick(rng, words["place"]),
            "thing": pick(rng, words["thing"]), "city": pick(rng, self._company.cities),
            "project": pick(rng, self._projects), "n": rng.randrange(3, 40),
        }  # fmt: skip

    def _talk(self, rng: Random, minute: int) -> list[Draft]:
        company = self._company
        slots = self._slots(rng)
        topic = self._topics[int(rng.random() * len(self._topics))]
        central = self._somebody(rng)
        others = self._near(rng, central, 1 + int(rng.random() ** 3 * 5))
        sender, to = (central, others) if rng.random() < 0.45 else (others[0], [central])
        cc = others[1:] if sender is not central else []
        subject = pick(rng, topic["subject"]).format_map(slots)
        drafts: list[Draft] = []
        for turn in range(1 + int(rng.random() ** 2 * 4)):
            first = turn == 0
            lines = [pick(rng, topic["open" if first else "reply"]).format_map(slots)]
            if not company.short and rng.random() < (0.55 if first else 0.25):
                lines.append(pick(rng, self._banks["more"]["line"]).format_map(slots))
            text = letter(rng, company, sender, to, lines, filler=0.35 if first else 0.1)
            if drafts and not company.plain and rng.random() < 0.75:
                text = f"{text}\n\n\n{quoted(sender, drafts[-1])}"
            references = (*drafts[-1].references, drafts[-1].message_id)[-6:] if drafts else ()
            message_id = _message_id(rng.randrange(1000), rng)
            sent = minute - sender.utc_offset if first else minute
            draft = Draft(message_id, sent, sender, tuple(to), subject, text, cc=tuple(cc))
            draft.references, draft.old_addresses = references, True
            drafts.append(draft)
            if first:
                subject = reply_subject(subject)
                if not company.plain:
                    if rng.random() <= 0.03:
                        ending = ("pdf", "docx", "xlsx")[int(rng.random() * 3)]
                        draft.attachment = f"{str(slots['thing']).replace(' ', '_')}.{ending}"
                    if rng.random() < 0.02:
                        draft.bcc = tuple(self._near(rng, sender, 1))
            minute = draft.minute + int(10 + rng.random() ** 3 * 2000)
            last, sender = sender, to[int(rng.random() * len(to))]
            to = [last, *(person for person in to if person is not sender and rng.random() < 0.8)]
        return drafts

    def _lines(self, rng: Random, count: int) -> list[str]:
        lines = rng.sample(self._banks["newsletter"]["line"], count)
        return [line.format_map(self._slots(rng)) for line in lines]

    def _newsletter(self, rng: Random, minute: int) -> Draft:
        editor = self._company.staff[-1 - int(rng.random() * 4)]
        reader = self._somebody(rng)
        subject = pick(rng, self._banks["newsletter"]["subject"])
        lines = self._lines(rng, 5 + int(rng.random() * 6))
        html_only = rng.random() < 0.5
        message_id, subject = _message_id(7, rng), subject.format_map(self._slots(rng))
        text = "\n\n".join([*lines, "You get this mail because you are on our list."])
        draft = Draft(message_id, minute, editor, (reader,), subject, text, html_only=html_only)
        draft.old_addresses = True
        return draft

    def _all_hands(self, rng: Random, minute: int) -> Draft:
        staff = self._company.staff
        sender = staff[int(rng.random() * len(staff))]
        count = min(len(staff) - 1, rng.randrange(30, 200))
        crowd = [person for person in rng.sample(staff, count) if person is not sender]
        lines = ["A few things for everybody.", *self._lines(rng, 3)]
        slots = self._slots(rng)
        subject = pick(rng, _ALL_HANDS)
        message_id = _message_id(9, rng)
        text = letter(rng, self._company, sender, crowd, lines, filler=0.3)
        return Draft(message_id, minute, sender, tuple(crowd), subject.format_map(slots), text)


def _message_id(number: int, rng: Random) -> str:
    return f"<{rng.getrandbits(72):018x}.{number}@mail.example>"
