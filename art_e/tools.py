"""The three tools as a model sees them: schemas, argument checks, observations.

An observation is one compact JSON object: JSON's quoting keeps a mail's text within its field."""

import datetime as dt
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, Hit, Mailbox, format_date
from art_e.inbox.query import row_of
from art_e.inbox.snippet import searchable
from art_e.inbox.tokenizer import MAX_WORD_CHARS, STOP_WORDS, search_words, stems, tokens, words
from art_e.message import ToolCall, compact_json
from art_e.observation import BREAK, MailText, ShownTexts, excerpt, pages_of, text_of, tidy_text
from art_e.quotations import Seen
from art_e.text import encodable

MAX_RESULTS = 10
MAX_CALLS = 4  # calls of one message that are run; further ones are refused
MAX_BODY_CHARS = 8_000  # a longer body is cut when it is shown: about 2,000 tokens
MAX_RECIPIENTS = 30
MAX_LINE_CHARS = 300  # longer subjects and names are cut when they are shown
MAX_WORDS = 50  # further words of a search are ignored, because each takes time and memory
MAX_FILTER_CHARS = 320  # 64 + "@" + 255, the longest address by RFC 5321's limits of its parts
# Lean view: searches show mails up to these lengths whole (best hit, others); reading has pages.
WHOLE_CHARS, PAGE_CHARS = (2_500, 700), 2_500
EXCERPT_CHARS = (400, 160)  # of a mail that is not shown whole: best hit, others
NAMED_RECIPIENTS, COPIED = 8, 0.5  # COPIED: least share of a longer hit's words in its copy
# A search stops at a hit that lacks the rarest word if its score is below this share of the best's.
WEAKER = 0.55
# A phrase in a mail multiplies its score by 1 + (phrase's words / words searched) ** this power.
QUOTED, CAPITALISED = 1, 2  # powers of a share below 1: capitals are weaker evidence
PHRASE_CANDIDATES = 20  # mails that are looked at for phrases


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


class LeanSearch(SearchEmails):
    """Search mail by keywords, best first. from_addr, to_addr: part of a name or address;
    sent_after, sent_before (excluded): YYYY-MM-DD."""


class ReadPage(ReadEmail):
    """Read a mail. page: of a long one, 0 for all its people; find: words on the page to open."""

    page: int | None = Field(None, ge=0, description="of a long mail; 0: all its people")
    find: Text | None = Field(None, description="words on the page to open")


class LeanAnswer(ReturnFinalAnswer):
    """Give a short, complete answer and the ids of the mails that hold it, or "I don't know"."""


_LEAN: tuple[type[_Arguments], ...] = (LeanSearch, ReadPage, LeanAnswer)
LEAN_ARGUMENTS = dict(zip(ARGUMENTS, _LEAN, strict=True))


