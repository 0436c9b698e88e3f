"""`art-e web`: the page on which people ask their own mail, for one browser on this machine.

    art-e web --inbox me@example.com

The page sends JSON and gets JSON; a question gets one line of JSON for each step and one for the
answer. Mail and models' words are untrusted text: they leave here cleaned, as strings, and the page
shows them as text.
"""

import asyncio
import json
import re
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from functools import cache, lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import typer
import uvicorn
from pydantic import BaseModel, Field, ValidationError, validate_call
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from typer import Option

from art_e.cli.ask import why_no_answer
from art_e.cli.conversation import COMPLETED, Conversation, policy_of, supporting_sentence
from art_e.cli.doctor import model_checks
from art_e.cli.mail import places_of, searched_query
from art_e.cli.model_options import MaxCostOption
from art_e.cli.options import (
    AllOption,
    AsOfOption,
    DbOption,
    InboxOption,
    chosen_address,
    chosen_db,
    parse_day,
)
from art_e.cli.output import clean, example, note, one_line, print_line
from art_e.config import setting
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.inbox.query import OPERATORS
from art_e.message import ChatMessage
from art_e.models.base import OFFLINE, Policy, PolicyStep
from art_e.models.model import Model, full_name
from art_e.models.nearby import nearby
from art_e.privacy import redact
from art_e.web.guard import LOOPBACK, Guard

_HITS = 30
_MARKS = 200  # marked words of a mail
_ATTACHED = re.compile(
    r"^\[Attachment: ([^\n]*) \([^\n()]*\)\]", re.MULTILINE
)  # as ingest notes them

Words = Annotated[str, Field(max_length=10_000)]
Tell = Callable[[dict[str, Any]], None]


class Asked(BaseModel):
    """A question as the page sends it, with what was said before."""

    question: Words
    inbox: Words
    model: Words
    talk: Annotated[list[list[Words]], Field(max_length=3)]


