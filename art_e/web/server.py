"""`art-e web`: a web page for questions about your mail, for one browser on this machine.

    art-e web --inbox me@example.com

The page sends JSON and gets JSON; a question gets one line of JSON for each step and one for the
answer. Text of mails and models is cleaned here, and the page shows it as plain text."""

import asyncio
import json
import re
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Any, Literal
from urllib.parse import quote

import uvicorn
from pydantic import Field, ValidationError, validate_call
from starlette import responses
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from typer import Option, Typer

from art_e.cli import model_options
from art_e.cli.ask import COMPLETED
from art_e.cli.conversation import Answered, Conversation, add_history, load_answer, outside_failure
from art_e.cli.mail import match_spans, parse_typed_query, safe_name
from art_e.cli.options import AllOption, AsOfOption, DbOption, InboxOption, opened_inbox
from art_e.cli.output import clean, clean_json, note, one_line, print_line
from art_e.errors import UserError, explained
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import AttachedFile, Email
from art_e.inbox.query import OPERATORS
from art_e.inbox.tokenizer import search_words
from art_e.message import ChatMessage
from art_e.models.base import OFFLINE, PERMANENT, Policy, PolicyStep
from art_e.models.model import Model, default_model
from art_e.passages import informative_words
from art_e.privacy import redact
from art_e.quotations import added_mails
from art_e.ratings import AnswerRating, read_ratings
from art_e.ratings import rate as keep_rating
from art_e.runs import Run, read_trajectories, runs_of
from art_e.storage import runs_folder
from art_e.text import toml_table

_HITS, _MARKS = 30, 200  # limits: hits of a search, highlighted words of a mail
_QUESTIONS = 500  # latest questions, whose conversations are listed

Words = Annotated[str, Field(max_length=10_000)]


class Stoppable:
    """A policy whose call, and with it the episode, is cancelled once `stopped` is true."""

    def __init__(self, policy: Policy, stopped: Callable[[], bool]) -> None:
        self.model, self.settings = policy.model, policy.settings
        self._policy, self._stopped = policy, stopped

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        call = asyncio.ensure_future(self._policy.act(messages, tools))
        while not call.done():
            if self._stopped():
                call.cancel()
            await asyncio.wait([call], timeout=0.1)
        return call.result()


