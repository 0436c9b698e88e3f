"""Invitations (text/calendar, RFC 5545) as lines of text: what, when, where, and who invites."""

import datetime as dt
import re
from collections.abc import Iterator
from contextlib import suppress

_FOLD = re.compile(r"\r?\n[ \t]")
# Name, parameters and value of a property.
_PROPERTY = re.compile(r'([\w-]+)((?:;(?:"[^"\n]*+"|[^":\n])*+)?):(.*)')
_PARAMETER = re.compile(r';(CN|TZID)=(?:"([^"]*)"|([^;]*))', re.IGNORECASE)
_ESCAPE, _MAILTO = re.compile(r"\\(.)"), re.compile("^mailto:", re.IGNORECASE)
_LABELS = {
    "SUMMARY": "What", "DTSTART": "When", "RRULE": "Repeats", "LOCATION": "Where",
    "ORGANIZER": "Organizer",
}  # fmt: skip


def invitation_text(calendar: str) -> str:
    """Return lines such as `When: Monday 17 April 2023, 14:30 to 15:30 (Europe/Berlin)` for each
    event of a calendar; one without events stays as it is."""
    lines: list[str] = []
    inside, event = list[str](), dict[str, tuple[str, str]]()
    for match in filter(None, map(_PROPERTY.match, _FOLD.sub("", calendar).splitlines())):
        name, parameters, value = match[1].upper(), match[2], match[3].strip()
        if name == "BEGIN":
            inside.append(value.upper())
        elif name == "END" and (inside or [""]).pop() == "VEVENT":
            lines += _event_lines(event)
            event = {}
        elif (name, value.upper()) in (("METHOD", "CANCEL"), ("STATUS", "CANCELLED")):
            lines.append("Cancelled:")
        elif inside[-1:] == ["VEVENT"]:
            named = {
                each[1].upper(): each[2] or each[3] for each in _PARAMETER.finditer(parameters)
            }
            event[name] = (_ESCAPE.sub(_unescaped, value), named.get("CN") or named.get("TZID", ""))
    return "\n".join(lines) or calendar


def _unescaped(escape: "re.Match[str]") -> str:
    return "\n" if escape[1] in "nN" else escape[1]


def _event_lines(event: dict[str, tuple[str, str]]) -> Iterator[str]:
    if "DTSTART" in event:
        event["DTSTART"] = (_span(*event["DTSTART"], event.get("DTEND", ("", ""))[0]), "")
    for name, label in _LABELS.items():
        value, person = event.get(name, ("", ""))
        if value:
            value = " ".join(_MAILTO.sub("", value).split())
            yield f"{label}: {person} <{value}>" if person else f"{label}: {value}"
    yield from event.get("DESCRIPTION", ("", ""))[0].splitlines()


def _span(start: str, zone: str, end: str) -> str:
    try:
        first = last = dt.datetime.fromisoformat(start.removesuffix("Z"))
    except ValueError:
        return start
    with suppress(ValueError):
        last = dt.datetime.fromisoformat(end.removesuffix("Z"))
    if "T" not in start:  # whole days, of which the end is the day behind
        last = max(first, last - dt.timedelta(days=1))
        return _day(first) + (f" to {_day(last)}" if last > first else "")
    zone = " (UTC)" if start.endswith("Z") else f" ({zone})" if zone else ""
    day = "" if last.date() == first.date() else f"{_day(last)}, "
    return f"{_day(first)}, {first:%H:%M}" + (f" to {day}{last:%H:%M}" if end else "") + zone


def _day(day: dt.date) -> str:
    return f"{day:%A} {day.day} {day:%B %Y}"