class Stoppable:
    """A policy that another thread can stop: its call, and with it the episode, is cancelled."""

    def __init__(self) -> None:
        self.policy: Policy | None = None
        self._lock = threading.Lock()
        self._stopped = False
        self._cancel: Callable[[], object] | None = None

    @property
    def model(self) -> str:
        """The name under which results are reported."""
        return self._chosen.model

    @property
    def settings(self) -> dict[str, Any]:
        """Sampling settings, as trajectories record them."""
        return self._chosen.settings

    @property
    def _chosen(self) -> Policy:
        assert self.policy is not None
        return self.policy

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """The next message of the policy."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with self._lock:
            if self._stopped:
                raise asyncio.CancelledError
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            return await self._chosen.act(messages, tools)
        finally:
            with self._lock:
                self._cancel = None

    def stop(self) -> None:
        """Cancel the call that runs, and refuse further ones."""
        with self._lock:
            self._stopped = True
            if self._cancel is not None:
                self._cancel()


class Desk:
    """What the page can ask for. Each method takes what the page sends, and returns JSON.

    Its threads share the file, which gives each of them a cursor of its own. Questions take turns,
    and nothing else waits for them.
    """

    def __init__(self, file: InboxFile, inbox: Inbox, model: str, max_cost: float | None) -> None:
        self._file, self._inbox, self._model, self._today = file, inbox, model, inbox.as_of
        self._junk: InboxFile | None = None
        self._turn = threading.Lock()
        self._answered: dict[str, Conversation] = {}
        self.policy = cache(lambda model: policy_of(model, max_cost))
        self.policy(model)
        self._opened = lru_cache(8)(self._open)

    def _open(self, file: InboxFile, address: str) -> Inbox:
        return file.open_inbox(address, self._today)

    def close(self) -> None:
        """Close the file that a search of spam and trash opened."""
        if self._junk is not None:
            self._junk.close()

    @validate_call
    def start(self) -> dict[str, Any]:
        """What the page shows at first."""
        return {
            **self.inbox(self._inbox.address),
            **self.model(self._model),
            "addresses": [one_line(each.address) for each in self._file.inboxes(COMPLETED)],
            "operators": OPERATORS,
        }

    @validate_call
    def inbox(self, inbox: Words) -> dict[str, Any]:
        """An inbox by its address."""
        opened = self._opened(self._file, inbox.strip().lower())
        until = None if self._today is None else self._today.isoformat()
        return {"inbox": opened.address, "mails": len(opened), "as_of": until}

    @validate_call
    def models(self) -> list[dict[str, Any]]:
        """The models that can be asked from here, and what others at hand need first."""
        checks = [each for each in model_checks(online=False) if each.state == "ok"]
        ready = [each.name.removeprefix("model ") for each in checks]
        near = {each.model: each.export for each in nearby()}
        names = {OFFLINE: "", **{each: "" for each in ready if each.count(":") != 1}, **near}
        return [{"model": one_line(name), "first": first} for name, first in names.items()]

    @validate_call
    def model(self, model: Words) -> dict[str, Any]:
        """A model by its name, and where mail text goes if it is asked."""
        name = full_name(model)
        stays = "mail text stays in this process"
        if name == OFFLINE:
            stays = "no model: the best passages, and nothing leaves this machine"
        return {"model": name, "notice": Model(name).notice or stays}

    @validate_call
    def search(self, inbox: Words, query: Words) -> dict[str, Any]:
        """The mails that match, with the places of the words that were searched."""
        parsed = searched_query(query, self._today)
        if parsed.junk and self._junk is None:
            self._junk = InboxFile(self._file.path, junk=True)
        file = self._junk if parsed.junk else self._file
        opened = self._opened(file, inbox)
        hits = opened.search(parsed.words, query=parsed, max_results=_HITS)
        sizes = opened.thread_sizes([hit.message_id for hit in hits])
        shown = [
            {**_cleaned(hit.to_json()), "thread": size, "marks": places_of(parsed.words, snippet)}
            for hit, size in zip(hits, sizes, strict=True)
            for snippet in [clean(hit.snippet)]
        ]
        return {"hits": shown, "words": parsed.words}

    @validate_call
    def mail(
        self, inbox: Words, message_id: Words, sentence: Words, words: list[Words], whole: bool
    ) -> dict[str, Any]:
        """A mail, or its `whole` conversation, with the sentence or else the words marked."""
        for file in filter(None, (self._file, self._junk)):
            opened = self._opened(file, inbox)
            if (email := opened.read(message_id)) is not None:
                mails = opened.thread(email.message_id) if whole else [email]
                [size] = opened.thread_sizes([email.message_id])
                shown = [
                    _shown_mail(each, sentence if each == email else "", words) for each in mails
                ]
                return {"mails": shown, "size": size, "opened": email.message_id}
        raise UserError(f"that mail is not in the inbox of {inbox}")

    def ask(self, asked: Asked, tell: Tell, policy: Stoppable) -> dict[str, Any]:
        """The answer to a question; `tell` gets the steps."""
        if not re.search(r"\w", asked.question):
            raise UserError("the question is empty; type one")
        if not self._turn.acquire(blocking=False):
            tell({"step": "waiting for another question to end"})
            self._turn.acquire()
        try:
            if asked.model != OFFLINE:
                tell({"step": f"loading what calls {one_line(asked.model)}"})
            policy.policy = self.policy(asked.model)
            opened = self._opened(self._file, asked.inbox)
            conversation = Conversation(self._file, opened, policy, self._today, asked.talk)
            conversation.ask(asked.question, lambda step: tell({"step": one_line(step)}))
        finally:
            self._turn.release()
        return self._shown_answer(asked.question, conversation)

    def _shown_answer(self, question: str, conversation: Conversation) -> dict[str, Any]:
        run, answered = conversation.last()
        self._answered[run.id] = conversation
        trajectory = answered.trajectory
        said = {each.email.message_id: each.text for each in answered.passages}
        answer = trajectory.final_answer or ""
        sources = []
        for email in conversation.sources:
            sentence = said.get(email.message_id) or supporting_sentence(email, question, answer)
            head = {key: value for key, value in email.to_json().items() if key != "body"}
            sources.append({**_cleaned(head), "sentence": clean(sentence or "")})
        without = why_no_answer(trajectory)
        if trajectory.error is not None:
            without = f"{without}: {redact(trajectory.error['message'])}"
        return {
            "run": run.id,
            "kind": answered.kind,
            "answer": clean(answer),
            "without": without and one_line(without),
            "sources": sources,
            "took": one_line(conversation.took),
            "talk": conversation.talk,
        }

    @validate_call
    def rate(self, run: Words, rating: Literal["good", "bad"], right: Words) -> dict[str, Any]:
        """Keep a rating of an answer."""
        if run not in self._answered:
            raise UserError("that answer is of an earlier art-e web; rate it with: art-e rate")
        self._answered[run].rate(rating, right.strip())
        return {"kept": rating}


def _cleaned(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a mail or a hit, each text on one line; ids stay as the file has them."""

    def line(value: Any) -> Any:
        if isinstance(value, list):
            return [one_line(each) for each in value]
        return one_line(value) if isinstance(value, str) else value

    return {name: value if name == "message_id" else line(value) for name, value in fields.items()}


