"""`art-e web`: access, requests, and the page in a real browser."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from art_e.ratings import read_ratings
from art_e.web.server import HEADERS
from tests.browser import Visit, pale_texts
from tests.builders import WAIT_S, answer, make_inbox, raw, read, search, with_files
from tests.command_line import ANN, BOB, HOSTILE_ID, LEASE_ID, Process, assert_safe
from tests.processes import start
from tests.provider import NEVER_S, Reply, Request, openai, rate_limited, refuses, says

EVIL = "<script>window.pwned = 1</script><img src=http://evil.example/x onerror='pwned = 1'>"
QUESTION = "When does the warehouse lease end?"
# On busy cores a model's client takes seconds to load.
expect.set_options(timeout=1000 * WAIT_S)


@contextmanager
def served(db: Path, home: Path, *options: str) -> Iterator[str]:
    """Run `art-e web`, and yield the address that it prints."""
    environment = {"ART_E_HOME": str(home)}
    with start(["web", "--db", db, *options], environment, stderr=None) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
            assert process.wait(WAIT_S) == -signal.SIGTERM


class Client(httpx.Client):
    """A client with the cookie of a browser that opened the address."""

    def __init__(self, address: str) -> None:
        page = address.partition("?")[0]
        self.home = page.rsplit("/", 2)[0]
        super().__init__(base_url=page, timeout=WAIT_S, trust_env=False)
        assert 'url=./"' in self.get(address).text

    def call(self, name: str, **fields: Any) -> Any:
        return self.post(f"/call/{name}", json=fields, headers={"Origin": self.home}).json()

    def ask(self, question: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the lines of an answer."""
        fields = {"question": question, "inbox": ANN, "conversation": "", **fields}
        lines = self.post("/ask", json=fields, headers={"Origin": self.home}).text
        return [json.loads(line) for line in lines.splitlines()]

    def read(self, inbox: str, message_id: str) -> Any:
        return self.call("mail", inbox=inbox, message_id=message_id, whole=True)


@contextmanager
def entering(db: Path, home: Path, *options: str) -> Iterator[Client]:
    with served(db, home, *options) as address, closing(Client(address)) as client:
        yield client


@pytest.fixture
def client(owned_db: Path, home: Path) -> Iterator[Client]:
    with entering(owned_db, home, "--as-of", "2001-05-01") as client:
        yield client


def test_address_admits_one_browser_once(owned_db: Path, home: Path) -> None:
    with served(owned_db, home) as address, httpx.Client(trust_env=False) as first:
        page = address.partition("?")[0]
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", page)
        assert first.get(page).status_code == 403
        assert first.get(f"{page}?token=wrong").status_code == 403
        entered = first.get(address)
        assert entered.status_code == 200 and 'url=./"' in entered.text
        cookie = entered.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        # Servers on other ports have no page below this path, so they don't get the cookie.
        assert f"path={urlsplit(page).path.lower()};" in cookie
        assert first.get(urljoin(page, "/")).status_code == 403
        assert first.get(page).status_code == 200
        refused = httpx.get(address, trust_env=False)
        assert (refused.status_code, refused.text.count("\n")) == (403, 1)
        assert "art-e web" in refused.text


def test_other_hosts_and_origins_are_rejected(client: Client) -> None:
    port = client.home.rpartition(":")[2]
    fields = {"inbox": ANN, "query": "lease"}
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil:{port}"):
        assert client.get("/", headers={"Host": host}).status_code == 403
    others = ("http://evil.example", "null", f"https://127.0.0.1:{port}", client.home + "0")
    for head in ({}, *({"Origin": each} for each in others)):
        assert client.post("/call/search", json=fields, headers=head).status_code == 403
    headers = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
    assert "hits" in client.post("/call/search", json=fields, headers=headers).json()


def test_every_response_has_security_headers(client: Client) -> None:
    origin = {"Origin": client.home}
    responses = [
        *(client.get(each) for each in ("/", "/page.js", "/page.css", "/nothing", "/ask", "/a/b")),
        client.get("/", headers={"Host": "evil.example"}),
        client.post("/call/start", json={}, headers=origin),
        client.post("/call/nothing", json={}, headers=origin),
        client.post("/ask", content=b"no JSON", headers=origin),
        client.post("/ask", content=b"{}"),
        httpx.get(client.home, trust_env=False),
    ]
    codes = [each.status_code for each in responses]
    assert codes == [200, 200, 200, 404, 405, 404, 403, 200, 404, 200, 403, 403]
    for response in responses:
        assert {name: response.headers.get(name) for name in HEADERS} == HEADERS
    assert sum(len(each.content) for each in responses[:3]) < 60_000


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_server(owned_db: Path, process: Process) -> None:
    with openai(lambda _: says("late", delay_s=NEVER_S)):
        running = process("web", "--db", owned_db, "--model", "o3")
        assert running.stdout is not None
        fields = {"question": QUESTION, "inbox": ANN, "conversation": ""}
        with (
            closing(Client(running.stdout.readline().strip())) as client,
            client.stream("POST", "/ask", json=fields, headers={"Origin": client.home}) as steps,
        ):
            assert any("waiting for openai/o3" in line for line in steps.iter_lines())
            running.send_signal(signal.SIGINT)
            _, stderr = running.communicate(timeout=WAIT_S)
    assert running.returncode == 130, stderr
    assert "Traceback" not in stderr and "token" not in stderr


