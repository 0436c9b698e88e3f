"""A system of the company: outages with their causes, a migration, two people's tickets.

Distractors: the other outages, and another person's ticket about the same
system.
"""

from data_pipeline.synthetic import spoken
from data_pipeline.synthetic.letters import Draft, capital
from data_pipeline.synthetic.people import Person
from data_pipeline.synthetic.stage import Stage


def tell(stage: Stage) -> None:
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
