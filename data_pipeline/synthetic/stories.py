"""The stories that plant facts, one function per kind: each writes mails and asks questions.

The order in which a story draws random numbers is part of every world: another order gives other
mail for the same seed. Numbers such as `5 * at` are days of the story."""

import datetime as dt

from data_pipeline.synthetic.mail import capital
from data_pipeline.synthetic.stage import Fact, Stage, facts_of
from data_pipeline.synthetic.wording import FactValue, Person, date_answer, pick


def tell_approval(stage: Stage) -> None:
    """Tell of a manager who approves two or three requests; the first one's limit changes."""
    rng = stage.rng
    approver, other_approver = stage.cast[:2]
    granted = stage.cast[2 : 4 + rng.randrange(2)]
    left = stage.cast[2 + len(granted) :]
    items = stage.things("items", 2)
    requests = list(zip((*granted[:2], left[-1]), [*items, items[1]], stage.coined, strict=False))
    wishes = [
        stage.tell("wish", 2 * at, r=stage.name(person), site=site, item=item)
        for at, (person, item, site) in enumerate(requests)
    ]

    def grant(manager: Person, person: Person, offset: int) -> dict[str, Fact]:
        amount = stage.dollars(stage.draw_amount())
        return stage.tell("grant", offset, p=stage.name(manager), r=person, amount=amount)

    grants = [grant(approver, person, 8 + 5 * at) for at, person in enumerate(granted)]
    grant(other_approver, left[-1], 10)
    if len(left) > 1:
        stage.tell("refuse", 15, p=approver, r=left[0])
    offset, old = rng.randrange(14, 26), grants[0]["amount"]
    new = _other_amount(stage, old)
    revised = stage.tell("revise", offset, p=approver, r=granted[0], amount=new)

    _, item, site = requests[1]
    stage.ask_update("q_limit", revised["amount"], old, 0.35, r=granted[0])
    if rng.random() < 0.5:
        stage.ask("lookup", "q_who", grants[1]["p"], r=granted[1])
    else:
        stage.ask("lookup", "q_site", wishes[1]["site"], r=granted[1], item=item)
    stage.ask("multi-mail", "q_item", wishes[1]["site"], grants[1]["amount"], item=item, site=site)
    stage.ask_count("q_count", [each["p"] for each in grants], p=approver)