def test_other_inboxes_and_later_mail_are_hidden(client: Client) -> None:
    assert "March 31" in client.read(ANN, LEASE_ID)["mails"][0]["body"]
    for inbox, message_id in ((ANN, "<lease.2@harbor.example>"), (BOB, HOSTILE_ID), (ANN, "<no>")):
        [error] = client.read(inbox, message_id).values()
        assert error == f"that mail is not in the inbox of {inbox}"
    hits = client.call("search", inbox=ANN, query="lease OR lunch")["hits"]
    assert {hit["message_id"] for hit in hits} == {LEASE_ID, "<lunch.1@harbor.example>"}
    # Text for the page is cleaned.
    [hit] = client.call("search", inbox=ANN, query="zebra")["hits"]
    [mail] = client.read(ANN, HOSTILE_ID)["mails"]
    assert_safe("".join(map(str, [*hit.values(), *mail.values()])))


def test_errors_are_one_line(client: Client) -> None:
    ask = {"Origin": client.home}
    errors = {
        "no letter or digit": client.call("search", inbox=ANN, query="..."),
        "reload it": client.call("search", inbox=ANN),
        "open its conversation": client.call("rate", run="none", rating="good", right=""),
        "invalid request": client.post("/ask", content=b"{}", headers=ask).json(),
    }
    for part, result in errors.items():
        assert part in result["error"] and not re.search("\n|internal error", result["error"])


def test_answer_arrives_in_parts(owned_db: Path, home: Path) -> None:
    text = "It ends on March 31, 2002"
    replies = [says(None, answer(f"{text}\x1b]0;owned\x07", LEASE_ID))]
    with openai(replies), entering(owned_db, home, "--model", "openai/gpt-4.1") as client:
        *events, last = client.ask("When?")
    parts = [each["arriving"] for each in events if "arriving" in each]
    assert len(set(parts)) > 3 and parts[-1] == last["answer"]["answer"] == text
    # Half of an escape sequence is harmless text, which disappears with the rest.
    assert all(text.startswith(each[: len(text)]) and "\x1b" not in each for each in parts)


def test_conversations_resume_after_a_restart(owned_db: Path, home: Path) -> None:
    """Only those about this inbox and day are listed."""
    early = ("--as-of", "2001-05-01")
    with entering(owned_db, home, *early) as client:
        first = client.ask(QUESTION)[-1]["answer"]
        name = first["conversation"]
        assert client.ask("And the zebra?", conversation=name)[-1]["answer"]["sources"]
        client.call("rate", run=first["run"], rating="bad", right="Never")
    with entering(owned_db, home) as client:
        later = client.ask(QUESTION)[-1]["answer"]["conversation"]
        [row] = client.call("conversations", inbox=ANN)["conversations"]
        assert row["conversation"] == later != name
        assert "this file and day" in client.call("conversation", conversation=name)["error"]
    with entering(owned_db, home, *early) as client:
        [row] = client.call("conversations", inbox=ANN)["conversations"]
        assert {"conversation": name, "title": QUESTION, "questions": 2}.items() <= row.items()
        again, _ = client.call("conversation", conversation=name)["entries"]
        rated = {"rating": "bad", "right": "Never"}
        assert again == {**first, "took": again["took"], "rated": rated}
        assert client.call("conversations", inbox=BOB) == {"conversations": []}
        for inbox, other in ((BOB, name), (ANN, later), (ANN, "x")):
            [refused] = client.ask("Who?", inbox=inbox, conversation=other)[-1:]
            assert "begin a new one" in refused["error"]
        assert client.ask("Who?", conversation=name)[-1]["answer"]["conversation"] == name
        third = client.call("conversation", conversation=name)["entries"][2]
    config = json.loads((home / "runs" / third["run"] / "config.json").read_text())
    assert [question for question, _ in config["talk"]] == [QUESTION, "And the zebra?"]


