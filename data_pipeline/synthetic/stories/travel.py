"""Somebody travels: trips with dates and flights, hotels, a client to be visited.

Distractors: other trips of the same person, another traveller to the same city.
"""

from data_pipeline.synthetic import spoken
from data_pipeline.synthetic.letters import Draft
from data_pipeline.synthetic.people import Person
from data_pipeline.synthetic.stage import Stage


def tell(stage: Stage) -> None:
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