def tell_interview(stage: Stage) -> None:
    """Tell of two to four candidates for an opening; the first one's interview is moved."""
    rng = stage.rng
    candidates = stage.cast[: rng.randrange(2, 5)]
    team, firms = stage.coined[0], stage.coined[1:3]
    title = stage.things("titles", 1)[0]
    recruiter = stage.colleague()
    panels = [[stage.colleague(), stage.colleague()] for _ in candidates]
    rooms = rng.sample(range(11, 99), len(candidates))

    resumes = []
    for at, (person, firm) in enumerate(zip(candidates, firms, strict=False)):
        line = stage.say("resume", p=stage.name(person), firm=firm)
        subject = stage.say("resume_subject", p=person)
        paper = "profile.pdf" if rng.random() < 0.5 else ""
        mail = stage.mail(at, recruiter, subject, [line], attachment=paper)
        resumes.append(Fact(mail, FactValue(firm, firm)))

    slots = []
    for at, person in enumerate(candidates):
        date = stage.date(stage.day(24 + 2 * at + at // 2), 4 + 4 * at)
        first, second = map(stage.name, panels[at])
        room, to = FactValue(f"Room {rooms[at]}", str(rooms[at])), panels[at][:1]
        slots.append(
            stage.tell(
                "slot", 4 + 4 * at, recruiter, to=to,
                p=person, date=date, title=title, team=team, room=room, q=first, r=second,
            )
        )  # fmt: skip

    offset = rng.randrange(11, 19)
    date = stage.date(stage.day(rng.randrange(33, 44)), offset)
    line = stage.say("move", p=candidates[0], date=date)
    subject = stage.say("move_subject", p=candidates[0])
    parent = slots[0]["date"].mail if rng.random() < 0.4 else None
    moved = stage.mail(offset, recruiter, subject, [line], to=[stage.owner], parent=parent)

    stage.ask_update("q_date", Fact(moved, date), slots[0]["date"], 0.35, p=candidates[0])
    if rng.random() < 0.5:
        stage.ask("lookup", "q_room", slots[1]["room"], p=candidates[1])
    else:
        facts = slots[1]["q"], slots[1]["r"]
        answer = " and ".join(fact.value.answer for fact in facts)
        stage.ask("lookup", "q_panel", *facts, answer=answer, p=candidates[1])
    stage.ask("multi-mail", "q_firm", resumes[1], slots[1]["date"], firm=firms[1])
    stage.ask_count("q_count", [each["title"] for each in slots], title=title, team=team)


def tell_invoice(stage: Stage) -> None:
    """Tell of two to five invoices from a vendor; the first one's amount is corrected later."""
    rng = stage.rng
    purposes = stage.things("purposes", rng.randrange(2, 6))
    vendor, near = stage.coined[:2]
    if not stage.bounded:
        trades = rng.sample(("Supply", "Services", "Partners", "Works", "Group"), 2)
        vendor, near = f"{vendor} {trades[0]}", f"{vendor} {trades[1]}"

    def bill(vendor: str, purpose: str, offset: int) -> dict[str, Fact]:
        amount, number = stage.draw_amount(), stage.reference("invoice")
        due = stage.day(offset) + dt.timedelta(days=rng.randrange(14, 45))
        slots = {"vendor": vendor, "purpose": purpose, "number": number}
        values = {"amount": stage.dollars(amount), "date": stage.date(due, offset)}
        line = stage.say("bill", **slots, **values)
        subject = stage.say("bill_subject", **slots)
        paper = f"{number.lstrip('#')}.pdf" if rng.random() < 0.35 else ""
        mail = stage.mail(offset, stage.colleague(), subject, [line], attachment=paper)
        return facts_of(mail, {**slots, **values})

    bills = [bill(vendor, purpose, 5 * at) for at, purpose in enumerate(purposes)]
    bill(near, purposes[0], 4)

    offset, old = rng.randrange(9, 20), bills[0]["amount"]
    new, number = _other_amount(stage, old), bills[0]["number"].value
    purpose, other = purposes[:2]
    fixed = stage.tell(
        "fix", offset, subject_first=True, vendor=vendor, number=number, purpose=purpose, amount=new
    )
    released = [
        stage.tell("paid", offset, q=stage.name(person), number=facts["number"].value)
        for facts, person, offset in zip(bills, stage.cast, (24, 16), strict=False)
    ]

    stage.ask_update("q_amount", fixed["amount"], old, 0.35, vendor=vendor, purpose=purpose)
    for detail in rng.sample(("amount", "due", "number"), 1 + (rng.random() < 0.3)):
        fact = bills[1]["date" if detail == "due" else detail]
        stage.ask("lookup", f"q_{detail}", fact, vendor=vendor, purpose=other)
    chain = bills[1]["number"], released[1]["q"]
    stage.ask("multi-mail", "q_paid", *chain, vendor=vendor, purpose=other)
    stage.ask_count("q_count", [each["number"] for each in bills], vendor=vendor)


def tell_outage(stage: Stage) -> None:
    """Tell of a system with two to four outages, a delayed migration and two users' tickets."""
    rng = stage.rng
    user, other_user = stage.cast[:2]
    system = stage.coined[0]
    admin = stage.colleague()
    crowd: list[Person] = []
    if rng.random() < 0.4 and not stage.bounded:
        crowd = [stage.colleague() for _ in range(rng.randrange(12, 60))]

    count = rng.randrange(2, 5)
    causes = stage.things("causes", count)
    failed = [stage.day(4 + 11 * at) for at in range(count)]
    outages = []
    for at, (day, cause) in enumerate(zip(failed, causes, strict=True)):
        to, date = [stage.owner, *crowd] if crowd else [], stage.date(day, 5 + 11 * at)
        value = FactValue(capital(cause), cause)
        down = stage.tell("down", 5 + 11 * at, admin, to=to, system=system, date=date, cause=value)
        outages.append(down)

    first, second = stage.day(rng.randrange(40, 50)), stage.day(rng.randrange(58, 80))
    dates = []
    for bank, day, offset in (("migrate", first, 2), ("delay", second, rng.randrange(12, 30))):
        date = stage.date(day, offset)
        dates.append(stage.tell(bank, offset, admin, cc=crowd[:8], system=system, date=date))

    def ticket(person: Person, fault: str, offset: int) -> tuple[Fact, Fact]:
        number, value = stage.reference("ticket"), FactValue(capital(fault), fault)
        report = stage.tell("report", offset, p=stage.name(person), system=system, ticket=number)
        solved = stage.tell("solve", offset + 4, admin, ticket=number, fault=value)
        return report["ticket"], solved["fault"]

    faults = stage.things("faults", 2)
    report, solved = ticket(user, faults[0], 7)
    ticket(other_user, faults[1], 9)

    stage.ask_update("q_migration", dates[1]["date"], dates[0]["date"], 0.4, system=system)
    at = rng.randrange(count)
    day_of_year = date_answer(failed[at]).rsplit(",", 1)[0]
    stage.ask("lookup", "q_cause", outages[at]["cause"], system=system, date=day_of_year)
    if rng.random() < 0.4:
        stage.ask("lookup", "q_ticket", report, p=user, system=system)
    stage.ask("multi-mail", "q_fault", report, solved, p=user, system=system)
    stage.ask_count("q_count", [each["cause"] for each in outages], system=system)


def tell_project(stage: Stage) -> None:
    """Tell of a project with lead, budget and client; its deadline slips two or three times."""
    rng = stage.rng
    lead, other_lead = stage.cast[:2]
    numbers = rng.choice((("Two", "One"), ("One", "Two")))
    project, near = (f"{stage.coined[0]} {number}" for number in numbers)
    client, other_client = stage.coined[1:3]

    started = stage.tell("kickoff", 0, p=stage.name(lead), project=project)
    stage.tell("kickoff", 2, p=stage.name(other_lead), project=near)
    amount = stage.dollars(stage.draw_amount(300, 9000))
    budget = stage.tell("budget", 6, project=project, amount=amount)
    amount = stage.dollars(stage.draw_amount(300, 9000))
    stage.tell("budget", 7, project=near, amount=amount)
    piloted = stage.tell("pilot", rng.randrange(9, 16), project=project, client=client)
    stage.tell("pilot", 8, project=near, client=other_client)

    # Dates come from planners: a mail from the lead would give the lead away.
    planner, other_planner = stage.colleague(), stage.colleague()
    ask = stage.tell("ask", 3, stage.owner, to=[planner], subject_first=True, project=project)
    to, date = [stage.owner], stage.date(stage.day(60), 5)
    dates = [stage.tell("deadline", 5, planner, to=to, parent=ask["project"].mail, date=date)]
    for at in range(rng.randrange(2, 4)):
        offset = 14 + 13 * at + rng.randrange(5)
        date = stage.date(stage.day(75 + 14 * at + rng.randrange(7)), offset)
        dates.append(stage.tell("slip", offset, planner, project=project, date=date))
    stage.tell("slip", 11, other_planner, project=near, date=stage.date(stage.day(66), 11))

    deadlines = [each["date"] for each in dates]
    first = deadlines[0]
    stage.ask("latest-update", "q_deadline", deadlines[-1], first=first, project=project)
    if rng.random() < 0.5:
        at = rng.randrange(0, len(dates) - 1)
        until = deadlines[at + 1].mail
        stage.ask(
            "latest-update", "q_deadline", deadlines[at], first=first, until=until, project=project
        )
    if rng.random() < 0.5:
        stage.ask("lookup", "q_lead", started["p"], project=project)
    else:
        stage.ask("lookup", "q_budget", budget["amount"], project=project)
    stage.ask("multi-mail", "q_pilot", piloted["project"], started["p"], client=client)
    stage.ask_count("q_count", deadlines[1:], project=project)


def tell_relocation(stage: Stage) -> None:
    """Tell of somebody who moves to another office with one to three of the team."""
    rng = stage.rng
    mover, other = stage.cast[:2]
    movers = stage.cast[: rng.randrange(2, 5)]
    leaver, team = stage.cast[4], stage.coined[0]
    houses = [f"{name} House" for name in stage.coined[1:3]]
    city, visited = rng.sample(stage.company.cities, 2)
    boss, human_resources, payroll = stage.colleague(), stage.colleague(), stage.colleague()

    announced = []
    for at, person in enumerate(movers):
        lines = [stage.say("announce", p=person, team=team, city=city)]
        if person is mover:
            lines.append(stage.say("successor", p=mover, r=leaver))
        subject = stage.say("announce_subject", p=person, team=team, city=city)
        announced.append(Fact(stage.mail(at * 6, boss, subject, lines), FactValue(city, city)))

    def moves(person: Person, target: dt.date) -> Fact:
        to = [human_resources]
        ask = stage.tell("ask", 4, stage.owner, to=to, subject_first=True, p=person, city=city)
        value = stage.target(target)
        reply = stage.tell(
            "target", 6, to[0], to=[stage.owner], parent=ask["city"].mail, target=value
        )
        return reply["target"]

    first = stage.day(50) + dt.timedelta(days=rng.randrange(20))
    second = stage.day(85) + dt.timedelta(days=rng.randrange(20))
    early = moves(mover, first)
    if rng.random() < 0.5:
        words = [pick(rng, stage.company.wording.common["thanks"])]
        parent = early.mail
        stage.mail(7, stage.owner, "", words, to=[parent.sender], parent=parent, quoting=False)
    value = stage.target(second)
    line, offset = stage.say("slip", target=value), rng.randrange(18, 32)
    reply = stage.mail(offset, human_resources, "", [line], to=[stage.owner], parent=early.mail)
    late = Fact(reply, value)
    moves(other, second)

    amounts = [number * 100 for number in rng.sample(range(30, 190), 2)]
    if stage.bounded:
        amounts = [stage.draw_amount() for _ in range(2)]
    paid, seats = [], []
    for person, amount, offset in zip((mover, other), amounts, (9, 14), strict=True):
        dollars = stage.dollars(amount)
        paid.append(stage.tell("allowance", offset, payroll, p=person, amount=dollars))
    for person, house, offset in zip((mover, other), houses, (20, 23), strict=True):
        seats.append(stage.tell("desk", offset, p=person, building=house, city=city))
    stage.tell("visit", 12, boss, p=mover, other=visited, date=stage.date(stage.day(26), 12))

    stage.ask_update("q_target", late, early, 0.4, p=mover, city=city)
    stage.ask("lookup", "q_allowance", paid[0]["amount"], p=mover, city=city)
    if rng.random() < 0.4:
        stage.ask("lookup", "q_desk", seats[1]["building"], p=other, city=city)
    stage.ask("multi-mail", "q_successor", announced[0], seats[0]["building"], r=leaver, city=city)
    stage.ask_count("q_count", announced, team=team, city=city)


def tell_travel(stage: Stage) -> None:
    """Tell of somebody's two to four trips; the first changes, the second is to a client."""
    rng = stage.rng
    traveller, other = stage.cast[:2]
    cities = rng.sample(stage.company.cities, rng.randrange(2, 5))
    desk, client = stage.colleague(), stage.coined[0]
    hotels = [f"{name} {rng.choice(('Inn', 'Hotel'))}" for name in stage.coined[1:4]]

    def book(person: Person, city: str, offset: int, leaves: int) -> dict[str, Fact]:
        date, flight = stage.date(stage.day(leaves), offset), stage.reference("flight")
        return stage.tell("trip", offset, desk, p=person, city=city, date=date, flight=flight)

    trips = [book(traveller, city, at * 6, 36 + 3 * at) for at, city in enumerate(cities)]
    book(other, cities[0], 5, 40)
    stays = []
    guests = ((traveller, cities[0], 3), (traveller, cities[1], 10), (other, cities[0], 8))
    for (guest, city, offset), hotel in zip(guests, hotels, strict=True):
        rate = rng.randrange(1, 10) * 100 if stage.bounded else rng.randrange(80, 290)
        value = stage.dollars(rate)
        stay = stage.tell("hotel", offset, desk, p=guest, city=city, hotel=hotel, rate=value)
        stays.append(stay["hotel"])
    visit = stage.tell("visit", 9, p=traveller, client=client, city=cities[1])
    offset = rng.randrange(13, 24)
    date = stage.date(stage.day(rng.randrange(50, 60)), offset)
    change = stage.tell("change", offset, desk, p=traveller, city=cities[0], date=date)

    first, second = cities[:2]
    stage.ask("latest-update", "q_date", change["date"], p=traveller, city=first)
    if rng.random() < 0.5:
        stage.ask("lookup", "q_flight", trips[1]["flight"], p=traveller, city=second)
    else:
        stage.ask("lookup", "q_hotel", stays[0], p=traveller, city=first)
    if rng.random() < 0.4:
        stage.ask("lookup", "q_hotel", stays[2], p=other, city=first)
    stage.ask("multi-mail", "q_client", visit["city"], stays[1], p=traveller, client=client)
    stage.ask_count("q_count", [each["city"] for each in trips], p=traveller)


def _other_amount(stage: Stage, old: Fact) -> FactValue:
    amount = stage.draw_amount()
    while f"${amount:,}" == old.value.answer:
        amount = stage.draw_amount()
    return stage.dollars(amount)


_STORIES = (
    tell_relocation, tell_travel, tell_invoice, tell_interview, tell_approval, tell_project,
    tell_outage,
)  # fmt: skip
TELL = {story.__name__.removeprefix("tell_"): story for story in _STORIES}
