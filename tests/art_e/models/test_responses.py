"""Responses kept on disk: found again for the same request only, whole or not at all."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.message import AssistantMessage, ToolCall
from art_e.models.base import Usage
from art_e.models.responses import Response, Responses, request_key
from tests.builders import HELLO, Make, act
from tests.builders import search_episodes as search
from tests.provider import Provider, says

REQUEST: dict[str, Any] = {
    "model": "openai/o3",
    "temperature": 0.0,
    "messages": [{"role": "user", "content": "When?"}],
    "tools": [{"type": "function", "function": {"name": "read_email"}}],
    "endpoint": None,
}
CALLS = (ToolCall("a", "read_email", '{"message_id": "m1"}'), ToolCall("b", "x\ud800", "\x00"))
RESPONSE = Response(AssistantMessage("Zürich \ud800", CALLS), Usage(4, 3, 2, 1))
KEY = request_key(REQUEST)


@pytest.mark.parametrize("response", [RESPONSE, Response(AssistantMessage(), None)])
def test_a_response_is_found_again_by_another_process(tmp_path: Path, response: Response) -> None:
    Responses(tmp_path / "new" / "folder").put(KEY, response)
    assert Responses(tmp_path / "new" / "folder").get(KEY) == response


def test_a_key_is_that_of_the_whole_request() -> None:
    assert request_key(dict(reversed(REQUEST.items()))) == KEY
    others = [
        {**REQUEST, "model": "openai/o4-mini"},
        {**REQUEST, "temperature": 0.5},
        {**REQUEST, "messages": []},
        {**REQUEST, "tools": []},
        {**REQUEST, "endpoint": "http://localhost:8000/v1"},
        {**REQUEST, "max_tokens": 9},
    ]
    assert len({KEY, *map(request_key, others)}) == 7


def test_any_cut_of_a_file_is_a_miss(tmp_path: Path) -> None:
    responses = Responses(tmp_path)
    responses.put(KEY, RESPONSE)
    (file,) = tmp_path.rglob("*.json")
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert responses.get(KEY) is None


def test_what_is_kept_holds_nothing_of_the_request(make: Make, tmp_path: Path) -> None:
    with Provider([says("Yes.", search("lease"))]) as provider:
        first = act(make(provider, cache=tmp_path))
        again = act(make(provider, cache=tmp_path))
    assert again.message == first.message
    (file,) = tmp_path.rglob("*.json")
    assert set(json.loads(file.read_text())) == {"schema", "message", "usage"}
    assert not any(str(each["content"]) in file.read_text() for each in HELLO)
