"""The three tools as a model sees them: schemas, argument checks, observations.

An observation is one compact JSON object: quoting keeps a mail's text apart from its frame."""

import datetime as dt
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, Hit, Mailbox, format_date
from art_e.inbox.tokenizer import MAX_WORD_CHARS, search_words
from art_e.message import ToolCall, compact_json
from art_e.text import encodable

MAX_RESULTS = 10
# Calls of one message that are run; further ones are refused.
MAX_CALLS = 4
# A longer body is cut when it is shown: about 2,000 tokens.
MAX_BODY_CHARS = 8_000
MAX_RECIPIENTS = 30
# Longer subjects and names are cut when they are shown.
MAX_LINE_CHARS = 300
# Further words of a search are ignored, because each takes time and memory.
MAX_WORDS = 50
MAX_FILTER_CHARS = 320


def _day(value: object) -> object:
    if value is None or (isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value)):
        return value
    raise ValueError("a date is written YYYY-MM-DD")


def _filter(text: str | None) -> str | None:
    if text is not None and len(text) > MAX_FILTER_CHARS:
        raise ValueError(f"an address or name has at most {MAX_FILTER_CHARS} characters")
    return text


Day = Annotated[dt.date | None, BeforeValidator(_day)]
Text = Annotated[str, AfterValidator(encodable)]
Filter = Annotated[Text | None, AfterValidator(_filter)]


class _Arguments(BaseModel, extra="forbid"): ...


class SearchEmails(_Arguments):
    """Search the inbox by keywords, best match first. Fewer matching words are accepted."""

    keywords: list[Text] = Field(description="words to look for, the telling ones")
    from_addr: Filter = Field(None, description="sender: an address, or part of it or a name")
    to_addr: Filter = Field(None, description="recipient (To, Cc, Bcc), likewise")
    sent_after: Day = Field(None, description="YYYY-MM-DD, that day included")
    sent_before: Day = Field(None, description="YYYY-MM-DD, that day excluded")
    max_results: int = Field(MAX_RESULTS, description="1 to 10")


class ReadEmail(_Arguments):
    """Read one mail in full."""

    message_id: Text = Field(description="as a search gave it")


class ReturnFinalAnswer(_Arguments):
    """Give the final answer. Say "I don't know" where the mail does not tell."""

    answer: Text | None = Field(description='short and complete, or "I don\'t know"')
    sources: list[Text] = Field(description="message ids of the mails that hold the answer")


ARGUMENTS: dict[str, type[_Arguments]] = {
    "search_emails": SearchEmails,
    "read_email": ReadEmail,
    "return_final_answer": ReturnFinalAnswer,
}


class CallError(Exception):
    """A call that can't be run. `kind` is the rubric's name for it; the model reads the text."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Observation(NamedTuple):
    """A tool's answer, and the ids of the mails in it."""

    content: dict[str, Any]
    message_ids: tuple[str, ...]


def schemas(offered: Sequence[str] = tuple(ARGUMENTS)) -> list[dict[str, Any]]:
    """The tools in the form of the OpenAI API, a new list each time."""
    parsed: list[dict[str, Any]] = json.loads(_schemas())
    return [each for each in parsed if each["function"]["name"] in offered]


@cache
def _schemas() -> str:
    functions = []
    for name, model in ARGUMENTS.items():
        form = _shortened(model.model_json_schema())
        functions.append({"name": name, "description": model.__doc__, "parameters": form})
    return compact_json([{"type": "function", "function": each} for each in functions])


def parse_call(
    call: ToolCall, offered: Sequence[str] = tuple(ARGUMENTS)
) -> SearchEmails | ReadEmail | ReturnFinalAnswer:
    """The call's checked arguments; `offered` names the tools that may be called. Raises
    `CallError` with a text that helps the model."""
    if call.name not in offered:
        names = ", ".join(offered)
        raise CallError("unknown_tool_calls", f"there is no tool {call.name[:80]!r}; use {names}")
    model = ARGUMENTS[call.name]
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        why = f"the arguments of {call.name} are not JSON ({error})"
        raise CallError("unparseable_calls", why) from None
    if not isinstance(arguments, dict):
        raise CallError("unparseable_calls", f"the arguments of {call.name} are no JSON object")
    try:
        checked = model.model_validate(arguments)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc']))[:80]}: {each['msg']}" for each in error.errors()[:5]
        ).replace("Value error, ", "")
        raise CallError("bad_argument_calls", f"{call.name}: {problems}") from None
    assert isinstance(checked, SearchEmails | ReadEmail | ReturnFinalAnswer)
    return checked


def not_found(message_id: str) -> str:
    """The error for a mail that this inbox does not hold."""
    return f"not found in this inbox: {message_id[:80]!r}"


@dataclass(frozen=True, slots=True)
class View:
    """What the tools show and accept; a very small model sees less than the default.

    With `handles` mails are called m1, m2, ... in the order in which they come up, and both handle
    and message id are accepted. `hits` limits a search, `snippet_chars` cuts its snippets. Without
    `addresses` people with a name are shown by their name alone. With `all_words` a search finds
    only mail that has every word, newest first. `calls` are run of each message. With `closed_book`
    the only tool is that for the answer. With `utc` dates are shown in UTC, else in the mail's own
    zone. With `spaced` each text begins with a space: to a byte-level tokenizer a word behind a
    space is another token, and a tiny model copies tokens."""

    handles: bool = True
    hits: int = MAX_RESULTS
    snippet_chars: int | None = None
    addresses: bool = True
    all_words: bool = False
    calls: int = MAX_CALLS
    closed_book: bool = False
    utc: bool = False
    spaced: bool = False

    @property
    def offered(self) -> tuple[str, ...]:
        return ("return_final_answer",) if self.closed_book else tuple(ARGUMENTS)