class CallError(Exception):
    """A call that can't be run; the model reads the message. `kind`: rubric field or "refused"."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Observation(NamedTuple):
    """A tool's answer, and the ids of the mails in it. `whole` are the mails shown from beginning
    to end, which count as read; `copies` maps a mail to the one that holds its whole text; `notes`
    tell the model how its search was changed."""

    content: dict[str, Any]
    message_ids: tuple[str, ...]
    whole: tuple[str, ...] = ()
    copies: Mapping[str, str] = MappingProxyType({})
    notes: Sequence[str] = ()


def schemas(
    offered: Sequence[str] = tuple(ARGUMENTS), *, lean: bool = False
) -> list[dict[str, Any]]:
    """Return a new list of the tools in the form of the OpenAI API."""
    parsed: list[dict[str, Any]] = json.loads(_schemas(lean))
    return [each for each in parsed if each["function"]["name"] in offered]


@cache
def _schemas(lean: bool) -> str:
    functions = []
    for name, model in (LEAN_ARGUMENTS if lean else ARGUMENTS).items():
        form = _shortened(model.model_json_schema())
        if lean:
            form["properties"] = {key: _type(field) for key, field in form["properties"].items()}
        description = " ".join((model.__doc__ or "").split())
        functions.append({"name": name, "description": description, "parameters": form})
    return compact_json([{"type": "function", "function": each} for each in functions])


def _type(schema: dict[str, Any]) -> dict[str, Any]:
    [first, *_] = schema.get("anyOf", [schema])
    return {key: first[key] for key in ("type", "items") if key in first}


def parse_call(
    call: ToolCall, offered: Sequence[str] = tuple(ARGUMENTS), *, lean: bool = False
) -> SearchEmails | ReadEmail | ReturnFinalAnswer:
    """Return the call's validated arguments; `offered` names the tools that may be called. Raises
    `CallError` with a message that helps the model."""
    if call.name not in offered:
        names = ", ".join(offered)
        raise CallError("unknown_tool_calls", f"there is no tool {call.name[:80]!r}; use {names}")
    model = (LEAN_ARGUMENTS if lean else ARGUMENTS)[call.name]
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError) as error:
        why = f"the arguments of {call.name} are not JSON ({error})"
        raise CallError("unparseable_calls", why) from None
    if not isinstance(arguments, dict):
        raise CallError("unparseable_calls", f"the arguments of {call.name} are not a JSON object")
    try:
        checked = model.model_validate(arguments)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, line['loc']))[:80]}: {line['msg']}" for line in error.errors()[:5]
        ).replace("Value error, ", "")
        raise CallError("bad_argument_calls", f"{call.name}: {problems}") from None
    assert isinstance(checked, SearchEmails | ReadEmail | ReturnFinalAnswer)
    return checked


def not_found(message_id: str) -> str:
    """Return the error for a mail that this inbox lacks."""
    return f"not found in this inbox: {message_id[:80]!r}"


@dataclass(frozen=True, slots=True)
class View:
    """What the tools show and accept; a very small model sees less than the default.

    With `handles` mails are called m1, m2, ... in order of appearance; handles and message ids are
    accepted. `hits` limits a search, `snippet_chars` a snippet. Without `addresses` people with a
    name are shown by it alone. With `all_words` a search finds only mail with every word, newest
    first. `calls`: tool calls that are run per message. With `closed_book` the only tool is the
    final answer. With `utc` dates are in UTC, not in the mail's zone. With `spaced` texts begin
    with a space: tiny models copy tokens, and a word after a space is another token. `lean`: see
    `LeanTools`."""

    handles: bool = True
    hits: int = MAX_RESULTS
    snippet_chars: int | None = None
    addresses: bool = True
    all_words: bool = False
    calls: int = MAX_CALLS
    closed_book: bool = False
    utc: bool = False
    spaced: bool = False
    lean: bool = False

    @property
    def offered(self) -> tuple[str, ...]:
        return ("return_final_answer",) if self.closed_book else tuple(ARGUMENTS)


WHOLE_VIEW = View()


class Tools:
    """The tools over one opened inbox; each observation stands alone."""

    def __init__(self, inbox: Inbox, view: View = WHOLE_VIEW) -> None:
        self.inbox, self.view = inbox, view
        self.handles: dict[str, str] = {}
        self._handle_of: dict[str, str] = {}

    def search(self, arguments: SearchEmails) -> Observation:
        limit = self.view.hits
        requested = arguments.max_results if "max_results" in arguments.model_fields_set else limit
        count = min(max(requested, 1), limit)
        words = search_words(arguments.keywords)
        observation = self._search(words, arguments, count)
        notes = {
            f"max_results is 1 to {limit}; {count} was used": count != requested,
            f"only the first {MAX_WORDS} words were searched for": len(words) > MAX_WORDS,
            **dict.fromkeys(observation.notes, True),
            "no mail matches; try other words or fewer filters": not observation.message_ids,
        }
        if note := ". ".join(text for text, applies in notes.items() if applies):
            observation.content["note"] = note
        return observation

    def read(self, arguments: ReadEmail) -> Observation | None:
        email = self.inbox.read(self.resolve(arguments.message_id))
        return None if email is None else self.show(email)

    def resolve(self, handle_or_id: str) -> str:
        """Return the message id that a handle stands for; anything else stays as it is."""
        return self.handles.get(handle_or_id.strip(), handle_or_id.strip())

    def _search(self, words: list[str], arguments: SearchEmails, count: int) -> Observation:
        hits = self._hits(words, arguments, count)
        content = {"hits": [self._hit(hit) for hit in hits]}
        return Observation(content, tuple(hit.message_id for hit in hits))

    def _hits(
        self, words: Sequence[str], arguments: SearchEmails, count: int, *, snippets: bool = True
    ) -> list[Hit]:
        phrases = [] if self.view.all_words else _phrases(arguments.keywords)
        hits = self.inbox.search(
            [word[:MAX_WORD_CHARS] for word in words[:MAX_WORDS]],
            **arguments.model_dump(exclude={"keywords", "max_results"}),
            all_words=self.view.all_words,
            max_results=max(count, PHRASE_CANDIDATES) if phrases else count,
            snippets=snippets,
        )
        if phrases:
            hits = [_with_bonus(hit, phrases, len(words)) for hit in hits]
            hits = sorted(hits, key=lambda hit: -hit.score)[:count]
        return hits

    def _name(self, message_id: str) -> str:
        if not self.view.handles:
            return message_id
        handle = self._handle_of.setdefault(message_id, f"m{len(self.handles) + 1}")
        self.handles[handle] = message_id
        return handle

    def _hit(self, hit: Hit) -> dict[str, Any]:
        snippet, limit = hit.snippet, self.view.snippet_chars
        if limit is not None and len(snippet) > limit:
            head = snippet[:limit]  # up to the end of a word
            snippet = f"{head.rpartition(' ')[0] or head}..."
        fields = {
            "message_id": self._name(hit.message_id),
            "date": self._date(hit)[:10],
            "from": self._person(hit.sender),
            "subject": _cut(hit.subject),
            "snippet": snippet,
            "missing": list(hit.missing),
        }
        return self._formatted(fields) | _marks(hit)

    def show(self, email: Email) -> Observation:
        body = email.body
        if len(body) > MAX_BODY_CHARS:
            left = len(body) - MAX_BODY_CHARS
            body = f"{body[:MAX_BODY_CHARS]}\n[cut here: {left:,} more characters]"
        fields = {
            "message_id": self._name(email.message_id),
            "date": self._date(email),
            "from": self._person(email.sender),
            **{role: self._listed(people) for role, people in _recipients(email).items()},
            "subject": _cut(email.subject),
            "body": body,
        }
        return Observation(self._formatted(fields), (email.message_id,))

    def _date(self, mail: Hit | Email) -> str:
        date = mail.date and mail.date.astimezone(dt.UTC) if self.view.utc else mail.date
        return format_date(date, mail.message_id)

    def _formatted(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields as the view shows them, without empty lists."""
        formatted = {name: value for name, value in fields.items() if value != []}
        for name in formatted.keys() - {"message_id", "date"} if self.view.spaced else ():
            text = formatted[name]
            if isinstance(text, str):
                formatted[name] = f" {text}"
            elif isinstance(text, list):
                formatted[name] = [f" {line}" for line in text]
        return formatted

    def _listed(self, recipients: tuple[Mailbox, ...]) -> list[str]:
        people = [self._person(mailbox) for mailbox in recipients[:MAX_RECIPIENTS]]
        if len(recipients) > MAX_RECIPIENTS:
            people.append(f"and {len(recipients) - MAX_RECIPIENTS} more")
        return people

    def _person(self, mailbox: Mailbox) -> str:
        return _cut(str(mailbox) if self.view.addresses else mailbox.name or mailbox.address)


