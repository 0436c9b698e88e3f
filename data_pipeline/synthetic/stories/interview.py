"""Candidates come for an opening: days, rooms, interviewers, where they work now.

Distractors: the other candidates for the same opening.
"""

from data_pipeline.synthetic import spoken
from data_pipeline.synthetic.letters import Draft
from data_pipeline.synthetic.stage import Stage


def tell(stage: Stage) -> None:
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
