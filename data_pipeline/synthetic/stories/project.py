"""A project with a lead, a budget, a pilot client and a deadline that slips.

Distractor: an earlier project of almost the same name, with all of these.
"""

from data_pipeline.synthetic import spoken
from data_pipeline.synthetic.letters import Draft
from data_pipeline.synthetic.people import Person
from data_pipeline.synthetic.stage import Stage


def tell(stage: Stage) -> None:
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
