"""Somebody moves to another office: city, target date, allowance, desk, successor.

Distractors: others who move to the same city, and a visit of the same person
to another one.
"""

import datetime as dt

from data_pipeline.synthetic import spoken
from data_pipeline.synthetic.letters import Draft, capital
from data_pipeline.synthetic.people import Person
from data_pipeline.synthetic.stage import Stage


def tell(stage: Stage) -> None:
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
