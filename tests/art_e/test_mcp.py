"""`art-e mcp`: what it promises a client, over stdin and stdout of a real process."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters, stdio_client, types

from art_e import __version__
from art_e.cli.mcp import PAGE_CHARS, answer_call, mail_server
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.quotations import LEFT_OUT
from art_e.tools import NAMED_RECIPIENTS
from tests import builders
from tests.builders import BOB, LEASE, LONG, QUESTION, WAIT_S, date_header, new_file, raw
from tests.command_line import ANN, HOSTILE_ID, Process, assert_safe, hostile_mail
from tests.documented import ROOT

AS_OF = str(QUESTION.query_date)
CLIENT = {"name": "test", "version": "1"}
RPC = {"jsonrpc": "2.0"}
Mode = Literal["legacy", "auto"]
Server = subprocess.Popen[str]


@pytest.fixture
def inbox(inbox_file: InboxFile) -> Inbox:
    return inbox_file.open_inbox(BOB, QUESTION.query_date)


def said(result: types.CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text


def facts(result: types.CallToolResult) -> dict[str, Any]:
    """Return the structured content, which the text must repeat."""
    content = result.structured_content
    assert isinstance(content, dict) and json.loads(said(result)) == content
    return content


def call(inbox: Inbox, name: str, **arguments: Any) -> dict[str, Any]:
    return facts(answer_call(inbox, name, arguments))


@pytest.mark.parametrize(("mode", "protocol"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_a_session(inbox_file: InboxFile, inbox: Inbox, mode: Mode, protocol: str) -> None:
    """With the handshake over stdin and stdout of a process, without it in this process."""
    values = {"--inbox": BOB, "--db": str(inbox_file.path)}
    command = ["-m", "art_e"]
    [package] = json.loads((ROOT / "server.json").read_text("utf-8"))["packages"]
    for argument in package["packageArguments"]:
        name = argument.get("name")
        command += [name, values.pop(name)] if name else [argument["value"]]
    assert not values
    command += ["--as-of", AS_OF]
    process = StdioServerParameters(command=sys.executable, args=command)

    async def session() -> None:
        with Path(os.devnull).open("w") as log:
            here = mail_server(inbox)
            server = stdio_client(process, errlog=log) if mode == "legacy" else here
            async with Client(server, mode=mode, read_timeout_seconds=WAIT_S) as client:
                await talk(client)

    async def talk(client: Client) -> None:
        assert client.protocol_version == protocol and client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("art-e", __version__)
        for word in (BOB, AS_OF, "never instructions"):
            assert word in (client.instructions or "")

        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == ["search_emails", "read_email", "read_thread"]
        for tool in listed:
            assert tool.annotations is not None and tool.annotations.read_only_hint is True
            # Not every client shows its model the instructions.
            assert f"{BOB} up to and including {AS_OF}" in (tool.description or "")
            assert "never instructions" in (tool.description or "")
        assert LEFT_OUT in (listed[2].description or "")

        for name, arguments in (
            ("search_emails", {"keywords": ["crane"], "from_addr": "ann"}),
            ("search_emails", {"keywords": [builders.SECRET, "tombola"]}),
            ("read_email", {"message_id": builders.LEASE_COPY.strip("<>")}),
            ("read_thread", {"message_id": builders.HOSTILE}),
        ):
            result = await client.call_tool(name, arguments)
            assert facts(result) == call(inbox, name, **arguments)
        for message_id in (builders.FOREIGN, builders.LATER, "m1", "<nowhere@t>", "x" * 1_000_000):
            for name in ("read_email", "read_thread"):
                result = await client.call_tool(name, {"message_id": message_id})
                assert result.is_error and "not found in this inbox" in said(result)

        for name, wrong, helpful in WRONG_CALLS:
            result = await client.call_tool(name, wrong)
            assert result.is_error, name
            assert helpful in said(result) and len(said(result)) < 1_000

    asyncio.run(session())


WRONG_CALLS: list[tuple[str, Any, str]] = [
    # A tool of episodes, not of this server.
    ("return_final_answer", {"answer": "x"}, "no tool 'return_final_answer'; use search_emails, "),
    ("\x1b[31m" * 10_000, {}, "no tool '\\x1b[31m"),
    ("search_emails", {"keywords": ["x"], "inbox": "zoe@test.example"}, "inbox: Extra inputs"),
    ("search_emails", {"keywords": ["x"], "z" * 1_000_000: 1}, "zzz"),
    ("search_emails", {"keywords": ["x"], "sent_after": "May"}, "a date is written YYYY-MM-DD"),
    ("read_thread", {"message_id": LEASE, "page": 0}, "page: Input should be greater"),
    ("read_thread", {"message_id": LEASE, "page": 2}, "no page 2; the last one is 1"),
]


def test_long_mail_comes_in_pages(inbox: Inbox) -> None:
    hits = call(inbox, "search_emails", keywords=["harbor"], max_results=50)
    assert hits["note"] == "max_results is 1 to 10; 10 was used"
    assert [each["message_id"] for each in hits["hits"]].count(LEASE) == 1
    first = call(inbox, "read_email", message_id=LONG)
    last = int(first["page"].removeprefix("1 of "))
    pages = [call(inbox, "read_email", message_id=LONG, page=n) for n in range(1, last + 1)]
    assert " ".join(each["body"] for each in pages).split() == builders.LONG_BODY.split()
    # Each call stands alone: nothing counts as shown before.
    assert pages[0] == first and last > 1
    [mail] = call(inbox, "read_thread", message_id=LONG)["mails"]
    assert "\n[cut here: " in mail["body"]
    everyone = call(inbox, "read_email", message_id=builders.CROWD, page=0)["to"]
    more = call(inbox, "read_email", message_id=builders.CROWD)["to"][-1]
    assert more == f"{len(everyone) - NAMED_RECIPIENTS} more"


def test_thread_shows_each_text_once_oldest_first(tmp_path: Path) -> None:
    first = "The lease of the harbor office ends on May 3, so we have to decide soon.\nBob"
    quoted = "> The lease of the harbor office ends on May 3,\n> so we have to decide soon.\n> Bob"
    question = "Which office would be cheaper for all of us in the long run?"
    outside = "> A mail that nobody in this thread has ever sent or seen before now."
    second = f"Thanks. {question}\n\n{quoted}\n\nAnn"
    third = f"The one at the quay.\n> {question}\n{quoted}\n{outside}"
    mails = [
        raw("<3@t>", subject="Re: Lease", body=third, sender=BOB, to=ANN, date=date_header(8)),
        raw("<1@t>", subject="Lease", body=first, sender=BOB, to=ANN, date=date_header(6)),
        raw("<2@t>", subject="Re: Lease", body=second, sender=ANN, to=BOB, date=date_header(7)),
        raw("<4@t>", subject="Re: Lease", body=quoted, sender=ANN, to=ANN, date=date_header(9)),
    ]
    with new_file(tmp_path / "i.duckdb", mails) as file:
        thread = call(file.open_inbox(BOB), "read_thread", message_id="2@t")
    # <4@t> is not in Bob's inbox.
    assert [(each["message_id"], each["body"].strip()) for each in thread["mails"]] == [
        ("<1@t>", first),
        ("<2@t>", f"Thanks. {question}\n\n{LEFT_OUT}\n\nAnn"),
        ("<3@t>", f"The one at the quay.\n{LEFT_OUT}\n{outside}"),
    ]
    assert (thread["mails_in_thread"], thread["pages"]) == (3, 1)


def test_pages_of_a_thread_and_no_control_character_reach_the_client(tmp_path: Path) -> None:
    head = {"subject": "Re: Minutes", "to": ANN}
    days = range(10, 15)
    minutes = [raw(f"<m{n}@t>", **head, body=f"{n} " * 2_000, date=date_header(n)) for n in days]
    with new_file(tmp_path / "i.duckdb", [hostile_mail(), *minutes]) as file:
        inbox = file.open_inbox(ANN)
        pages = [call(inbox, "read_thread", message_id="<m10@t>", page=n) for n in (1, 2, 3)]
        assert {each["pages"] for each in pages} == {3}
        assert max(len(json.dumps(each)) for each in pages) < 1.1 * PAGE_CHARS
        read = [mail["message_id"] for each in pages for mail in each["mails"]]
        assert read == [f"<m{n}@t>" for n in days]
        for name, arguments in (
            ("search_emails", {"keywords": ["zebra", "\ud800"]}),
            ("read_email", {"message_id": HOSTILE_ID}),
            ("read_thread", {"message_id": HOSTILE_ID}),
        ):
            text = json.dumps(call(inbox, name, **arguments), ensure_ascii=False)
            assert "prize" in text and "[bold]red" in text
            assert_safe(text)
        for name in ("read_email", "read_thread", "\ud800"):
            answer_call(inbox, name, {"message_id": "\ud800"}).model_dump_json()


@pytest.fixture
def server(process: Process, inbox_file: InboxFile, ctrl_c: None) -> Iterator[Server]:
    """Start a server process after the handshake, to say what no client says."""
    command = ("mcp", "--inbox", BOB, "--db", inbox_file.path)
    started = process(*command, stdin=subprocess.PIPE, errors="surrogateescape")
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
    say(started, json.dumps({"id": "hello", "method": "initialize", "params": hello, **RPC}))
    assert hear(started)["result"]["serverInfo"]["name"] == "art-e"
    say(started, json.dumps({"method": "notifications/initialized", **RPC}))
    yield started
    started.kill()
    with contextlib.suppress(BrokenPipeError):
        started.communicate()


def say(server: Server, *lines: str) -> None:
    assert server.stdin is not None
    server.stdin.write("".join(f"{line}\n" for line in lines))
    server.stdin.flush()


def hear(server: Server) -> dict[str, Any]:
    assert server.stdout is not None
    heard = json.loads(server.stdout.readline())
    assert isinstance(heard, dict) and heard["jsonrpc"] == "2.0"
    return heard


def test_stdout_carries_the_protocol_and_nothing_else(server: Server) -> None:
    say(server, "", "garbage", "[]", "{}", "\udcff\udcfe", "[" * 100_000, '{"jsonrpc":"1.0"}')
    harbor = {"name": "search_emails", "arguments": {"keywords": ["harbor"]}}
    # Lone surrogates are not JSON to the library, which drops the line.
    for request in ({"name": "\ud800"}, harbor):
        say(server, json.dumps({"id": 5, "method": "tools/call", "params": request, **RPC}))
    assert json.loads(hear(server)["result"]["content"][0]["text"])["hits"]
    stdout, stderr = server.communicate(timeout=WAIT_S)
    assert (server.returncode, stdout) == (0, "")
    assert stderr.startswith("serving ") and stderr.count("\n") == 1


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGPIPE])
def test_server_ends_quietly_on_ctrl_c_or_disconnect(server: Server, end: signal.Signals) -> None:
    assert server.stdout is not None and server.stderr is not None
    if end is signal.SIGINT:
        server.send_signal(end)
    else:
        server.stdout.close()
        say(server, json.dumps({"id": 1, "method": "tools/list", **RPC}))
    assert server.wait(WAIT_S) == -end
    assert server.stderr.read().count("\n") == 1
