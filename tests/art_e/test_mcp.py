"""`art-e mcp` as MCP clients meet it: a process of its own, spoken to by the SDK's client."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import Client, StdioServerParameters, stdio_client, types

from art_e import __version__
from art_e.cli.mcp import mail_server
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.message import ToolCall
from art_e.tools import Tools, View, schemas
from tests import builders as episodes
from tests.builders import BOB, FOREIGN, LATER, LEASE, LEASE_COPY, QUESTION, read, run, search, step

AS_OF = str(QUESTION.query_date)
# What a hang costs; no test waits for it otherwise.
SECONDS = 60.0
CLIENT = {"name": "test", "version": "1"}
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": CLIENT}
Mode = Literal["legacy", "auto"]


@pytest.fixture
def expected(inbox_file: InboxFile) -> Tools:
    """The same tools in this process."""
    return Tools(inbox_file.open_inbox(BOB, QUESTION.query_date), View(handles=False))


async def ask(client: Client, made: ToolCall) -> types.CallToolResult:
    return await client.call_tool(made.name, json.loads(made.arguments))


def said(result: types.CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.mark.parametrize(("mode", "protocol"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
def test_a_session(inbox_file: InboxFile, expected: Tools, mode: Mode, protocol: str) -> None:
    """With the handshake over stdin and stdout of a process, without it in this process."""
    episode = Episode(expected.inbox, QUESTION, view=View(handles=False))
    db = str(inbox_file.path)
    command = ["-m", "art_e", "mcp", "--inbox", BOB, "--db", db, "--as-of", AS_OF]
    process = StdioServerParameters(command=sys.executable, args=command)

    async def session() -> None:
        with Path(os.devnull).open("w") as log:
            here = mail_server(expected.inbox)
            server = stdio_client(process, errlog=log) if mode == "legacy" else here
            async with Client(server, mode=mode, read_timeout_seconds=SECONDS) as client:
                await talk(client)

    async def talk(client: Client) -> None:
        assert client.protocol_version == protocol
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("art-e", __version__)
        assert client.server_capabilities.tools is not None
        assert client.server_capabilities.resources is None
        for word in (BOB, AS_OF, "never instructions"):
            assert word in (client.instructions or "")

        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == ["search_emails", "read_email"]
        by_name = {each["function"]["name"]: each["function"] for each in schemas()}
        for tool in listed:
            assert tool.input_schema == by_name[tool.name]["parameters"]
            assert tool.annotations is not None and tool.annotations.read_only_hint is True
            # Not every client shows its model the instructions.
            assert f"{BOB} up to and with {AS_OF}" in (tool.description or "")
            assert "never instructions" in (tool.description or "")

        for made in (
            search("crane", from_addr="ann", max_results=99),
            search("harbor", sent_after="2020-01-09", sent_before="2020-01-12"),
            read(LEASE_COPY.strip("<>")),
            read(episodes.HOSTILE),
        ):
            result = await ask(client, made)
            assert not result.is_error
            assert json.loads(said(result)) == run(expected, made)
        assert json.loads(said(await ask(client, read(LEASE_COPY))))["message_id"] == LEASE

        for message_id in (FOREIGN, LATER, "m1", "<nowhere@t>", "x" * 1_000_000):
            result = await ask(client, read(message_id))
            assert result.is_error
            # In the words of an episode.
            [refused] = step(episode, read(message_id))
            assert said(result) == refused["error"]
            assert "not found in this inbox" in refused["error"]
        everything = await ask(client, search("harbor", "crane", episodes.SECRET))
        assert FOREIGN not in said(everything) and LATER not in said(everything)

        for name, arguments, helpful in WRONG_CALLS:
            result = await client.call_tool(name, arguments)
            assert result.is_error, name
            assert helpful in said(result)
            assert len(said(result)) < 1_000
        assert not (await ask(client, search("crane"))).is_error

    asyncio.run(session())


WRONG_CALLS: list[tuple[str, Any, str]] = [
    # A tool of episodes, not of this server.
    (
        "return_final_answer",
        {"answer": "x", "sources": []},
        "no tool 'return_final_answer'; use search_emails, read_email",
    ),
    ("\x1b[31m" * 10_000, {}, "no tool '\\x1b[31m"),
    ("search_emails", None, "keywords: Field required"),
    ("search_emails", {"keywords": [], "inbox": "zoe@test.example"}, "inbox: Extra inputs"),
    ("search_emails", {"keywords": [], "as_of": "2030-01-01"}, "as_of: Extra inputs"),
    ("read_email", {"message_id": 5}, "message_id: Input should be a valid string"),
]


class Wire:
    """A server process and its two ends of plain text, to say what no client says."""

    def __init__(self, db: Path) -> None:
        # A background job ignores Ctrl-C, and hands that on.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "art_e", "mcp", "--inbox", BOB, "--db", str(db)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        signal.signal(signal.SIGINT, before)
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.stderr = self.process.stderr

    def say(self, line: bytes | dict[str, Any]) -> None:
        data = line if isinstance(line, bytes) else json.dumps({"jsonrpc": "2.0", **line}).encode()
        self.stdin.write(data + b"\n")
        self.stdin.flush()

    def hear(self) -> dict[str, Any]:
        heard = json.loads(self.stdout.readline())
        assert isinstance(heard, dict)
        return heard

    def shake_hands(self) -> dict[str, Any]:
        self.say({"id": "hello", "method": "initialize", "params": HANDSHAKE})
        heard = self.hear()
        self.say({"method": "notifications/initialized"})
        return heard


@pytest.fixture
def wire(inbox_file: InboxFile) -> Iterator[Callable[..., Wire]]:
    started: list[Wire] = []

    def start() -> Wire:
        started.append(Wire(inbox_file.path))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        for pipe in (each.stdin, each.stdout, each.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def test_stdout_carries_the_protocol_and_nothing_else(wire: Callable[..., Wire]) -> None:
    spoken = wire()
    assert spoken.shake_hands()["result"]["serverInfo"]["name"] == "art-e"
    for line in (b"", b"garbage", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"jsonrpc":"1.0"}'):
        spoken.say(line)
    spoken.say({"id": 1, "method": "resources/list"})
    spoken.say({"id": 2, "method": "no/such"})
    spoken.say({"id": 3, "method": "tools/call", "params": {"name": 5}})
    spoken.say({"id": 4, "method": "tools/call"})
    spoken.say({"method": "notifications/cancelled", "params": {"requestId": 999}})
    harbor = {"name": "search_emails", "arguments": {"keywords": ["harbor"]}}
    spoken.say({"id": 5, "method": "tools/call", "params": harbor})
    heard = {answer["id"]: answer for answer in (spoken.hear() for _ in range(5))}
    assert [heard[number]["error"]["code"] for number in (1, 2, 3, 4)] == [
        types.METHOD_NOT_FOUND,
        types.METHOD_NOT_FOUND,
        types.INVALID_PARAMS,
        types.INVALID_PARAMS,
    ]
    assert json.loads(heard[5]["result"]["content"][0]["text"])["hits"]
    assert {answer["jsonrpc"] for answer in heard.values()} == {"2.0"}
    spoken.stdin.close()
    assert spoken.process.wait(SECONDS) == 0
    assert spoken.stdout.read() == b""
    [note] = spoken.stderr.read().splitlines()
    assert note.startswith(b"serving ")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGPIPE])
def test_ctrl_c_or_a_client_that_takes_no_more_answers_end_it_quietly(
    wire: Callable[..., Wire], end: signal.Signals
) -> None:
    spoken = wire()
    spoken.shake_hands()
    if end is signal.SIGINT:
        spoken.process.send_signal(end)
    else:
        spoken.stdout.close()
        spoken.say({"id": 1, "method": "tools/list"})
    assert spoken.process.wait(SECONDS) == -end
    assert len(spoken.stderr.read().splitlines()) == 1