@contextmanager
def visit(browser: Browser, db: Path, home: Path, *options: str, **window: Any) -> Iterator[Page]:
    """Open the page; check at the end that it logged no error and fetched only from here."""
    opened = Visit(browser, loopback=True, **window)
    with served(db, home, *options) as address, closing(opened):
        opened.page.goto(address)
        expect(opened.page.locator("#about")).to_contain_text("mails")
        yield opened.page
        assert opened.complaints == []
        assert {each.rpartition(":")[0] for each in opened.fetched} == {"http://127.0.0.1"}


def ask(page: Page, question: str, box: str = "Question") -> None:
    page.get_by_role("textbox", name=box).fill(question)
    page.keyboard.press("Enter")


FOUND = answer("It ends on March 31, 2002", LEASE_ID)
SCRIPT = [
    says(None, search("warehouse", "lease")), rate_limited("0"), says(None, read("m2")),
    says(None, FOUND), says(None, answer("Bob", LEASE_ID)), says(None, answer(None)),
    says(None, FOUND),
]  # fmt: skip


def test_page_shows_a_conversation(browser: Browser, owned_db: Path, home: Path) -> None:
    replies = list(SCRIPT)

    def reply(request: Request) -> Reply:
        slow = request.messages[1]["content"].startswith("Something slow")
        return says("too late", delay_s=NEVER_S) if slow else replies.pop(0)

    with openai(reply) as provider:
        with visit(browser, owned_db, home, "--model", "o3") as page:
            expect(page.locator("#notice")).to_contain_text("Mail text stays on this machine")
            ask(page, QUESTION)
            entries = page.locator("article")
            expect(entries.locator(".answer")).to_have_text("It ends on March 31, 2002")
            expect(entries.locator(".arriving")).to_have_count(0)
            expect(entries.locator("summary")).to_contain_text("3 turns, ")
            entries.locator("summary").click()
            expect(entries.locator(".steps")).to_contain_text('searched "warehouse lease"')
            expect(entries.locator(".steps")).to_contain_text("2 of 3")
            # The source opens with its sentence highlighted.
            page.get_by_role("button", name="Warehouse lease").click()
            mail = page.get_by_role("complementary")
            expect(mail.locator("mark")).to_have_text("The warehouse lease ends on March 31, 2002.")
            expect(mail).to_contain_text("Bob Berg <bob@harbor.example>")
            entries.get_by_role("button", name="Good").click()
            expect(entries.get_by_role("status")).to_have_text("Kept: good")
            # A follow-up has the history; a bad answer is corrected.
            ask(page, "Who said so?")
            second = entries.nth(1)
            second.get_by_role("button", name="Bad").click()
            second.get_by_role("textbox").fill("Ann")
            page.keyboard.press("Enter")
            expect(second.get_by_role("status")).to_have_text("Kept: bad, Ann is right")
            # While a question runs, search works; the button stops the question.
            ask(page, "Something slow")
            expect(entries.nth(2).locator(".steps")).to_contain_text("waiting for openai/o3")
            page.get_by_text("Search", exact=True).first.click()
            ask(page, "noodles", "Search")
            expect(page.locator("#results mark")).to_have_text("Noodles")
            page.get_by_text("Ask", exact=True).first.click()
            page.get_by_role("button", name="Stop").click()
            expect(entries.nth(2)).to_contain_text("Stopped")
            ask(page, "And the weather?")
            expect(entries.nth(3).locator(".answer")).to_have_text("I don’t know")
            # A reload keeps the conversation, and the history reopens it.
            page.reload()
            expect(entries).to_have_count(4)
            expect(entries.nth(2)).to_contain_text("Stopped")
            page.get_by_role("button", name="New conversation").click()
            expect(entries).to_have_count(0)
            page.get_by_role("button", name="History").click()
            page.get_by_role("dialog").get_by_role("button", name=f"{QUESTION} ").click()
            expect(entries).to_have_count(4)
            statuses = ["Kept: good", "Kept: bad, Ann is right"]
            expect(entries.get_by_role("status")).to_have_text([*statuses, ""])
            page.go_back()
            expect(entries).to_have_count(0)
            ask(page, QUESTION)
            expect(entries.locator(".answer")).to_have_text("It ends on March 31, 2002")
        questions = [each.messages[1]["content"] for each in provider.requests]
    follow_up = next(each for each in questions if each.startswith("Who said so?"))
    assert f"- {QUESTION}\n  It ends on March 31, 2002" in follow_up
    assert questions[-1] == QUESTION
    ratings = [(each.rating, each.question, each.right_answer) for each in read_ratings()]
    assert ratings == [("good", QUESTION, None), ("bad", "Who said so?", "Ann")]


