"""The stories that plant facts: one module a kind, each with `tell(stage)`.

`tell` writes the story's mails and plants its questions, of all five kinds.
"""

import datetime as dt
from collections.abc import Callable

from data_pipeline.synthetic import wording as spoken
from data_pipeline.synthetic.letters import Draft, capital
from data_pipeline.synthetic.people import Person
from data_pipeline.synthetic.stage import Stage

# ---- A manager approves requests: who asked, for what, at which site, up to what sum.


def tell(stage: Stage) -> None:
    """Two or three approvals by the same manager; the limit of the first is changed."""
    rng = stage.rng
    approver, other_approver = stage.cast[0], stage.cast[1]
    granted = stage.cast[2 : 4 + rng.randrange(2)]
    left = stage.cast[2 + len(granted) :]
    sites = stage.coined[:3]
    items = stage.things("items", 2)

    wishes = []
    asked = ((granted[0], items[0], sites[0]), (granted[1], items[1], sites[1]))
    for at, (person, item, site) in enumerate((*asked, (left[-1], items[1], sites[2]))):
        wishes.append(_wish(stage, person, item, site, 2 * at))

    grants, amounts, saids = [], [], []
    for at, person in enumerate(granted):
        mail, amount, said, who = _grant(stage, approver, person, 8 + 5 * at)
        grants.append((mail, who))
        amounts.append(amount)
        saids.append(said)
    _grant(stage, other_approver, left[-1], 10)
    if len(left) > 1:
        line = stage.say("refuse", p=approver, r=left[0])
        subject = stage.say("refuse_subject", r=left[0])
        stage.mail(stage.day(15), stage.colleague(), subject, [line])

    told = stage.day(rng.randrange(14, 26))
    new = amounts[0]
    while new == amounts[0]:
        new = spoken.draw_amount(rng, bounded=stage.bounded)
    said = stage.amount(new)
    line = stage.say("revise", p=approver, r=granted[0], amount=said)
    subject = stage.say("revise_subject", r=granted[0])
    revised = stage.mail(told, stage.colleague(), subject, [line])

    first, second = granted[0], granted[1]
    stage.ask("latest-update", "q_limit", spoken.amount_answer(new), [(revised, said)], r=first)
    if rng.random() < 0.35:
        old = spoken.amount_answer(amounts[0])
        gold = [(grants[0][0], saids[0])]
        stage.ask("latest-update", "q_limit", old, gold, until=revised, r=first)
    if rng.random() < 0.5:
        stage.ask("lookup", "q_who", approver.full, [grants[1]], r=second)
    else:
        stage.ask("lookup", "q_site", sites[1], [wishes[1]], r=second, item=items[1])
    chain = [wishes[1], (grants[1][0], saids[1])]
    answer = spoken.amount_answer(amounts[1])
    stage.ask("multi-mail", "q_item", answer, chain, item=items[1], site=sites[1])
    stage.ask_count("q_count", grants, p=approver)
    for at in range(1 + (rng.random() < 0.6)):
        person, item, site = asked[at]
        stage.ask_absent(grants[at][0], r=person, item=item, site=site)


def _wish(stage: Stage, person: Person, item: str, site: str, offset: int) -> tuple[Draft, str]:
    slots = {"r": stage.clear(person), "site": site, "item": item}
    line = stage.say("wish", **slots)
    subject = stage.say("wish_subject", item_cap=capital(item), **slots)
    return stage.mail(stage.day(offset), stage.colleague(), subject, [line]), site


def _grant(
    stage: Stage, approver: Person, person: Person, offset: int
) -> tuple[Draft, int, str, str]:
    amount = spoken.draw_amount(stage.rng, bounded=stage.bounded)
    said = stage.amount(amount)
    who = stage.clear(approver)
    line = stage.say("grant", p=who, r=person, amount=said)
    subject = stage.say("grant_subject", r=person)
    return stage.mail(stage.day(offset), stage.colleague(), subject, [line]), amount, said, who


