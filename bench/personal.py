"""Invent a person's mailbox and questions about it: leases, bookings, bills, newsletters.

    python -m bench.personal FOLDER

writes `personal.duckdb` and the questions `tune.jsonl` and `kept.jsonl`: changes are chosen on the
first and reported on the second. `must` is a regular expression of the answer.
"""

import datetime as dt
import email.utils
import re
import sys
from collections.abc import Iterator
from email.message import EmailMessage
from html import escape
from pathlib import Path
from random import Random
from typing import Any

from art_e.text import toml_table
from data_pipeline.ingest.batch import Rules
from data_pipeline.ingest.build import Source, ingest
from data_pipeline.ingest.records import RawMessage
from tests.builders import table_rows, write_lines
from tests.mailbox import calendar, pdf, word

TABLE = toml_table("bench", "personal.toml")
PEOPLE: dict[str, str] = TABLE["people"]
ME = email.utils.parseaddr(PEOPLE["me"])[1]
TODAY = "2026-06-25"
HALVES = ("tune", "kept")


def _fill(text: str, random: Random) -> str:
    """Return `text` with a random choice for each {a|b} and {1..9}, the inner ones first."""

    def draw(match: re.Match[str]) -> str:
        low, dots, high = match[1].partition("..")
        return str(random.randint(int(low), int(high))) if dots else random.choice(low.split("|"))

    while "{" in text:
        text = re.sub(r"\{([^{}]*)\}", draw, text)
    return text


def _series(fields: dict[str, Any], random: Random) -> Iterator[dict[str, Any]]:
    first = dt.date.fromisoformat(fields["first"])
    for number in range(fields["count"]):
        texts = {name: _fill(fields[name], random) for name in ("subject", "text")}
        rows = [[_fill(cell, random) for cell in row] for row in fields.get("rows", ())]
        day = first + dt.timedelta(number * fields["every"])
        yield fields | texts | {"rows": rows, "day": f"{day}"}


def _quotation(fields: dict[str, Any]) -> str:
    """Return the mail as quoted in a reply: below Gmail's line, or below Outlook's headers."""
    sender, day = PEOPLE[fields["by"]], dt.date.fromisoformat(fields["day"])
    text = _text(fields)
    if fields["by"] in ("me", "fiona", "priya", "jens"):
        lines = "".join(f"\n> {line}" for line in text.splitlines())
        return f"\n\nOn {day:%a, %d %b %Y} at 10:12, {sender} wrote:\n{lines}"
    head = f"Von: {sender}\nGesendet: {day:%d.%m.%Y} 10:12\nAn: Nora Lindqvist"
    return f"\n\n{head}\nBetreff: {fields['subject']}\n\n{text}"


def _text(fields: dict[str, Any]) -> str:
    text: str = fields["text"]
    if fields.get("rows"):
        text += "\n\n" + "\n".join("  ".join(row) for row in fields["rows"])
    if fields.get("signed"):
        text += f"\n\n{TABLE['signatures'][fields['by']]}"
    return text


def _page(fields: dict[str, Any]) -> str:
    """Return the mail as HTML, its table inside a layout table."""
    rows = (
        "<tr>" + "".join(f'<td style="padding:4px">{escape(cell)}</td>' for cell in row) + "</tr>"
        for row in fields["rows"]
    )
    text, sign = (
        escape(part).replace("\n", "<br>")
        for part in (fields["text"], _text(fields | {"rows": [], "text": ""}))
    )
    table = f"<table border=0>{''.join(rows)}</table>"
    parts = f"<tr><td>{text}</td></tr><tr><td>{table}</td></tr>"
    return f"<html><body><table>{parts}</table><p>{sign}</p></body></html>"


def _attachment(name: str, text: str) -> bytes:
    lines = text.replace("\n", ") Tj 0 -14 Td (")
    return word(text) if name.endswith("docx") else pdf(lines)


def _mail(number: int, fields: dict[str, Any], by_id: dict[str, dict[str, Any]]) -> EmailMessage:
    mail = EmailMessage()
    sender = PEOPLE.get(fields["by"], fields["by"])
    mail["From"], mail["To"] = sender, PEOPLE[fields.get("to", "me")]
    mail["Subject"], mail["Message-ID"] = fields["subject"], f"<{number}@personal.example>"
    noon = dt.datetime.fromisoformat(f"{fields['day']}T10:12:00+01:00")
    mail["Date"] = email.utils.format_datetime(noon + dt.timedelta(minutes=number))
    if fields.get("list"):
        domain = email.utils.parseaddr(sender)[1].partition("@")[2]
        mail["List-Id"], mail["Precedence"] = f"<news.{domain}>", "bulk"
        mail["List-Unsubscribe"] = f"<https://{domain}/off>"
    if fields.get("rows"):
        mail.set_content(_page(fields), subtype="html")
    else:
        quoted = _quotation(by_id[fields["quotes"]]) if "quotes" in fields else ""
        mail.set_content(_text(fields) + quoted)
    if event := fields.get("invite"):
        head, _, tail = calendar("").partition(b"SUMMARY:")
        end = tail[tail.index(b"END:VEVENT") :]
        data = head + event.replace("\n", "\r\n").encode() + b"\r\n" + end
        mail.add_attachment(data, "text", "calendar", filename="invite.ics")
    for name, text in fields.get("files", {}).items():
        data = _attachment(name, text)
        mail.add_attachment(data, "application", "octet-stream", filename=name)
    return mail


def mails() -> Iterator[RawMessage]:
    """Yield the single mails, then those of the series."""
    every = list[dict[str, Any]](TABLE["mail"])
    by_id = {fields["id"]: fields for fields in every if "id" in fields}
    for seed, fields in enumerate(TABLE["series"]):
        every += _series(fields, Random(seed))
    for number, fields in enumerate(every, 1):
        yield RawMessage(f"{number}.eml", _mail(number, fields, by_id).as_bytes())


def questions(half: int) -> list[dict[str, Any]]:
    """Return the odd or the even questions, as rows of a golden set."""
    fixed = {"inbox_address": ME, "query_date": TODAY, "answerable": True}
    rows = table_rows(__file__, "personal.tsv")[half::2]
    return [
        {"id": f"{HALVES[half]}-{number}", "question": question, "answer": answer, "must": must}
        | fixed
        for number, (question, answer, must) in enumerate(rows, 1)
    ]


def write(folder: Path) -> None:
    """Write the inbox file and the questions."""
    ingest([Source(mails(), Rules())], folder / "personal.duckdb", choose_owner=lambda _: ME)
    for half, name in enumerate(HALVES):
        write_lines(folder / f"{name}.jsonl", *questions(half))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
