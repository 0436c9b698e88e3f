"""`art-e web`: the page on which people ask their own mail, for one browser on this machine.

    art-e web --inbox me@example.com

The page sends JSON and gets JSON; a question gets one line of JSON for each step and one for the
answer. What mail and models say leaves here cleaned, and the page shows it as text."""

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

_HITS, _MARKS = 30, 200  # mails of a search, marked words of a mail
_QUESTIONS = 500  # the last ones, whose conversations are listed

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


class Desk:
    """What the page can ask for. Each method takes what the page sends, which `make_app` checks by
    the method's types, and returns JSON. Its threads share the file, which gives each of them a
    cursor of its own. Questions take turns, and nothing else waits for them."""

    def __init__(
        self, file: InboxFile, inbox: Inbox, model: str, options: model_options.Options
    ) -> None:
        self._file, self._inbox, self._model, self._options = file, inbox, model, options
        # An unknown provider ends the command.
        no_model = "no model: the best passages, and nothing leaves this machine"
        here = no_model if model == OFFLINE else "mail text stays in this process"
        self._notice = Model(model).notice or here
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
        page = {"notice": self._notice, "addresses": addresses, "operators": list(OPERATORS)}
        return self.inbox(self._inbox.address) | page

    def inbox(self, inbox: Words) -> dict[str, Any]:
        opened = self._opened(inbox.strip().lower())
        return {"inbox": opened.address, "mails": len(opened), "as_of": str(opened.as_of or "")}

    def search(self, inbox: Words, query: Words) -> dict[str, Any]:
        parsed = parse_typed_query(query, self._inbox.as_of)
        opened, words = self._opened(inbox, parsed.junk), search_words(parsed.words)
        hits = opened.search(parsed.words, query=parsed, max_results=_HITS)
        sizes = opened.thread_sizes([hit.message_id for hit in hits])
        shown = [
            {**hit.to_json(), "thread": size, "marks": match_spans(words, clean(hit.snippet))}
            for hit, size in zip(hits, sizes, strict=True)
        ]
        return {"hits": shown, "words": words, "junk": parsed.junk}

    def mail(
        self,
        inbox: Words,
        message_id: Words,
        whole: bool,
        sentence: Words = "",
        words: list[Words] = [],  # noqa: B006 - never changed
        junk: bool = False,
    ) -> dict[str, Any]:
        """A mail, or its `whole` conversation, with the sentence or else the words marked."""
        opened = self._opened(inbox, junk)
        if (email := opened.read(message_id)) is None:
            raise UserError(f"that mail is not in the inbox of {inbox}")
        mails = opened.thread(email.message_id) if whole else [email]
        [size] = opened.thread_sizes([email.message_id])
        shown = []
        for each, added in zip(mails, added_mails(mails) if whole else mails, strict=True):
            names = [file.name for file in opened.files(each.message_id)]
            wanted = sentence if each == email else ""
            full = _marked_text(each.body, wanted, words)
            own = full if added.body == each.body else _marked_text(added.body, wanted, words)
            # Quoted text is folded, unless the marks are in it.
            body = own if own["marks"] or not full["marks"] else full
            full_body = {} if body == full else {"full": full}
            shown.append({**each.to_json(), **body, **full_body, "attached": names})
        return {"mails": shown, "size": size, "opened": email.message_id}

    def attached(
        self, inbox: Words, message_id: Words, number: int, junk: bool = False
    ) -> AttachedFile:
        """A file that is attached to a mail. Raises `LookupError` if it was not kept."""
        files = self._opened(inbox, junk).files(message_id)
        if not 1 <= number <= len(files) or files[number - 1].data is None:
            raise LookupError
        return files[number - 1]

    def ask(
        self,
        question: Words,
        inbox: Words,
        talk: Words,
        tell: Callable[[dict[str, Any]], None],
        stopped: Callable[[], bool],
    ) -> dict[str, Any]:
        """Answer a question of a `talk` ("": a new one); `tell` gets the steps and what arrives."""
        if not re.search(r"\w", question):
            raise UserError("the question is empty; type one")
        if self._turn.locked():
            tell({"step": "waiting for another question to end"})
        with self._turn:
            conversation = self._conversation
            conversation.say = lambda step: tell({"step": step, "talk": conversation.id})
            conversation.on_answer = lambda answer: tell({"arriving": answer})
            if self._policy is None:
                tell({"step": "loading what calls the model"})
                conversation.load(self._model)
                self._policy = conversation.policy
            conversation.policy = Stoppable(self._policy, stopped)
            conversation.inbox, conversation.id = self._opened(inbox), talk or None
            conversation.history = self._history(talk, inbox) if talk else []
            return self._entry(conversation.ask(question), {})

    def talks(self, inbox: Words) -> dict[str, Any]:
        """The conversations about an inbox, the last first."""
        listed = []
        for talk, runs in self._talks().items():
            first, last = runs[0].config, runs[-1].config
            shown = {"title": first["question"], "at": last["started_at"], "questions": len(runs)}
            listed += [{"talk": talk, **shown}] if first["inbox_address"] == inbox else []
        return {"talks": listed}

    def talk(self, talk: Words) -> dict[str, Any]:
        """A conversation as it was, with its ratings."""
        runs, rated = self._runs(talk), {each.episode_id: each for each in read_ratings()}
        opened, entries = self._opened(runs[0].config["inbox_address"]), []
        for run in runs:
            entries.append({"question": run.config["question"], "kind": "stopped"})
            with suppress(ValueError):  # no line of ours
                for each in read_trajectories(run.trajectories):
                    entries[-1] = self._entry(load_answer(opened, run, each), rated)
        return {**self.inbox(opened.address), "entries": entries}

    def _talks(self) -> dict[str, list[Run]]:
        """The runs of each conversation about the mail that is served here."""
        talks: dict[str, list[Run]] = {}
        day = self._inbox.as_of and str(self._inbox.as_of)
        served = {"db": str(self._file.path.absolute()), "as_of": day}
        for run in islice(runs_of("ask", runs_folder()), _QUESTIONS):
            config = run.config
            junk = config.get("options", {}).get("junk", False)
            if served.items() <= config.items() and junk == self._options.junk:
                talks.setdefault(config.get("conversation") or run.id, []).insert(0, run)
        return talks

    def _runs(self, talk: str) -> list[Run]:
        if talk not in (talks := self._talks()):
            raise UserError("that conversation is not about this file and day; begin a new one")
        return talks[talk]

    def _history(self, talk: str, inbox: str) -> list[list[str]]:
        """What goes along with the next question: what failed does not."""
        for run in reversed(self._runs(talk)):
            if run.config["inbox_address"] != inbox:
                raise UserError("that conversation is about another inbox; begin a new one")
            for each in read_trajectories(run.trajectories):
                if each.error is None:
                    return add_history(run.config["talk"], run.config["question"], each)
        return []

    def _entry(self, answered: Answered, rated: dict[str, AnswerRating]) -> dict[str, Any]:
        run, trajectory = answered.run, answered.trajectory
        self._answered[run.id] = answered
        rating, failure = rated.get(trajectory.episode_id), outside_failure(trajectory)
        return {
            **answered.to_json(),
            "run": run.id,
            "talk": run.config.get("conversation") or run.id,
            "reason": redact(failure or answered.reason),
            "lasting": (trajectory.error or {}).get("kind") in PERMANENT,
            "sources": [_shown_source(answered, each) for each in answered.mails],
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
    """A mail's text, and where the sentence or else the words are in it."""
    body = clean(text)
    # As `split_sentences` has joined it: lines, and the marks of quoted ones.
    pattern = r"[\s>]+".join(map(re.escape, clean(sentence).split()))
    found = re.search(pattern, body) if pattern else None
    marks = [found.span()] if found else match_spans(words, body)[:_MARKS] if words else []
    return {"body": body, "marks": marks}


def _shown_source(answered: Answered, email: Email) -> dict[str, Any]:
    shown = {**email.to_json(), "body": "", "sentence": answered.sentence_of(email)}
    texts = [each.text for each in answered.passages if each.email == email]
    if texts:
        snippet = clean("\n...\n".join(texts))
        marks = match_spans(informative_words(answered.question), snippet)
        shown |= {"snippet": snippet, "marks": marks}
    return shown


def _plain(error: Exception) -> dict[str, Any]:
    if isinstance(error, UserError):
        return {"error": one_line(str(error))}
    if isinstance(error, ValidationError | json.JSONDecodeError):
        return {"error": "the page sent what can't be read; reload it"}
    return {"error": one_line(f"internal error: {redact(f'{type(error).__name__}: {error}')}")}


def make_app(desk: Desk) -> Starlette:
    """The page and what it asks for, as an app without any guard."""
    methods: list[Callable[..., Any]]
    methods = [desk.start, desk.inbox, desk.search, desk.mail, desk.rate, desk.talks, desk.talk]
    by_name = {f"/call/{each.__name__}": validate_call(each) for each in methods}

    def page(request: Request) -> Response:
        return responses.FileResponse(Path(__file__).with_name(request.url.path[1:] or "page.html"))

    async def call(request: Request) -> Response:
        try:
            method = by_name[request.url.path]
            answer = clean_json(await run_in_threadpool(method, **await request.json()))
        except Exception as error:  # noqa: BLE001 - a person reads it on the page
            answer = _plain(error)
        return responses.JSONResponse(answer)

    async def ask(request: Request) -> Response:
        lines = _told(desk, await request.body())
        return responses.StreamingResponse(lines, media_type="application/jsonl")

    def attached(request: Request) -> Response:
        given: dict[str, Any] = dict(request.query_params)
        try:
            found = validate_call(desk.attached)(**given)
        except (UserError, ValidationError, TypeError, LookupError):
            gone = "That file is not here, or was too large to keep.\n"
            return responses.PlainTextResponse(gone, 404)
        # It is saved, never shown: a browser would run what is in it.
        named = f"attachment; filename*=utf-8''{quote(safe_name(found))}"
        kind = "application/octet-stream"
        return Response(found.data, headers={"Content-Disposition": named}, media_type=kind)

    routes = [Route(path, page) for path in ("/", "/page.css", "/page.js")]
    routes += [Route(path, call, methods=["POST"]) for path in by_name]
    routes += [Route("/ask", ask, methods=["POST"]), Route("/attached", attached)]
    return Starlette(routes=routes)


async def _told(desk: Desk, given: bytes) -> AsyncIterator[str]:
    """The steps of a question and its answer, a line each. It stops when the page goes away."""
    loop, stopped = asyncio.get_running_loop(), threading.Event()
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def tell(event: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(events.put_nowait, event)

    def work() -> None:
        try:
            ask = validate_call(desk.ask)
            tell({"answer": ask(**json.loads(given), tell=tell, stopped=stopped.is_set)})
        except asyncio.CancelledError:
            tell({"error": "stopped"})
        except Exception as error:  # noqa: BLE001 - a person reads it on the page
            tell(_plain(error))

    # No daemon: Python's end would cut it off within DuckDB, and abort.
    threading.Thread(target=work).start()
    try:
        event: dict[str, Any] = {}
        while not event.keys() & {"answer", "error"}:
            event = await events.get()
            yield json.dumps(clean_json(event)) + "\n"
    finally:
        stopped.set()


app = Typer(rich_markup_mode=None, add_completion=False)


# ---- Who may use the page: the one browser that came with the printed address.

LOOPBACK = "127.0.0.1"
HEADERS = toml_table(__package__, "headers.toml")
_NO_ENTRY = "Open the address that art-e web printed; it works once. A new run prints another.\n"


class Guard:
    """Lets requests of the one browser through to an app, and adds `HEADERS` to every response.
    Everything else gets one line: another site that had its name point here (the Host header), a
    form on another site (Origin), and another user of this machine (the cookie). All lies below a
    secret path, to which the cookie belongs: browsers send cookies to every port of a host, and
    what another user has listening there must not learn this one."""

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
        """What to answer instead of the page; None lets the request through."""
        host = request.headers.get("host", "")
        if host not in self._hosts:
            return responses.PlainTextResponse("There is nothing under this name.\n", 403)
        if request.method == "POST" and request.headers.get("origin") != f"http://{host}":
            return responses.PlainTextResponse("Only the page itself may ask.\n", 403)
        if not request.url.path.startswith(self._path):
            return responses.PlainTextResponse(_NO_ENTRY, 403)
        if self._token is not None and _same(request.query_params.get("token"), self._token):
            self._token = None
            # No redirect: a browser that comes from a file would not send the cookie after one.
            entered = responses.HTMLResponse('<meta http-equiv="refresh" content="0; url=./">')
            entered.set_cookie(
                self._cookie, self._session, path=self._path, httponly=True, samesite="strict"
            )
            return entered
        if not _same(request.cookies.get(self._cookie), self._session):
            return responses.PlainTextResponse(_NO_ENTRY, 403)
        return None


def _same(given: str | None, secret: str) -> bool:
    return given is not None and secrets.compare_digest(given.encode(), secret.encode())


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
        bool, Option("--no-browser", help="Print the address, and open no browser.")
    ] = False,
) -> None:
    """Ask and search an inbox on a page in the browser, until Ctrl-C."""
    with opened_inbox(db, inbox, as_of, junk=junk) as (file, opened):
        options = model_options.Options(
            max_cost=max_cost, junk=junk, timeout=timeout, retries=retries
        )
        desk = Desk(file, opened, model or default_model(), options)
        with explained(f"can't listen on port {port}", "choose another with --port"):
            listening = socket.create_server((LOOPBACK, port or 0))
        with listening, NamedTemporaryFile("w", suffix=".html") as opening:
            guard = Guard(make_app(desk), listening.getsockname()[1])
            print_line(guard.address)
            sys.stdout.flush()
            note("opens once, in one browser on this machine; Ctrl-C ends it")
            if sys.stdout.isatty() and not no_browser:
                # Other users can read a browser's command line, but not this file (mode 0600).
                opening.write(f'<meta http-equiv="refresh" content="0; url={guard.address}">')
                opening.flush()
                page = Path(opening.name).as_uri()
                # Some browsers return only when they end.
                threading.Thread(target=webbrowser.open, args=[page], daemon=True).start()
            config = uvicorn.Config(
                guard, lifespan="off", ws="none", server_header=False, timeout_graceful_shutdown=1,
                # Without a log: it would hold the token.
                log_config=None, log_level="critical", access_log=False,
            )  # fmt: skip
            uvicorn.Server(config).run([listening])
