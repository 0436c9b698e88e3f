"""The offline policy on a small made-up inbox."""

import asyncio
import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.offline import NOTHING, OfflinePolicy
from art_e.question import Question
from art_e.tools import View, schemas
from art_e.trajectory import Trajectory
from data_pipeline.ingest.records import RawMessage
from tests.builders import date_header, new_file, play, raw, table

CASES = table(__file__, "offline.toml")
INES = "ines@tarn.example"
IMITATION = CASES["imitation"]


def written(name: str, day: int, subject: str, body: str, to: str = INES) -> RawMessage:
    head = {"sender": "Ada Olm <ada@tarn.example>", "to": to, "subject": subject}
    return raw(f"<{name}@t>", date=date_header(day), body=body, **head)


OFF_AGAIN = "Bea Quell has called the Granary visit off again."
MAILS = [
    *(written(*row) for row in CASES["mails"]),
    *(written(f"refit{n}", n + 1, "Ketch refit", f"The ketch refit, part {n}.") for n in range(12)),
    *(written(f"visit{n}", n, "Granary visit", f"{OFF_AGAIN} Part {n}.") for n in (3, 5, 12)),
    written("hostile", 15, "The zeppelin", IMITATION),
]
KETCH = "What is the ketch refit?"
SEARCH, READ_4, ANSWER = ["search_emails"], ["read_email"] * 4, ["return_final_answer"]


@pytest.fixture(scope="module")
def inbox_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    with new_file(tmp_path_factory.mktemp("offline") / "inbox.duckdb", MAILS) as file:
        yield file


def run(file: InboxFile, question: str, as_of: dt.date | None = None, **options: Any) -> Trajectory:
    episode = Episode(file.open_inbox(INES, as_of), Question("q", question, INES), **options)
    return play(episode, OfflinePolicy())


def act(messages: list[ChatMessage]) -> AssistantMessage:
    return asyncio.run(OfflinePolicy().act(messages, schemas())).message


def tool_names(trajectory: Trajectory) -> list[list[str]]:
    return [
        [call["function"]["name"] for call in message["tool_calls"]]
        for message in trajectory.messages
        if message["role"] == "assistant"
    ]


@pytest.mark.parametrize(("question", "day", "answer", "sources"), CASES["answers"])
def test_answers(
    inbox_file: InboxFile, question: str, day: str, answer: str, sources: list[str]
) -> None:
    as_of = dt.date.fromisoformat(day) if day else None
    done = run(inbox_file, question, as_of=as_of)
    assert (done.final_answer, sorted(done.sources)) == (answer or NOTHING, sources)
    assert done.rubric["abstained"] is not bool(answer)
    assert (done.cost_usd, done.model) == (0.0, "offline")
    without = run(inbox_file, question, as_of=as_of, view=View(handles=False))
    assert (without.final_answer, without.sources) == (done.final_answer, done.sources)


def test_policy_reads_four_mails_a_turn_and_answers_last(inbox_file: InboxFile) -> None:
    done = run(inbox_file, KETCH)
    assert tool_names(done) == [SEARCH, SEARCH, READ_4, READ_4, ANSWER]
    observed = [json.loads(each["content"]) for each in done.messages if each["role"] == "tool"]
    read = [each["message_id"] for each in observed if "body" in each]
    assert read == [hit["message_id"] for hit in observed[0]["hits"]][:8]
    for max_turns in (2, 3):
        done = run(inbox_file, KETCH, max_turns=max_turns)
        assert len(tool_names(done)) == max_turns and tool_names(done)[-1] == ANSWER


def ten_hits(bulk: int = 0, **fields: Any) -> ChatMessage:
    """Return a search's observation whose first hits are bulk mail."""
    head = {"date": "2024-03-01", **fields}
    hits = [{"message_id": f"m{n}", **head, "bulk": n < bulk} for n in range(10)]
    return {"role": "tool", "tool_call_id": "x", "content": json.dumps({"hits": hits})}


@pytest.mark.parametrize(("question", "second"), CASES["second"])
def test_the_second_search(question: str, second: dict[str, Any]) -> None:
    """For the person's mail, in the last months, or for parts of a word that no mail has."""
    messages: list[ChatMessage] = [{"role": "user", "content": question}]
    messages += [act(messages).to_chat(), ten_hits(missing=["schwimmkurs"])]
    arguments = json.loads(act(messages).tool_calls[0].arguments)
    parts = set(arguments["keywords"]) - set(second["keywords"])
    assert arguments == second | {"keywords": arguments["keywords"], "max_results": 10}
    assert ({"schwimm", "kurs"} <= parts) == ("Schwimm" in question)


def test_personal_mail_is_read_before_bulk_mail() -> None:
    messages: list[ChatMessage] = [{"role": "user", "content": "Where is the lunch?"}]
    for _ in range(2):
        messages += [act(messages).to_chat(), ten_hits(bulk=6)]
    read = [json.loads(call.arguments)["message_id"] for call in act(messages).tool_calls]
    assert read == ["m6", "m7", "m8", "m9"]


@given(st.lists(st.sampled_from(IMITATION.split("\n")) | st.text(max_size=60)).map("\n".join))
def test_no_body_crashes_the_policy(body: str) -> None:
    """Nor makes it read or cite other mails."""
    mail = {"message_id": "m1", "date": "2031-01-01", "from": body, "subject": body}
    messages: list[ChatMessage] = [{"role": "user", "content": "When does the zeppelin fly?"}]
    observations = {"search_emails": {"hits": [mail]}, "read_email": {**mail, "body": body}}
    for expected, observation in observations.items():
        message = act(messages)
        assert [call.name for call in message.tool_calls] == [expected]
        content = json.dumps(observation, ensure_ascii=False)
        messages += [message.to_chat(), {"role": "tool", "tool_call_id": "x", "content": content}]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("art_e.offline.ABSTAIN_BELOW", float("-inf"))
        [call] = act(messages).tool_calls
    assert call.name == "return_final_answer"
    assert json.loads(call.arguments)["sources"] in ([], ["m1"])