class LeanTools(Tools):
    """The tools of the lean view: searches leave off weaker hits and show short mails whole, long
    mails have pages, and nothing is shown twice in an episode."""

    def __init__(self, inbox: Inbox, view: View) -> None:
        super().__init__(inbox, view)
        self._shown_text, self._hit_texts = ShownTexts(), Seen()
        # By message id: the number of words in a hit's text, the header fields shown, the pages.
        self._sizes: dict[str, int] = {}
        self._heads: dict[str, dict[str, Any]] = {}
        self._pages: dict[str, list[str]] = {}
        self._wholes: set[str] = set()
        self._words: list[str] = []

    def _search(self, words: list[str], arguments: SearchEmails, count: int) -> Observation:
        """Correct words that no hit has, and drop weaker hits unless the call sets max_results."""
        hits = self._hits(words, arguments, count, snippets=False)
        lacked = [word for word in words[:MAX_WORDS] if all(word in hit.missing for hit in hits)]
        near = {word: self.inbox.spelling(word) for word in lacked if len(word) <= MAX_WORD_CHARS}
        spelled = {word: other for word, other in near.items() if other is not None}
        if spelled:
            words = [spelled.get(word, word) for word in words]
            hits = self._hits(words, arguments, count, snippets=False)
        strong = hits if "max_results" in arguments.model_fields_set else _strong(hits)
        notes = [f"{word}: searched as {other}" for word, other in spelled.items()]
        if weaker := len(hits) - len(strong):
            notes.append(f"{weaker} weaker hits left off; max_results shows them")
        self._words = words
        return self._new_parts(strong)._replace(notes=notes)

    def _new_parts(self, hits: Sequence[Hit]) -> Observation:
        """Show the new text of each hit. A hit whose whole text an earlier hit has is its copy."""
        ids = [hit.message_id for hit in hits]
        entries: dict[str, dict[str, Any]] = {}
        copies: dict[str, str] = {}
        is_best = True
        for hit in hits:
            text, name = tidy_text(hit.body, hit.subject, hit.sender.name), hit.message_id
            original = self._original(name, text)
            entry = entries.setdefault(original, {"message_id": self._name(original)})
            if original != name:
                copies[name] = original
                entry.setdefault("same_text", []).append(self._name(name))
            elif original in self._wholes:
                entry["shown"] = "above"
            else:
                entry |= self._lean_hit(hit, text, is_best=is_best)
                is_best = False
        whole = tuple(name for name in ids if copies.get(name, name) in self._wholes)
        content = {"hits": [self._formatted(entry) for entry in entries.values()]}
        return Observation(content, tuple(ids), whole, copies)

    def _original(self, message_id: str, text: MailText) -> str:
        """Return the earlier hit that this text is a copy of, else the mail itself. A short mail
        within a long one counts as a copy only if the long one was shown whole."""
        size = self._sizes[message_id] = len(text.runs.numbers)
        held = self._hit_texts.holding(text.runs)
        holders = {*held.values()} if len(held) == len({*text.runs.numbers}) else set()
        name = holders.pop() if len(holders) == 1 else None
        if name is None or (name not in self._wholes and size < COPIED * self._sizes[name]):
            self._hit_texts.note(text.runs, message_id)
            return message_id
        return name

    def _lean_hit(self, hit: Hit, text: MailText, *, is_best: bool) -> dict[str, Any]:
        name, new = hit.message_id, self._shown_text.new(text)
        marks = {"missing": list(hit.missing), **_marks(hit)}
        if len(body := BREAK.join(new)) <= WHOLE_CHARS[not is_best]:
            self._wholes.add(name)
            self._pages.setdefault(name, [body])
            self._shown_text.note(text, self._name(name))
            return self._head(hit, self.inbox.read(name)) | {"complete": True, "body": body} | marks
        words = [word for word in self._words if word not in hit.missing]
        snippet = excerpt(new, words, self.view.snippet_chars or EXCERPT_CHARS[not is_best])
        return self._head(hit) | {"snippet": snippet} | marks

    def read(self, arguments: ReadEmail) -> Observation | None:
        """Return the page that `page` or `find` asks for, else the best one for the last search."""
        assert isinstance(arguments, ReadPage)  # `parse_call` gives the lean view's arguments
        mail = self.inbox.read(self.resolve(arguments.message_id))
        if mail is None:
            return None
        return Observation(self._formatted(self._page(mail, arguments)), (mail.message_id,))

    def _page(self, mail: Email, arguments: ReadPage) -> dict[str, Any]:
        name, number = mail.message_id, arguments.page
        fields: dict[str, Any] = {"message_id": self._name(name)}
        if number == 0:
            people = {role: list(map(str, boxes)) for role, boxes in _recipients(mail).items()}
            return {**fields, "from": str(mail.sender), **people}
        if number is None and not arguments.find and name in self._wholes:
            return {**fields, "shown": "above"}
        if name not in self._pages:
            text = tidy_text(mail.body, mail.subject, mail.sender.name)
            self._pages[name] = pages_of(self._shown_text.new(text), PAGE_CHARS)
        pages = self._pages[name]
        if number is None:
            sought = {*stems(search_words([arguments.find]) if arguments.find else self._words)}
            counts = [len(sought.intersection(stems(tokens(page)))) for page in pages]
            number = counts.index(max(counts)) + 1
        number = min(number, len(pages))
        body = pages[number - 1]
        self._shown_text.note(text_of(body.split(BREAK), mail.sender.name), self._name(name))
        if len(pages) == 1:
            self._wholes.add(name)
        numbered = {"page": f"{number} of {len(pages)}"} if len(pages) > 1 else {}
        return fields | self._head(mail, mail) | numbered | {"body": body}

    def _head(self, mail: Hit | Email, whole: Email | None = None) -> dict[str, Any]:
        """Return the new or changed date, sender, subject and, with `whole`, recipients."""
        date = self._date(mail)
        head: dict[str, Any] = {
            "date": date if whole else date[:10],
            "from": _cut(mail.sender.name or mail.sender.address),
            "subject": _cut(mail.subject),
        }
        if whole:
            head |= {role: _named(mailboxes) for role, mailboxes in _recipients(whole).items()}
        previous = self._heads.setdefault(mail.message_id, {})
        new = {name: value for name, value in head.items() if previous.get(name) != value}
        previous |= new
        return new