WHOLE_VIEW = View()


class Tools:
    """The tools over one opened inbox."""

    def __init__(self, inbox: Inbox, view: View = WHOLE_VIEW) -> None:
        self.inbox, self.view = inbox, view
        self.handles: dict[str, str] = {}
        self._handle_of: dict[str, str] = {}

    def search(self, arguments: SearchEmails) -> Observation:
        most = self.view.hits
        requested = arguments.max_results if "max_results" in arguments.model_fields_set else most
        wanted = min(max(requested, 1), most)
        words = search_words(arguments.keywords)
        hits = self.inbox.search(
            [word[:MAX_WORD_CHARS] for word in words[:MAX_WORDS]],
            **arguments.model_dump(exclude={"keywords", "max_results"}),
            all_words=self.view.all_words,
            max_results=wanted,
        )
        observation: dict[str, Any] = {"hits": [self._hit(hit) for hit in hits]}
        notes = {
            f"max_results is 1 to {most}; {wanted} was used": wanted != requested,
            f"only the first {MAX_WORDS} words were searched for": len(words) > MAX_WORDS,
            "no mail matches; try other words or fewer filters": not hits,
        }
        if note := ". ".join(text for text, applies in notes.items() if applies):
            observation["note"] = note
        return Observation(observation, tuple(hit.message_id for hit in hits))

    def read(self, arguments: ReadEmail) -> Observation | None:
        email = self.inbox.read(self.resolve(arguments.message_id))
        return None if email is None else self.shown(email)

    def resolve(self, handle_or_id: str) -> str:
        """The message id that a handle stands for; anything else stays as it is."""
        return self.handles.get(handle_or_id.strip(), handle_or_id.strip())

    def _name(self, message_id: str) -> str:
        if not self.view.handles:
            return message_id
        handle = self._handle_of.setdefault(message_id, f"m{len(self.handles) + 1}")
        self.handles[handle] = message_id
        return handle

    def _hit(self, hit: Hit) -> dict[str, Any]:
        snippet, limit = hit.snippet, self.view.snippet_chars
        if limit is not None and len(snippet) > limit:
            # Up to the end of a word.
            head = snippet[:limit]
            snippet = f"{head.rpartition(' ')[0] or head}..."
        shown = {
            "message_id": self._name(hit.message_id),
            "date": self._date(hit)[:10],
            "from": self._person(hit.sender),
            "subject": _cut(hit.subject),
            "snippet": snippet,
            "missing": list(hit.missing),
        }
        counted = {"copies": hit.copies} if hit.copies > 1 else {}
        return self._shown(shown) | counted | ({"bulk": True} if hit.bulk else {})

    def shown(self, email: Email) -> Observation:
        body = email.body
        if len(body) > MAX_BODY_CHARS:
            left = len(body) - MAX_BODY_CHARS
            body = f"{body[:MAX_BODY_CHARS]}\n[cut here: {left:,} more characters]"
        shown = {
            "message_id": self._name(email.message_id),
            "date": self._date(email),
            "from": self._person(email.sender),
            "to": self._listed(email.to),
            "cc": self._listed(email.cc),
            "bcc": self._listed(email.bcc),
            "subject": _cut(email.subject),
            "body": body,
        }
        return Observation(self._shown(shown), (email.message_id,))

    def _date(self, mail: Hit | Email) -> str:
        date = mail.date and mail.date.astimezone(dt.UTC) if self.view.utc else mail.date
        return format_date(date, mail.message_id)

    def _shown(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields as the view shows them, without empty lists."""
        shown = {name: value for name, value in fields.items() if value != []}
        for name in shown.keys() - {"message_id", "date"} if self.view.spaced else ():
            text = shown[name]
            shown[name] = f" {text}" if isinstance(text, str) else [f" {line}" for line in text]
        return shown

    def _listed(self, recipients: tuple[Mailbox, ...]) -> list[str]:
        shown = [self._person(mailbox) for mailbox in recipients[:MAX_RECIPIENTS]]
        if len(recipients) > MAX_RECIPIENTS:
            shown.append(f"and {len(recipients) - MAX_RECIPIENTS} more")
        return shown

    def _person(self, mailbox: Mailbox) -> str:
        return _cut(str(mailbox) if self.view.addresses else mailbox.name or mailbox.address)


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]} [cut]"


def _shortened(schema: Any) -> Any:
    """The schema without what costs tokens in every prompt and says nothing new. Titles and
    docstrings repeat names; some providers are not sent `additionalProperties`."""
    if isinstance(schema, dict):
        kept = {
            key: _shortened(value)
            for key, value in schema.items()
            if key != "additionalProperties" and not (key == "title" and isinstance(value, str))
        }
        if kept.get("type") == "object":
            kept.pop("description", None)
        return kept
    return [_shortened(each) for each in schema] if isinstance(schema, list) else schema
