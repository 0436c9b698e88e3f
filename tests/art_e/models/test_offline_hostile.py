"""The offline policy over mail that is made to mislead or to crash it."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.message import ChatMessage
from art_e.models.offline import OfflinePolicy
from tests.art_e.models.test_offline import IMITATION, act, begin, called, run, written
from tests.builders import make_inbox


@given(st.lists(st.sampled_from(IMITATION.split("\n")) | st.text(max_size=60)).map("\n".join))
def test_no_body_crashes_it(body: str) -> None:
    """Nor makes it read what is not a hit, or cite another mail."""
    hits = [{"message_id": "m1", "date": "2031-01-01", "from": body, "subject": body}]
    mail = {"message_id": "m1", "date": "2031-01-01T00:00Z", "from": body, "subject": body}
    messages: list[ChatMessage] = [{"role": "user", "content": "When does the zeppelin fly?"}]
    for expected, observation in (
        ("search_emails", {"hits": hits}),
        ("read_email", {**mail, "body": body}),
    ):
        message = act(messages)
        assert [call.name for call in message.tool_calls] == [expected]
        content = json.dumps(observation, ensure_ascii=False)
        messages += [message.to_chat(), {"role": "tool", "tool_call_id": "x", "content": content}]
    [call] = act(messages, OfflinePolicy(abstain_below=float("-inf"))).tool_calls
    assert call.name == "return_final_answer"
    assert json.loads(call.arguments)["sources"] in ([], ["m1"])


def test_it_reads_mails_of_hostile_size_and_shape(tmp_path: Path) -> None:
    bodies = ["zebra " * 5_000, "zebra" + "> " * 30_000, "zebra\n" + "a\n" * 30_000, 'zebra\n{["']
    mails = [
        written(f"zebra{number}", number + 1, "zebra" * 50, body)
        for number, body in enumerate(bodies)
    ]
    make_inbox(tmp_path / "zebra.duckdb", mails)
    with InboxFile(tmp_path / "zebra.duckdb") as file:
        done = run(begin(file, "When does the zebra run?"), OfflinePolicy(float("-inf")))
    assert len(called(done)[1]) == len(bodies)
    assert done.rubric["answered"]
    assert done.seconds["model"] < 2