def _recipients(mail: Email) -> dict[str, tuple[Mailbox, ...]]:
    return {"to": mail.to, "cc": mail.cc, "bcc": mail.bcc}


def _named(mailboxes: Sequence[Mailbox]) -> list[str]:
    """Return the names of the first recipients, and the number of the others."""
    names = [_cut(mailbox.name or mailbox.address) for mailbox in mailboxes[:NAMED_RECIPIENTS]]
    more = len(mailboxes) - len(names)
    return [*names, f"{more} more"] if more else names


def _marks(hit: Hit) -> dict[str, Any]:
    counted = {"copies": hit.copies} if hit.copies > 1 else {}
    return counted | ({"bulk": True} if hit.bulk else {})


def _phrases(keywords: Sequence[str]) -> list[tuple[re.Pattern[str], int, int]]:
    """Return the patterns, sizes and powers of quoted phrases and of capitalised pairs."""
    text = " ".join(keywords)
    pairs = itertools.pairwise(re.findall(r"[^\W_]+", text)[:MAX_WORDS])
    names = [" ".join(pair) for pair in pairs if all(word[0].isupper() for word in pair)]
    phrases = {name: CAPITALISED for name in names if STOP_WORDS.isdisjoint(words(name))}
    phrases |= dict.fromkeys(re.findall('"([^"]+)"', text)[:MAX_WORDS], QUOTED)
    rows = ((words(phrase), power) for phrase, power in phrases.items())
    return [(row_of(row), len(row), power) for row, power in rows if len(row) > 1]