# ---- Candidates come for an opening: days, rooms, interviewers, where they work now.


def tell_interview(stage: Stage) -> None:
    """Two to four candidates; the first one's day is moved."""
    rng = stage.rng
    candidates = stage.cast[: rng.randrange(2, 5)]
    team, firms = stage.coined[0], stage.coined[1:3]
    title = stage.things("titles", 1)[0]
    recruiter = stage.colleague()
    panel_of = [[stage.colleague(), stage.colleague()] for _ in candidates]
    rooms = rng.sample(range(11, 99), len(candidates))

    resumes = []
    for person, firm, offset in zip(candidates, firms, (0, 1), strict=False):
        line = stage.say("resume", p=stage.clear(person), firm=firm)
        subject = stage.say("resume_subject", p=person)
        paper = "profile.pdf" if rng.random() < 0.5 else ""
        resumes.append(
            (stage.mail(stage.day(offset), recruiter, subject, [line], attachment=paper), firm)
        )

    days, said_days, booked, panels = [], [], [], []
    for index, person in enumerate(candidates):
        told = stage.day(4 + 4 * index)
        day = stage.day(24 + 2 * index + index // 2)
        said = stage.date(day, told)
        room = str(rooms[index])
        panel = [stage.clear(member) for member in panel_of[index]]
        line = stage.say(
            "slot", p=person, date=said, title=title, team=team, room=room, q=panel[0], r=panel[1]
        )
        subject = stage.say("slot_subject", p=person, team=team, title=title)
        booked.append(stage.mail(told, recruiter, subject, [line], to=panel_of[index][:1]))
        days.append(day)
        said_days.append(said)
        panels.append(panel)

    told = stage.day(rng.randrange(11, 19))
    new = stage.day(rng.randrange(33, 44))
    said = stage.date(new, told)
    line = stage.say("move", p=candidates[0], date=said)
    subject = stage.say("move_subject", p=candidates[0])
    parent = booked[0] if rng.random() < 0.4 else None
    moved = stage.mail(told, recruiter, subject, [line], to=[stage.owner], parent=parent)

    first, second = candidates[0], candidates[1]
    stage.ask("latest-update", "q_date", spoken.date_answer(new), [(moved, said)], p=first)
    if rng.random() < 0.35:
        gold = [(booked[0], said_days[0])]
        stage.ask(
            "latest-update", "q_date", spoken.date_answer(days[0]), gold, until=moved, p=first
        )
    if rng.random() < 0.5:
        room = str(rooms[1])
        stage.ask("lookup", "q_room", f"Room {room}", [(booked[1], room)], p=second)
    else:
        names = " and ".join(member.full for member in panel_of[1])
        panel_gold: list[tuple[Draft, str]] = [(booked[1], name) for name in panels[1]]
        stage.ask("lookup", "q_panel", names, panel_gold, p=second)
    chain = [resumes[1], (booked[1], said_days[1])]
    stage.ask("multi-mail", "q_firm", spoken.date_answer(days[1]), chain, firm=firms[1])
    counted = [(mail, title) for mail in booked]
    stage.ask_count("q_count", counted, title=title, team=team)
    for index in range(1 + (rng.random() < 0.6)):
        stage.ask_absent(booked[index], p=candidates[index])


# ---- A vendor sends invoices: purposes, sums, numbers, due dates, who released them.


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


def tell_invoice(stage: Stage) -> None:
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


# ---- A system of the company: outages with their causes, a migration, two people's tickets.


def tell_outage(stage: Stage) -> None:
    """Two to four outages, told to many; the migration is put off once."""
    rng = stage.rng
    user, other_user = stage.cast[0], stage.cast[1]
    system = stage.coined[0]
    admin = stage.colleague()
    crowd: list[Person] = []
    if rng.random() < 0.4 and not stage.bounded:
        crowd = [stage.colleague() for _ in range(rng.randrange(12, 60))]

    count = rng.randrange(2, 5)
    causes = stage.things("causes", count)
    failed = [stage.day(4 + 11 * at) for at in range(count)]
    downs = []
    for at, (day, cause) in enumerate(zip(failed, causes, strict=True)):
        told = stage.day(5 + 11 * at)
        slots = {"system": system, "date": stage.date(day, told)}
        line = stage.say("down", cause=cause, cause_cap=capital(cause), **slots)
        subject = stage.say("down_subject", **slots)
        receivers = [stage.owner, *crowd] if crowd else []
        mail = stage.mail(told, admin, subject, [line], to=receivers)
        downs.append((mail, cause))

    first, second = stage.day(rng.randrange(40, 50)), stage.day(rng.randrange(58, 80))
    dates = []
    for bank, day, offset in (("migrate", first, 2), ("delay", second, rng.randrange(12, 30))):
        told = stage.day(offset)
        said = stage.date(day, told)
        line = stage.say(bank, system=system, date=said)
        subject = stage.say(f"{bank}_subject", system=system)
        dates.append((stage.mail(told, admin, subject, [line], cc=crowd[:8]), said))

    faults = stage.things("faults", 2)
    report, solved = _ticket(stage, admin, user, system, faults[0], 7)
    _ticket(stage, admin, other_user, system, faults[1], 9)

    newest = spoken.date_answer(second)
    stage.ask("latest-update", "q_migration", newest, [dates[1]], system=system)
    if rng.random() < 0.4:
        stage.ask(
            "latest-update",
            "q_migration",
            spoken.date_answer(first),
            [dates[0]],
            until=dates[1][0],
            system=system,
        )
    at = rng.randrange(count)
    asked = spoken.date_answer(failed[at]).rsplit(",", 1)[0]
    stage.ask("lookup", "q_cause", capital(causes[at]), [downs[at]], system=system, date=asked)
    if rng.random() < 0.4:
        stage.ask("lookup", "q_ticket", report[1], [report], p=user, system=system)
    stage.ask("multi-mail", "q_fault", capital(faults[0]), [report, solved], p=user, system=system)
    stage.ask_count("q_count", downs, system=system)
    for _ in range(1 + (rng.random() < 0.6)):
        stage.ask_absent(report[0], p=user, system=system)


def _ticket(
    stage: Stage, admin: Person, user: Person, system: str, fault: str, offset: int
) -> tuple[tuple[Draft, str], tuple[Draft, str]]:
    """A user's trouble: the report with its number, and what it turned out to be."""
    ticket = spoken.reference(stage.rng, "ticket", bounded=stage.bounded)
    slots = {"p": stage.clear(user), "system": system, "ticket": ticket}
    line = stage.say("report", **slots)
    subject = stage.say("report_subject", **slots)
    report = stage.mail(stage.day(offset), stage.colleague(), subject, [line])
    line = stage.say("solve", ticket=ticket, fault=fault, fault_cap=capital(fault))
    subject = stage.say("solve_subject", ticket=ticket)
    solved = stage.mail(stage.day(offset + 4), admin, subject, [line])
    return (report, ticket), (solved, fault)


# ---- A project with a lead, a budget, a pilot client and a deadline that slips.


def tell_project(stage: Stage) -> None:
    """The deadline slips two or three times."""
    rng = stage.rng
    lead, other_lead = stage.cast[0], stage.cast[1]
    numbers = rng.choice((("Two", "One"), ("One", "Two")))
    project, near = (f"{stage.coined[0]} {number}" for number in numbers)
    client, other_client = stage.coined[1:3]

    started = _kick_off(stage, project, lead, 0)
    _kick_off(stage, near, other_lead, 2)
    budget, amount = _budget(stage, project, 6)
    _budget(stage, near, 7)
    piloted = _pilot(stage, project, client, rng.randrange(9, 16))
    _pilot(stage, near, other_client, 8)

    # Dates come from the planners: a mail of the lead's own would give the lead away.
    planner, other_planner = stage.colleague(), stage.colleague()
    subject = stage.say("ask_subject", project=project)
    line = stage.say("ask", project=project)
    asked = stage.mail(stage.day(3), stage.owner, subject, [line], to=[planner])
    told = stage.day(5)
    deadlines = [stage.day(60)]
    said = stage.date(deadlines[0], told)
    line = stage.say("deadline", date=said)
    dates = [(stage.mail(told, planner, "", [line], to=[stage.owner], parent=asked), said)]
    for at in range(rng.randrange(2, 4)):
        told = stage.day(14 + 13 * at + rng.randrange(5))
        deadlines.append(stage.day(75 + 14 * at + rng.randrange(7)))
        said = stage.date(deadlines[-1], told)
        line = stage.say("slip", project=project, date=said)
        subject = stage.say("slip_subject", project=project)
        dates.append((stage.mail(told, planner, subject, [line]), said))
    told = stage.day(11)
    line = stage.say("slip", project=near, date=stage.date(stage.day(66), told))
    stage.mail(told, other_planner, stage.say("slip_subject", project=near), [line])

    latest = spoken.date_answer(deadlines[-1])
    stage.ask("latest-update", "q_deadline", latest, dates[-1:], project=project)
    if rng.random() < 0.5:
        at = rng.randrange(0, len(dates) - 1)
        old = spoken.date_answer(deadlines[at])
        stage.ask(
            "latest-update", "q_deadline", old, [dates[at]], until=dates[at + 1][0], project=project
        )
    if rng.random() < 0.5:
        stage.ask("lookup", "q_lead", lead.full, [started], project=project)
    else:
        stage.ask("lookup", "q_budget", spoken.amount_answer(amount), [budget], project=project)
    stage.ask("multi-mail", "q_pilot", lead.full, [piloted, started], client=client)
    stage.ask_count("q_count", dates[1:], project=project)
    for _ in range(1 + (rng.random() < 0.6)):
        stage.ask_absent(budget[0], project=project)


def _kick_off(stage: Stage, project: str, lead: Person, offset: int) -> tuple[Draft, str]:
    who = stage.clear(lead)
    line = stage.say("kickoff", p=who, project=project)
    subject = stage.say("kickoff_subject", project=project)
    return stage.mail(stage.day(offset), stage.colleague(), subject, [line]), who


def _budget(stage: Stage, project: str, offset: int) -> tuple[tuple[Draft, str], int]:
    amount = spoken.draw_amount(stage.rng, bounded=stage.bounded, low=300, high=9000)
    said = stage.amount(amount)
    line = stage.say("budget", project=project, amount=said)
    subject = stage.say("budget_subject", project=project)
    return (stage.mail(stage.day(offset), stage.colleague(), subject, [line]), said), amount


def _pilot(stage: Stage, project: str, client: str, offset: int) -> tuple[Draft, str]:
    line = stage.say("pilot", project=project, client=client)
    subject = stage.say("pilot_subject", client=client)
    return stage.mail(stage.day(offset), stage.colleague(), subject, [line]), project


# ---- Somebody moves to another office: city, target date, allowance, desk, successor.


def tell_relocation(stage: Stage) -> None:
    """One to three others of the team move too, each announced in a mail."""
    rng = stage.rng
    mover, other = stage.cast[0], stage.cast[1]
    movers = list(stage.cast[: rng.randrange(2, 5)])
    leaver = stage.cast[4]
    team = stage.coined[0]
    building, wrong_building = f"{stage.coined[1]} House", f"{stage.coined[2]} House"
    city, visited = stage.cities(2)
    boss, human_resources, payroll = stage.colleague(), stage.colleague(), stage.colleague()

    announced = []
    for index, person in enumerate(movers):
        lines = [stage.say("announce", p=person, team=team, city=city)]
        if person is mover:
            lines.append(stage.say("successor", p=mover, r=leaver))
        subject = stage.say("announce_subject", p=person, team=team, city=city)
        announced.append((stage.mail(stage.day(index * 6), boss, subject, lines), city))

    first = spoken.target_near(stage.day(50) + dt.timedelta(days=rng.randrange(20)))
    second = spoken.target_near(stage.day(85) + dt.timedelta(days=rng.randrange(20)))
    (early, said_early), late = _targets(stage, mover, human_resources, city, first, second)
    _targets(stage, other, human_resources, city, second, None)

    sums = rng.sample(range(30, 190), 2)
    amounts = [number * 100 for number in sums]
    if stage.bounded:
        amounts = [spoken.draw_amount(rng, bounded=True) for _ in range(2)]
    paid = []
    for person, amount, offset in zip((mover, other), amounts, (9, 14), strict=True):
        said = stage.amount(amount)
        line = stage.say("allowance", p=person, amount=said)
        subject = stage.say("allowance_subject", p=person)
        paid.append((stage.mail(stage.day(offset), payroll, subject, [line]), said))

    seats = []
    for person, house, offset in ((mover, building, 20), (other, wrong_building, 23)):
        line = stage.say("desk", p=person, building=house)
        subject = stage.say("desk_subject", p=person, city=city)
        seats.append((stage.mail(stage.day(offset), stage.colleague(), subject, [line]), house))

    told, back = stage.day(12), stage.day(26)
    line = stage.say("visit", p=mover, other=visited, date=stage.date(back, told))
    stage.mail(told, boss, stage.say("visit_subject", p=mover, other=visited), [line])

    stage.ask("latest-update", "q_target", second.answer(), [late], p=mover, city=city)
    if rng.random() < 0.4:
        gold = [(early, said_early)]
        stage.ask(
            "latest-update", "q_target", first.answer(), gold, until=late[0], p=mover, city=city
        )
    stage.ask(
        "lookup", "q_allowance", spoken.amount_answer(amounts[0]), [paid[0]], p=mover, city=city
    )
    if rng.random() < 0.4:
        stage.ask("lookup", "q_desk", wrong_building, [seats[1]], p=other, city=city)
    chain = [(announced[0][0], city), seats[0]]
    stage.ask("multi-mail", "q_successor", building, chain, r=leaver, city=city)
    stage.ask_count("q_count", announced, team=team, city=city)
    for _ in range(1 + (rng.random() < 0.5)):
        stage.ask_absent(late[0], p=mover, city=city)


def _targets(
    stage: Stage,
    mover: Person,
    human_resources: Person,
    city: str,
    first: spoken.Target,
    second: spoken.Target | None,
) -> tuple[tuple[Draft, str], tuple[Draft, str]]:
    """The owner asks when, gets a date, and later (with `second`) another one."""
    subject = stage.say("ask_subject", p=mover, city=city)
    line = stage.say("ask_date", p=mover, city=city)
    asked = stage.mail(stage.day(4), stage.owner, subject, [line], to=[human_resources])
    said = first.say(stage.rng, bounded=stage.bounded)
    line = stage.say("target", target=said, target_cap=capital(said))
    early = stage.mail(stage.day(6), human_resources, "", [line], to=[stage.owner], parent=asked)
    if second is None:
        return (early, said), (early, said)
    if stage.rng.random() < 0.5:
        stage.acknowledge(stage.day(7), early)
    said_late = second.say(stage.rng, bounded=stage.bounded)
    line = stage.say("slip", target=said_late, target_cap=capital(said_late))
    day = stage.day(stage.rng.randrange(18, 32))
    late = stage.mail(day, human_resources, "", [line], to=[stage.owner], parent=early)
    return (early, said), (late, said_late)


# ---- Somebody travels: trips with dates and flights, hotels, a client to be visited.


def tell_travel(stage: Stage) -> None:
    """Two to four trips; the date of the first changes, the second is to a client."""
    rng = stage.rng
    traveller, other = stage.cast[0], stage.cast[1]
    cities = stage.cities(rng.randrange(2, 5))
    desk = stage.colleague()
    client = stage.coined[0]
    kinds = ("Inn", "Hotel")
    hotels = [f"{name} {rng.choice(kinds)}" for name in stage.coined[1:4]]

    trips: list[tuple[Draft, str]] = []
    flights = []
    for index, city in enumerate(cities):
        mail, flight, _ = _book(stage, desk, traveller, city, index * 6, 36 + 3 * index)
        trips.append((mail, city))
        flights.append((mail, flight))
    _book(stage, desk, other, cities[0], 5, 40)

    stays = []
    guests = ((traveller, cities[0]), (traveller, cities[1]), (other, cities[0]))
    for (guest, city), hotel, offset in zip(guests, hotels, (3, 10, 8), strict=True):
        rate = stage.amount(rng.randrange(1, 10) * 100 if stage.bounded else rng.randrange(80, 290))
        line = stage.say("hotel", p=guest, city=city, hotel=hotel, rate=rate)
        subject = stage.say("hotel_subject", p=guest, city=city, hotel=hotel)
        stays.append((stage.mail(stage.day(offset), desk, subject, [line]), hotel))

    line = stage.say("visit", p=traveller, client=client, city=cities[1])
    subject = stage.say("visit_subject", p=traveller, client=client)
    visit = (stage.mail(stage.day(9), stage.colleague(), subject, [line]), cities[1])

    told = stage.day(rng.randrange(13, 24))
    new = stage.day(rng.randrange(50, 60))
    said = stage.date(new, told)
    line = stage.say("change", p=traveller, city=cities[0], date=said)
    subject = stage.say("change_subject", p=traveller, city=cities[0])
    changed = (stage.mail(told, desk, subject, [line]), said)

    city = cities[0]
    stage.ask("latest-update", "q_date", spoken.date_answer(new), [changed], p=traveller, city=city)
    if rng.random() < 0.5:
        stage.ask("lookup", "q_flight", flights[1][1], [flights[1]], p=traveller, city=cities[1])
    else:
        stage.ask("lookup", "q_hotel", hotels[0], [stays[0]], p=traveller, city=city)
    if rng.random() < 0.4:
        stage.ask("lookup", "q_hotel", hotels[2], [stays[2]], p=other, city=cities[0])
    stage.ask("multi-mail", "q_client", hotels[1], [visit, stays[1]], p=traveller, client=client)
    stage.ask_count("q_count", trips, p=traveller)
    for index in range(1 + (rng.random() < 0.6)):
        stage.ask_absent(trips[index][0], p=traveller, city=cities[index])


def _book(
    stage: Stage, desk: Person, traveller: Person, city: str, offset: int, leaves: int
) -> tuple[Draft, str, str]:
    """Book one trip `offset` days into the story; gives the mail, the flight and the date."""
    told = stage.day(offset)
    date = stage.date(stage.day(leaves), told)
    flight = spoken.reference(stage.rng, "flight", bounded=stage.bounded)
    line = stage.say("trip", p=traveller, city=city, date=date, flight=flight)
    subject = stage.say("trip_subject", p=traveller, city=city)
    return stage.mail(told, desk, subject, [line]), flight, date


# ---- The stories that plant facts: one module a kind, each with `tell(stage)`.

TELL: dict[str, Callable[[Stage], None]] = {
    "relocation": tell_relocation,
    "travel": tell_travel,
    "invoice": tell_invoice,
    "interview": tell_interview,
    "approval": tell,
    "project": tell_project,
    "outage": tell_outage,
}
