"""A vendor sends invoices: purposes, sums, numbers, due dates, who released them.

Distractors: the vendor's other invoices, and a vendor of nearly the same name
with an invoice for the same purpose.
"""

import datetime as dt

from data_pipeline.synthetic import spoken
from data_pipeline.synthetic.letters import Draft, capital
from data_pipeline.synthetic.stage import Stage


class _Bill:
    """One invoice as the vendor sent it."""

    def __init__(self, stage: Stage, vendor: str, purpose: str, offset: int) -> None:
        told = stage.day(offset)
        self.purpose = purpose
        self.amount = spoken.draw_amount(stage.rng, bounded=stage.bounded)
        self.number = spoken.reference(stage.rng, "invoice", bounded=stage.bounded)
        self.due = told + dt.timedelta(days=stage.rng.randrange(14, 45))
        self.said_amount = stage.amount(self.amount)
        self.said_due = stage.date(self.due, told)
        slots = {"vendor": vendor, "purpose": purpose, "number": self.number}
        line = stage.say(
            "bill",
            purpose_cap=capital(purpose),
            amount=self.said_amount,
            date=self.said_due,
            **slots,
        )
        subject = stage.say("bill_subject", **slots)
        paper = f"{self.number.lstrip('#')}.pdf" if stage.rng.random() < 0.35 else ""
        self.mail: Draft = stage.mail(told, stage.colleague(), subject, [line], attachment=paper)


def tell(stage: Stage) -> None:
    """Two to five invoices; the sum of the first is corrected later."""
    rng = stage.rng
    count = rng.randrange(2, 6)
    purposes = stage.things("purposes", count)
    name = stage.coined[0]
    vendor, near = name, stage.coined[1]
    if not stage.bounded:
        trades = rng.sample(("Supply", "Services", "Partners", "Works", "Group"), 2)
        vendor, near = f"{name} {trades[0]}", f"{name} {trades[1]}"
    bills = [_Bill(stage, vendor, purpose, 5 * at) for at, purpose in enumerate(purposes)]
    _Bill(stage, near, purposes[0], 4)

    told = stage.day(rng.randrange(9, 20))
    right = bills[0].amount
    while right == bills[0].amount:
        right = spoken.draw_amount(rng, bounded=stage.bounded)
    said = stage.amount(right)
    slots = {"vendor": vendor, "number": bills[0].number}
    of = {"purpose": purposes[0], "purpose_cap": capital(purposes[0])}
    subject, line = stage.say("fix_subject", **slots), stage.say("fix", amount=said, **of, **slots)
    fixed = (stage.mail(told, stage.colleague(), subject, [line]), said)

    released = []
    for bill, person, offset in zip(bills, stage.cast, (24, 16), strict=False):
        who = stage.clear(person)
        line = stage.say("paid", q=who, number=bill.number)
        subject = stage.say("paid_subject", number=bill.number)
        released.append((stage.mail(stage.day(offset), stage.colleague(), subject, [line]), who))

    first, second = purposes[0], purposes[1]
    stage.ask(
        "latest-update",
        "q_amount",
        spoken.amount_answer(right),
        [fixed],
        vendor=vendor,
        purpose=first,
    )
    if rng.random() < 0.35:
        stage.ask(
            "latest-update",
            "q_amount",
            spoken.amount_answer(bills[0].amount),
            [(bills[0].mail, bills[0].said_amount)],
            until=fixed[0],
            vendor=vendor,
            purpose=first,
        )
    bill = bills[1]
    for asked in rng.sample(("amount", "due", "number"), 1 + (rng.random() < 0.3)):
        if asked == "amount":
            answer, gold = spoken.amount_answer(bill.amount), [(bill.mail, bill.said_amount)]
        elif asked == "due":
            answer, gold = spoken.date_answer(bill.due), [(bill.mail, bill.said_due)]
        else:
            answer, gold = bill.number, [(bill.mail, bill.number)]
        stage.ask("lookup", f"q_{asked}", answer, gold, vendor=vendor, purpose=second)
    chain = [(bill.mail, bill.number), released[1]]
    stage.ask("multi-mail", "q_paid", stage.cast[1].full, chain, vendor=vendor, purpose=second)
    stage.ask_count("q_count", [(bill.mail, bill.number) for bill in bills], vendor=vendor)
    for at in range(1 + (rng.random() < 0.6)):
        stage.ask_absent(bills[at].mail, vendor=vendor, purpose=purposes[at])