class WebSession:
    """The requests of the page. Each method takes the fields that the page sends, which `make_app`
    validates by the method's types, and returns JSON. Requests run in threads; the file gives each
    thread its own cursor. Questions run one at a time, other requests don't wait for them."""

    def __init__(
        self, file: InboxFile, inbox: Inbox, model: str, options: model_options.Options
    ) -> None:
        self._file, self._inbox, self._model, self._options = file, inbox, model, options
        # `notice` raises `UserError` for an unknown provider, before the server starts.
        no_model = "no model: the best passages, and nothing leaves this machine"
        local = no_model if model == OFFLINE else "mail text stays in this process"
        self._notice = Model(model).notice or local
        self._turn = threading.Lock()
        self._answered: dict[str, Answered] = {}
        self._conversation = Conversation(inbox, file.path, options)
        self._policy: Policy | None = None
        with_junk = cache(lambda: InboxFile(file.path, junk=True))
        day = inbox.as_of
        self._opened = lru_cache(8)(
            lambda address, junk=False: (with_junk() if junk else file).open_inbox(address, day)
        )

    def start(self) -> dict[str, Any]:
        addresses = [each.address for each in self._file.inboxes(COMPLETED)]
        fields = {"notice": self._notice, "addresses": addresses, "operators": list(OPERATORS)}
        return self.inbox(self._inbox.address) | fields

    def inbox(self, inbox: Words) -> dict[str, Any]:
        opened = self._opened(inbox.strip().lower())
        return {"inbox": opened.address, "mails": len(opened), "as_of": str(opened.as_of or "")}

    def search(self, inbox: Words, query: Words) -> dict[str, Any]:
        parsed = parse_typed_query(query, self._inbox.as_of)
        opened, words = self._opened(inbox, parsed.junk), search_words(parsed.words)
        hits = opened.search(parsed.words, query=parsed, max_results=_HITS)
        sizes = opened.thread_sizes([hit.message_id for hit in hits])
        rows = [
            {**hit.to_json(), "thread": size, "marks": match_spans(words, clean(hit.snippet))}
            for hit, size in zip(hits, sizes, strict=True)
        ]
        return {"hits": rows, "words": words, "junk": parsed.junk}

    def mail(
        self,
        inbox: Words,
        message_id: Words,
        whole: bool,
        sentence: Words = "",
        words: list[Words] = [],  # noqa: B006 - never changed
        junk: bool = False,
    ) -> dict[str, Any]:
        """Return a mail, or its `whole` thread, with the sentence or else the words highlighted."""
        opened = self._opened(inbox, junk)
        if (email := opened.read(message_id)) is None:
            raise UserError(f"that mail is not in the inbox of {inbox}")
        mails = opened.thread(email.message_id) if whole else [email]
        [size] = opened.thread_sizes([email.message_id])
        rows = []
        for mail, added in zip(mails, added_mails(mails) if whole else mails, strict=True):
            names = [file.name for file in opened.files(mail.message_id)]
            target = sentence if mail == email else ""
            full = _marked_text(mail.body, target, words)
            new = full if added.body == mail.body else _marked_text(added.body, target, words)
            # Quoted text is folded, unless the highlights are in it.
            body = new if new["marks"] or not full["marks"] else full
            full_body = {} if body == full else {"full": full}
            rows.append({**mail.to_json(), **body, **full_body, "attached": names})
        return {"mails": rows, "size": size, "opened": email.message_id}

    def attached(
        self, inbox: Words, message_id: Words, number: int, junk: bool = False
    ) -> AttachedFile:
        """Return a file that is attached to a mail. Raises `LookupError` if it was not stored."""
        files = self._opened(inbox, junk).files(message_id)
        if not 1 <= number <= len(files) or files[number - 1].data is None:
            raise LookupError
        return files[number - 1]

    def ask(
        self,
        question: Words,
        inbox: Words,
        conversation: Words,
        send: Callable[[dict[str, Any]], None],
        stopped: Callable[[], bool],
    ) -> dict[str, Any]:
        """Answer a question of a conversation ("": new); `send` gets steps and partial answers."""
        if not re.search(r"\w", question):
            raise UserError("the question is empty; type one")
        if self._turn.locked():
            send({"step": "waiting for another question to end"})
        with self._turn:
            current = self._conversation
            current.say = lambda step: send({"step": step, "conversation": current.id})
            current.on_answer = lambda answer: send({"arriving": answer})
            if self._policy is None:
                send({"step": "loading the model"})
                current.load(self._model)
                self._policy = current.policy
            current.policy = Stoppable(self._policy, stopped)
            current.inbox, current.id = self._opened(inbox), conversation or None
            current.history = self._history(conversation, inbox) if conversation else []
            return self._entry(current.ask(question), {})

    def conversations(self, inbox: Words) -> dict[str, Any]:
        """List the conversations about an inbox, latest first."""
        rows = []
        for name, runs in self._conversations().items():
            first, last = runs[0].config, runs[-1].config
            row = {"title": first["question"], "at": last["started_at"], "questions": len(runs)}
            rows += [{"conversation": name, **row}] if first["inbox_address"] == inbox else []
        return {"conversations": rows}

    def conversation(self, conversation: Words) -> dict[str, Any]:
        """Return the questions and answers of a conversation, with ratings."""
        runs, rated = self._runs(conversation), {each.episode_id: each for each in read_ratings()}
        opened, entries = self._opened(runs[0].config["inbox_address"]), []
        for run in runs:
            entries.append({"question": run.config["question"], "kind": "stopped"})
            with suppress(ValueError):  # an invalid line
                for trajectory in read_trajectories(run.trajectories):
                    entries[-1] = self._entry(load_answer(opened, run, trajectory), rated)
        return {**self.inbox(opened.address), "entries": entries}

    def _conversations(self) -> dict[str, list[Run]]:
        """Map the id of each conversation about the served mail to its runs."""
        by_id: dict[str, list[Run]] = {}
        day = self._inbox.as_of and str(self._inbox.as_of)
        served = {"db": str(self._file.path.absolute()), "as_of": day}
        for run in islice(runs_of("ask", runs_folder()), _QUESTIONS):
            config = run.config
            junk = config.get("options", {}).get("junk", False)
            if served.items() <= config.items() and junk == self._options.junk:
                by_id.setdefault(config.get("conversation") or run.id, []).insert(0, run)
        return by_id

    def _runs(self, conversation: str) -> list[Run]:
        if conversation not in (by_id := self._conversations()):
            raise UserError("that conversation is not about this file and day; begin a new one")
        return by_id[conversation]

    def _history(self, conversation: str, inbox: str) -> list[list[str]]:
        """Return the earlier questions and answers to send with the next, without failed ones."""
        for run in reversed(self._runs(conversation)):
            if run.config["inbox_address"] != inbox:
                raise UserError("that conversation is about another inbox; begin a new one")
            for trajectory in read_trajectories(run.trajectories):
                if trajectory.error is None:
                    return add_history(run.config["talk"], run.config["question"], trajectory)
        return []

    def _entry(self, answered: Answered, rated: dict[str, AnswerRating]) -> dict[str, Any]:
        run, trajectory = answered.run, answered.trajectory
        self._answered[run.id] = answered
        rating, failure = rated.get(trajectory.episode_id), outside_failure(trajectory)
        return {
            **answered.to_json(),
            "run": run.id,
            "conversation": run.config.get("conversation") or run.id,
            "reason": redact(failure or answered.reason),
            "permanent": (trajectory.error or {}).get("kind") in PERMANENT,
            "sources": [_source_card(answered, each) for each in answered.mails],
            "took": answered.cost_line,
            "rated": rating and {"rating": rating.rating, "right": rating.right_answer or ""},
        }

    def rate(self, run: Words, rating: Literal["good", "bad"], right: Words) -> dict[str, Any]:
        if run not in self._answered:
            raise UserError("that answer is not on the page; open its conversation again")
        answered = self._answered[run]
        keep_rating(answered.run, answered.trajectory, rating, right.strip() or None)
        return {"kept": rating}