def test_page_shows_failures(browser: Browser, owned_db: Path, home: Path) -> None:
    script = [
        refuses(401, "Incorrect API key"), refuses(500, "Down"),
        says(None, answer("Ann", LEASE_ID)), *[says("It ends in June.")] * 2,
    ]  # fmt: skip
    options = ("--model", "o3", "--retries", "0")
    with openai(script), served(owned_db, home, *options) as address:
        page = Visit(browser, loopback=True).page
        page.goto(address)
        expect(page.locator("#about")).to_contain_text("mails")
        entries, failure = page.locator("article"), page.locator("article [role=alert]").last
        again = page.get_by_role("button", name="Try again")
        ask(page, QUESTION)
        line = "Auth: openai/o3: 401: Incorrect API key; check the key, in the environment or .env."
        expect(failure).to_contain_text(line)
        expect(again).to_have_count(0)
        ask(page, "Who?")
        expect(failure).to_contain_text("Provider: openai/o3: 500: Down; try again.")
        expect(page.get_by_role("button", name="Good")).to_have_count(0)
        again.click()
        expect(entries.locator(".answer")).to_have_text("Ann")
        ask(page, "When?")
        expect(entries.last.locator(".unsourced")).to_contain_text("It ends in June.")
        expect(page.get_by_role("button", name="Good")).to_have_count(1)
        page.reload()
        expect(entries).to_have_count(3)
        expect(entries.locator(".answer")).to_have_text("Ann")
    ask(page, "Still there?")
    expect(failure).to_contain_text("art-e web has ended; start it again")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1400, True)])
def test_page_fits(browser: Browser, tmp_path: Path, home: Path, width: int, dark: bool) -> None:
    """With a mail full of markup, and words without a place to break."""
    file = "v" * 80
    body = f"The zebra lease ends on May 3. {EVIL} {'w' * 300}\n"
    reply = {"subject": f"Re: Zebra {EVIL}", "date": "Tue, 7 Jan 2020 09:00:00 +0000"}
    headers: dict[str, Any] = {"sender": f"Bob Berg <{BOB}>", "to": ANN, "body": body}
    mails = [raw("<1@x>", subject=f"Zebra {EVIL}", **headers), raw("<2@x>", **headers, **reply)]
    mails = [with_files(each, {f"{file}.html": EVIL.encode()}) for each in mails]
    db = tmp_path / "hostile.duckdb"
    make_inbox(db, mails, owner=ANN)
    with visit(browser, db, home, width=width, height=844, dark=dark) as page:

        def check() -> None:
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
            assert pale_texts(page) == []

        check()
        expect(page.locator("#notice")).to_contain_text("nothing leaves this machine")
        ask(page, "When does the zebra lease end?")
        expect(page.locator("article .label")).to_contain_text("Best passages")
        expect(page.locator("article .card").first).to_contain_text("May 3")
        check()
        page.keyboard.press("Escape")
        page.keyboard.type("1")
        mail = page.get_by_role("complementary")
        expect(mail).to_contain_text(EVIL)
        with page.expect_download() as saved:
            mail.get_by_role("link", name=file).click()
        assert saved.value.suggested_filename == f"{file}.html"
        assert saved.value.path().read_bytes() == EVIL.encode()
        check()
        page.keyboard.press("t")
        expect(mail.locator("section")).to_have_count(2)
        check()
        # The second mail's quote of the first is folded.
        expect(mail.locator(".body").last).to_have_text("[earlier text left out]")
        mail.get_by_role("button", name="Show quoted text").click()
        expect(mail.locator(".body").last).to_contain_text(EVIL)
        page.keyboard.press("Escape")
        page.keyboard.type("/zebra\n")
        expect(page.locator("#results .card")).to_have_count(2)
        ask(page, "zebra foo:bar", "Search")
        expect(page.get_by_role("alert")).not_to_be_empty()
        check()
        page.keyboard.press("Escape")
        page.keyboard.type("?")
        expect(page.get_by_role("dialog")).to_contain_text("older_than:")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()
        box = page.get_by_role("combobox", name="Inbox")
        box.fill("nobody@x.example")
        box.press("Tab")
        expect(page.get_by_role("alert")).to_contain_text("no inbox 'nobody@x.example'")
        expect(box).to_have_value(ANN)
        box.fill(BOB)
        box.press("Tab")
        expect(page.locator("#about")).to_contain_text(BOB)
        expect(page.locator("article")).to_have_count(0)
        assert page.evaluate("() => [window.pwned ?? 0, document.images.length]") == [0, 0]