def _with_bonus(hit: Hit, phrases: list[tuple[re.Pattern[str], int, int]], count: int) -> Hit:
    """Return the hit with a higher score if it has phrases of a search of `count` words."""
    text = searchable(f"{hit.subject}\n{hit.sender.name}\n{hit.body}")
    bonus = sum((size / count) ** power for row, size, power in phrases if row.search(text))
    return hit._replace(score=hit.score * (1 + bonus))


def _strong(hits: list[Hit]) -> list[Hit]:
    """Return the hits before the first that lacks the rarest word and scores far below the best."""
    words = {word for hit in hits for word in hit.missing}
    lacking = {word: sum(word in hit.missing for hit in hits) for word in words}
    matched = [word for word in sorted(words) if lacking[word] < len(hits)]
    if not matched:
        return hits
    rarest = max(matched, key=lacking.__getitem__)
    limit = WEAKER * hits[0].score
    weak = (at for at, hit in enumerate(hits) if rarest in hit.missing and hit.score < limit)
    return hits[: next(weak, len(hits))]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]} [cut]"


def _shortened(schema: Any) -> Any:
    """Return the schema without titles and docstrings, which repeat names and cost tokens in every
    prompt, and without `additionalProperties`, which not all providers take."""
    if isinstance(schema, dict):
        short = {
            key: _shortened(value)
            for key, value in schema.items()
            if key != "additionalProperties" and not (key == "title" and isinstance(value, str))
        }
        if short.get("type") == "object":
            short.pop("description", None)
        return short
    return [_shortened(each) for each in schema] if isinstance(schema, list) else schema
