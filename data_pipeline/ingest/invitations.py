"""Invitations (text/calendar, RFC 5545) as lines of text: what, when, where, and who invites."""

import datetime as dt
import re
from collections.abc import Iterator

_FOLD = re.compile(r"\r?\n[ \t]")
# Name, parameters and value of a property.
_PROPERTY = re.compile(r'([\w-]+)((?:;(?:"[^"\n]*+"|[^":\n])*+)?):(.*)')
_PARAMETER = re.compile(r';(?:CN|TZID)=(?:"([^"]*)"|([^;]*))', re.IGNORECASE)
_ESCAPE, _MAILTO = re.compile(r"\\(.)"), re.compile("^mailto:", re.IGNORECASE)
_LABELS = {"SUMMARY": "What", "DTSTART": "When", "RRULE": "Repeats", "LOCATION": "Where"}
_NONE = ("", "")


def invitation_text(calendar: str) -> str:
    """Return lines such as `When: Monday 17 April 2023, 14:30 to 15:30 (Europe/Berlin)` for each
    event of a calendar; one without events stays as it is."""
    lines: list[str] = []
    inside, event = list[str](), dict[str, tuple[str, str]]()
    for match in filter(None, map(_PROPERTY.match, _FOLD.sub("", calendar).splitlines())):
        name, value = match[1].upper(), match[3].strip()
        if name == "BEGIN":
            inside.append(value.upper())
        elif name == "END" and (inside or [""]).pop() == "VEVENT":
            lines += _event_lines(event)
            event = {}
        elif (name, value.upper()) in (("METHOD", "CANCEL"), ("STATUS", "CANCELLED")):
            lines.append("Cancelled:")
        elif inside[-1:] == ["VEVENT"]:
            named = _PARAMETER.search(match[2])
            value = _ESCAPE.sub(lambda char: "\n" if char[1] in "nN" else char[1], value)
            event[name] = (value, (named[1] or named[2]) if named else "")
    return "\n".join(lines) or calendar


def _event_lines(event: dict[str, tuple[str, str]]) -> Iterator[str]:
    if "DTSTART" in event:
        event["DTSTART"] = (_span(*event["DTSTART"], event.get("DTEND", _NONE)[0]), "")
    for name, label in _LABELS.items():
        if value := " ".join(event.get(name, _NONE)[0].split()):
            yield f"{label}: {value}"
    address, person = event.get("ORGANIZER", _NONE)
    if address := _MAILTO.sub("", address):
        yield f"Organizer: {person} <{address}>" if person else f"Organizer: {address}"
    yield from event.get("DESCRIPTION", _NONE)[0].splitlines()


def _span(start: str, zone: str, end: str) -> str:
    try:
        first, last = (dt.datetime.fromisoformat(each[:15]) for each in (start, end or start))
    except ValueError:
        return f"{start} to {end}" if end else start
    day, last_day = (f"{each:%A} {each.day} {each:%B %Y}" for each in (first, last))
    if "T" not in start:  # whole days; the end is the day behind
        last -= dt.timedelta(days=last > first)
        return day + (f" to {last:%A} {last.day} {last:%B %Y}" if last > first else "")
    zone = "UTC" if start.endswith("Z") else zone
    until = f" to {last:%H:%M}" if last_day == day else f" to {last_day}, {last:%H:%M}"
    return f"{day}, {first:%H:%M}" + (until if end else "") + (f" ({zone})" if zone else "")
