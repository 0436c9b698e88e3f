"""What others may see of a trajectory: mail as it is, no path of this machine, no key."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.message import observation_json
from art_e.privacy import REDACTED
from art_e.trajectory import Trajectory
from data_pipeline.rollouts import Sharing, fields_of
from tests.builders import trajectory

KEY = "sk-" + "a1b2" * 8
# Of a form that no pattern knows.
OWN_KEY = 'correct-horse"battery\\staple'


def tool(content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "c", "content": content}


def text_of(each: Trajectory) -> str:
    return json.dumps(fields_of(each))


def test_paths_of_this_machine_are_cut_and_mail_is_not() -> None:
    mail = observation_json({"body": "It lies in /home/ann/secret/plan.txt"})
    made = trajectory(
        "Where is /home/ann/secret/plan.txt?",
        model="local:/home/ann/secret/base+/home/ann/secret/adapter",
        policy={"path": "/home/ann/secret/base", "adapter": "~/secret/adapter", "dtype": "float32"},
        error={"kind": "model", "message": "OSError: no /home/ann/secret/base/model.safetensors"},
        verdict={"correct": True, "judge": "local:/home/ann/secret/judge", "reason": "so"},
        question={"question": "Where?", "provenance": {"source": "/home/ann/secret/q.jsonl"}},
    )
    made.messages.append(tool(mail))
    clean = Sharing().shared(made)
    assert clean.messages == made.messages
    assert clean.model == "local:base+adapter"
    assert clean.policy == {"path": "base", "adapter": "adapter", "dtype": "float32"}
    assert clean.error == {"kind": "model", "message": "OSError: no model.safetensors"}
    assert clean.verdict == {"correct": True, "judge": "local:judge", "reason": "so"}
    assert clean.question == {"question": "Where?", "provenance": {"source": "q.jsonl"}}
    # The first is as it was.
    assert made.policy["path"] == "/home/ann/secret/base"


def test_two_models_of_one_name_stay_two() -> None:
    sharing = Sharing()
    folders = ["start", "trained", "start", "other"]
    made = [trajectory("a", model=f"local:/x/{each}/checkpoint-40") for each in folders]
    assert [sharing.shared(each).model for each in made] == [
        "local:checkpoint-40", "local:checkpoint-40 (2)", "local:checkpoint-40",
        "local:checkpoint-40 (3)",
    ]  # fmt: skip


@pytest.mark.parametrize("key", [KEY, OWN_KEY, f"https://ann:{KEY}@host.example/"])
def test_keys_are_cut_out_wherever_they_stand(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("SOME_API_KEY", OWN_KEY)
    sharing = Sharing()
    call = {"name": "f", "arguments": json.dumps({key: [f"it is {key}"]})}
    made = trajectory(
        f"My key is {key}",
        messages=[
            {"role": "user", "content": f"My key is {key}"},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": call}]},
            tool(observation_json({"body": f'"{key}" is it'}) + '\n{"note":"one turn left"}'),
        ],
        policy={key: key},
        question={"answer": key},
    )
    clean = sharing.shared(made)
    assert sharing.redacted == 1
    for secret in (KEY, OWN_KEY, json.dumps(OWN_KEY)[1:-1]):
        assert secret not in text_of(clean)
        assert json.dumps(secret)[1:-1] not in text_of(clean)
    # What was JSON is JSON.
    json.loads(clean.messages[1]["tool_calls"][0]["function"]["arguments"])
    first, note = clean.messages[2]["content"].split("\n")
    assert REDACTED in json.loads(first)["body"]
    assert json.loads(note) == {"note": "one turn left"}


@pytest.mark.parametrize(
    "text",
    [
        "***IMPORTANT*** pay ***now", "password: ****word", "a risk-free desk", "see http://x.y/z",
        "<7.a@mail.example>", '{"not": json', '{"a": 1.0, "spaced": "kept as it is"}',
    ],
)  # fmt: skip
def test_innocent_mail_is_left_alone(text: str) -> None:
    sharing = Sharing()
    made = trajectory(text, messages=[tool(text)])
    assert sharing.shared(made) == made
    assert sharing.redacted == 0


@given(st.text(st.characters()))
def test_a_key_never_breaks_the_json_around_it(text: str) -> None:
    made = trajectory("a", messages=[tool(observation_json({"body": f"?token={KEY}{text}"}))])
    [message] = Sharing().shared(made).messages
    assert KEY not in message["content"]
    assert json.loads(message["content"])["body"].startswith("?token=[redacted]")