def _marked_text(text: str, sentence: str, words: list[str]) -> dict[str, Any]:
    """Return a mail's text with the spans of the sentence, or else of the words."""
    body = clean(text)
    # `split_sentences` joins lines and drops quote marks.
    pattern = r"[\s>]+".join(map(re.escape, clean(sentence).split()))
    place = re.search(pattern, body) if pattern else None
    marks = [place.span()] if place else match_spans(words, body)[:_MARKS] if words else []
    return {"body": body, "marks": marks}


def _source_card(answered: Answered, email: Email) -> dict[str, Any]:
    card = {**email.to_json(), "body": "", "sentence": answered.sentence_of(email)}
    texts = [each.text for each in answered.passages if each.email == email]
    if texts:
        snippet = clean("\n...\n".join(texts))
        marks = match_spans(informative_words(answered.question), snippet)
        card |= {"snippet": snippet, "marks": marks}
    return card


def _error_json(error: Exception) -> dict[str, Any]:
    if isinstance(error, UserError):
        return {"error": one_line(str(error))}
    if isinstance(error, ValidationError | json.JSONDecodeError):
        return {"error": "the page sent an invalid request; reload it"}
    return {"error": one_line(f"internal error: {redact(f'{type(error).__name__}: {error}')}")}


def make_app(session: WebSession) -> Starlette:
    """Return the app that serves the page and its requests, without access control."""
    methods: list[Callable[..., Any]] = [session.start, session.inbox, session.search, session.mail]
    methods += [session.rate, session.conversations, session.conversation]
    by_name = {f"/call/{each.__name__}": validate_call(each) for each in methods}

    def page(request: Request) -> Response:
        return responses.FileResponse(Path(__file__).with_name(request.url.path[1:] or "page.html"))

    async def call(request: Request) -> Response:
        try:
            method = by_name[request.url.path]
            answer = clean_json(await run_in_threadpool(method, **await request.json()))
        except Exception as error:  # noqa: BLE001 - the page shows it
            answer = _error_json(error)
        return responses.JSONResponse(answer)

    async def ask(request: Request) -> Response:
        lines = _stream_events(session, await request.body())
        return responses.StreamingResponse(lines, media_type="application/jsonl")

    def attached(request: Request) -> Response:
        fields: dict[str, Any] = dict(request.query_params)
        try:
            file = validate_call(session.attached)(**fields)
        except (UserError, ValidationError, TypeError, LookupError):
            gone = "That file is not here, or was too large to store.\n"
            return responses.PlainTextResponse(gone, 404)
        # Files are saved, never shown, because a browser would run scripts in them.
        disposition = f"attachment; filename*=utf-8''{quote(safe_name(file))}"
        kind = "application/octet-stream"
        return Response(file.data, headers={"Content-Disposition": disposition}, media_type=kind)

    routes = [Route(path, page) for path in ("/", "/page.css", "/page.js")]
    routes += [Route(path, call, methods=["POST"]) for path in by_name]
    routes += [Route("/ask", ask, methods=["POST"]), Route("/attached", attached)]
    return Starlette(routes=routes)