def _shown_mail(email: Email, sentence: str, words: list[str]) -> dict[str, Any]:
    body = clean(email.body)
    # As `split_sentences` has joined it: lines, and the marks of quoted ones.
    pattern = r"[\s>]+".join(map(re.escape, sentence.split()))
    found = re.search(pattern, body) if pattern else None
    marks = [found.span()] if found else places_of(words, body)[:_MARKS] if words else []
    attached = _ATTACHED.findall(body)
    return {**_cleaned(email.to_json()), "body": body, "marks": marks, "attachments": attached}


def _plain(error: Exception) -> str:
    """An error as one line."""
    if isinstance(error, UserError):
        return one_line(str(error))
    if isinstance(error, ValidationError):
        return "the page sent what can't be read; reload it"
    return one_line(f"internal error: {redact(f'{type(error).__name__}: {error}')}")


def make_app(desk: Desk) -> Starlette:
    """The page and what it asks for, as an app without any guard."""
    methods: dict[str, Callable[..., Any]] = {
        each.__name__: each
        for each in (desk.start, desk.inbox, desk.models, desk.model, desk.search, desk.mail,
                     desk.rate)
    }  # fmt: skip
    kinds = {"page.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
    pages = {name: files("art_e.web").joinpath(name).read_bytes() for name in kinds}

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "page.html")
        if name not in kinds:
            return Response("There is no such page.\n", 404, media_type="text/plain")
        return Response(pages[name], media_type=kinds[name])

    async def call(request: Request) -> Response:
        try:
            method = methods[request.path_params["name"]]
            return JSONResponse(await run_in_threadpool(method, **await request.json()))
        except Exception as error:  # noqa: BLE001 - a person reads it on the page
            # As a success: the browser's console would note a failure.
            return JSONResponse({"error": _plain(error)})

    async def ask(request: Request) -> Response:
        given = await request.body()
        return StreamingResponse(_told(desk, given), media_type="application/x-ndjson")

    return Starlette(
        routes=[
            Route("/", page),
            Route("/ask", ask, methods=["POST"]),
            Route("/call/{name}", call, methods=["POST"]),
            Route("/{name}", page),
        ]
    )


async def _told(desk: Desk, given: bytes) -> AsyncIterator[str]:
    """The steps of a question and its answer, a line each. It stops when the page goes away."""
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    policy = Stoppable()

    def tell(event: dict[str, Any]) -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(events.put_nowait, event)

    def work() -> None:
        try:
            tell({"answer": desk.ask(Asked.model_validate_json(given), tell, policy)})
        except asyncio.CancelledError:
            tell({"error": "stopped"})
        except Exception as error:  # noqa: BLE001 - a person reads it on the page
            tell({"error": _plain(error)})

    threading.Thread(target=work, daemon=True).start()
    try:
        event: dict[str, Any] = {}
        while not event.keys() & {"answer", "error"}:
            event = await events.get()
            yield json.dumps(event) + "\n"
    finally:
        policy.stop()


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=example("art-e web", "art-e web --inbox me@example.com --model o3"))
def web(
    inbox: InboxOption = None,
    model: Annotated[
        str | None, Option(metavar="MODEL", parser=full_name, help="As for art-e ask.")
    ] = None,
    as_of: AsOfOption = None,
    junk: AllOption = False,
    max_cost: MaxCostOption = None,
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
    today = parse_day(as_of, "--as-of")
    with InboxFile(chosen_db(db), junk=junk) as file:
        opened = file.open_inbox(chosen_address(file, inbox, db), today)
        desk = Desk(file, opened, model or setting("model") or OFFLINE, max_cost)
        try:
            listening = socket.create_server((LOOPBACK, port or 0))
        except OSError as error:
            how = f"can't listen on port {port}: {error.strerror}; choose another with --port"
            raise UserError(how) from None
        with listening, closing(desk):
            guard = Guard(make_app(desk), listening.getsockname()[1])
            print_line(guard.address)
            sys.stdout.flush()
            note("opens once, in one browser on this machine; Ctrl-C ends it")
            if sys.stdout.isatty() and not no_browser:
                # Some browsers return only when they end.
                threading.Thread(target=webbrowser.open, args=[guard.address], daemon=True).start()
            # Without a log: it would hold the token.
            config = uvicorn.Config(
                guard,
                lifespan="off",
                ws="none",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
            uvicorn.Server(config).run([listening])
