"""A trajectory made readable at a glance: each tool call and what came back.

What a model or a mail wrote is untrusted, and may be no JSON at all.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from art_e.cli.output import clean, one_line, plural, text
from art_e.inbox.mail import Email, format_date
from art_e.trajectory import AnsweredCall, Exchange

if TYPE_CHECKING:
    from rich.text import Text

BODY_LINES, BODY_WIDTH = 8, 110
SENDER_WIDTH, SUBJECT_WIDTH = 34, 60
ARGUMENT_CHARS = 200
FILTERS = {"from_addr": "from", "to_addr": "to", "sent_after": "after", "sent_before": "before"}
_INDENT = " " * 9


def shown_turn(number: int, exchange: Exchange) -> "Text":
    """One turn, without a line end: its calls, each with its result below it."""
    lines: list[Text] = []
    content = one_line(exchange.says)
    if content or not exchange.calls:
        says = content[: 2 * ARGUMENT_CHARS] or "(nothing)"
        lines.append(text(("says     ", "bold"), says))
    for call in exchange.calls:
        lines += [_call(call), *_results(call.results)]
    lines += _results(exchange.replies)
    lines[0] = text((f"{number:>2}  ", "dim"), lines[0])
    lines[1:] = [text("    ", line) for line in lines[1:]]
    return text("\n").join(lines)


def shown_source(email: Email) -> "Text":
    """A source on one line: its day, sender, subject and id."""
    return text(
        f"  {format_date(email.date)[:10]}  ",
        (one_line(str(email.sender)), "cyan"),
        f"  {one_line(email.subject) or '(no subject)'}  ",
        (one_line(email.message_id), "dim"),
    )


def _call(call: AnsweredCall) -> "Text":
    name, given = call.tool, call.arguments
    if name == "search_emails" and isinstance(given, dict):
        keywords = given.get("keywords")
        words = keywords if isinstance(keywords, list) else [keywords]
        searched = _short(" ".join(str(word) for word in words if word is not None))
        filters = (f"  {word} {_short(given[of])}" for of, word in FILTERS.items() if given.get(of))
        return text(("search   ", "bold cyan"), f'"{searched}"', ("".join(filters), "dim"))
    if name == "read_email" and isinstance(given, dict):
        return text(("read     ", "bold cyan"), _short(given.get("message_id")))
    if name == "return_final_answer" and isinstance(given, dict):
        answer, sources = given.get("answer"), given.get("sources")
        shown = "(no answer)" if answer is None else one_line(str(answer))
        cited = ", ".join(_short(each) for each in sources) if isinstance(sources, list) else ""
        return text(("answer   ", "bold green"), shown, (f"  from {cited}" if cited else "", "dim"))
    written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return text((f"{_short(name)}  ", "bold red"), _short(written))


def _results(results: list[dict[str, Any]]) -> "Iterator[Text]":
    for result in results:
        if isinstance(result.get("hits"), list):
            yield from _hits(result["hits"])
        if "body" in result:
            yield from _mail(result)
        for name, style in (("error", "red"), ("note", "dim"), ("text", "dim")):
            if name in result:
                yield text(_INDENT, (_short(result[name]), style))


def _hits(hits: list[Any]) -> "Iterator[Text]":
    rows = [hit for hit in hits if isinstance(hit, dict)]
    width = max((len(_short(hit.get("message_id"))) for hit in rows), default=0)
    for hit in rows:
        sender = text((_short(hit.get("from")) or "(no sender)", "cyan"))
        sender.truncate(SENDER_WIDTH, overflow="ellipsis", pad=True)
        subject = text(_short(hit.get("subject")) or "(no subject)")
        subject.truncate(SUBJECT_WIDTH, overflow="ellipsis")
        handle = f"{_short(hit.get('message_id')):<{width}}"
        date = f"  {_short(hit.get('date'))[:10]:<10}  "
        yield text(_INDENT, (handle, "bold"), date, sender, "  ", subject)


def _mail(mail: dict[str, Any]) -> "Iterator[Text]":
    date, sender = _short(mail.get("date"))[:10], _short(mail.get("from"))
    yield text(
        f"{_INDENT}{date}  ",
        (f"{sender or '(no sender)'}  ", "cyan"),
        _short(mail.get("subject")) or "(no subject)",
    )
    lines = [line.rstrip() for line in clean(str(mail.get("body", ""))).split("\n") if line.strip()]
    for line in lines[:BODY_LINES]:
        shown = text((line.expandtabs(4), "dim"))
        shown.truncate(BODY_WIDTH, overflow="ellipsis")
        yield text(_INDENT, ("| ", "dim"), shown)
    if len(lines) > BODY_LINES:
        more = plural(len(lines) - BODY_LINES, "more line")
        yield text(_INDENT, (f"| ({more})", "dim"))


def _short(value: object) -> str:
    shown = "" if value is None else one_line(str(value))
    return shown if len(shown) <= ARGUMENT_CHARS else f"{shown[:ARGUMENT_CHARS]}..."
