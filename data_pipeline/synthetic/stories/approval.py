"""A manager approves requests: who asked, for what, at which site, up to what sum.

Distractors: a refused request, another approver, the same items for another
site.
"""

from data_pipeline.synthetic import spoken
from data_pipeline.synthetic.letters import Draft, capital
from data_pipeline.synthetic.people import Person
from data_pipeline.synthetic.stage import Stage


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