async def _stream_events(session: WebSession, body: bytes) -> AsyncIterator[str]:
    """Yield a line for each step of a question and for its answer; stop if the page disconnects."""
    loop, stopped = asyncio.get_running_loop(), threading.Event()
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(event: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(events.put_nowait, event)

    def work() -> None:
        try:
            ask = validate_call(session.ask)
            send({"answer": ask(**json.loads(body), send=send, stopped=stopped.is_set)})
        except asyncio.CancelledError:
            send({"error": "stopped"})
        except Exception as error:  # noqa: BLE001 - the page shows it
            send(_error_json(error))

    # Not a daemon: Python's exit would stop the thread inside DuckDB, which would abort.
    threading.Thread(target=work).start()
    try:
        event: dict[str, Any] = {}
        while not event.keys() & {"answer", "error"}:
            event = await events.get()
            yield json.dumps(clean_json(event)) + "\n"
    finally:
        stopped.set()


app = Typer(rich_markup_mode=None, add_completion=False)


# ---- Access: only for the browser that opened the printed address.

LOOPBACK = "127.0.0.1"
HEADERS = toml_table(__package__, "headers.toml")
_NO_ENTRY = "Open the address that art-e web printed; it works once. A new run prints another.\n"


class Guard:
    """Passes one browser's requests on to an app, and adds `HEADERS` to every response. It rejects
    DNS rebinding (by the Host header), forms on other sites (Origin), and other users of this
    machine (the cookie). The cookie is limited to a secret path, because browsers send cookies to
    every port of a host, where another user's server could read it."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._hosts = {f"{LOOPBACK}:{port}", f"localhost:{port}"}
        self._path = f"/{secrets.token_urlsafe(16)}/"
        self._cookie = f"art_e_{port}"
        self._session = secrets.token_urlsafe(32)
        self._token: str | None = secrets.token_urlsafe(32)
        self.address = f"http://{LOOPBACK}:{port}{self._path}?token={self._token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(Request(scope))
        inside = {**scope, "path": scope["path"].removeprefix(self._path[:-1])}
        await (refusal or self._app)(inside, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """Return the response to a rejected request, or None."""
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return responses.PlainTextResponse("Unknown host name.\n", 403)
        if request.method == "POST" and request.headers.get("origin") != f"http://{host}":
            return responses.PlainTextResponse("Requests are accepted only from this page.\n", 403)
        if not request.url.path.startswith(self._path):
            return responses.PlainTextResponse(_NO_ENTRY, 403)
        if self._token is not None and _same(request.query_params.get("token"), self._token):
            self._token = None
            # Not a redirect: a browser coming from a file would not send the cookie after one.
            entered = responses.HTMLResponse('<meta http-equiv="refresh" content="0; url=./">')
            entered.set_cookie(
                self._cookie, self._session, path=self._path, httponly=True, samesite="strict"
            )
            return entered
        if not _same(request.cookies.get(self._cookie), self._session):
            return responses.PlainTextResponse(_NO_ENTRY, 403)
        return None


def _same(value: str | None, secret: str) -> bool:
    return value is not None and secrets.compare_digest(value.encode(), secret.encode())


@app.command()
def web(
    inbox: InboxOption = None,
    model: model_options.ModelOption = None,
    as_of: AsOfOption = None,
    junk: AllOption = False,
    max_cost: model_options.MaxCostOption = None,
    timeout: model_options.TimeoutOption = None,
    retries: model_options.RetriesOption = None,
    db: DbOption = None,
    port: Annotated[
        int | None,
        Option(metavar="PORT", min=1, max=65_535, help="Port to listen on [default: a free one]."),
    ] = None,
    no_browser: Annotated[
        bool, Option("--no-browser", help="Print the address without opening a browser.")
    ] = False,
) -> None:
    """Ask and search an inbox on a page in the browser, until Ctrl-C."""
    with opened_inbox(db, inbox, as_of, junk=junk) as (file, opened):
        options = model_options.Options(
            max_cost=max_cost, junk=junk, timeout=timeout, retries=retries
        )
        session = WebSession(file, opened, model or default_model(), options)
        with explained(f"can't listen on port {port}", "choose another with --port"):
            listening = socket.create_server((LOOPBACK, port or 0))
        with listening, NamedTemporaryFile("w", suffix=".html") as opening:
            guard = Guard(make_app(session), listening.getsockname()[1])
            print_line(guard.address)
            sys.stdout.flush()
            note("opens once, in one browser on this machine; Ctrl-C ends it")
            if sys.stdout.isatty() and not no_browser:
                # Other users can read a browser's command line, but not this file (mode 0600).
                opening.write(f'<meta http-equiv="refresh" content="0; url={guard.address}">')
                opening.flush()
                page = Path(opening.name).as_uri()
                # Some browsers return only when they are closed.
                threading.Thread(target=webbrowser.open, args=[page], daemon=True).start()
            config = uvicorn.Config(
                guard, lifespan="off", ws="none", server_header=False, timeout_graceful_shutdown=1,
                # No log, because it would contain the token.
                log_config=None, log_level="critical", access_log=False,
            )  # fmt: skip
            uvicorn.Server(config).run([listening])
