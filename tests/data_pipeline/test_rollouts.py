"""A run's episodes as a data set: whole, counted, without keys and paths of this machine."""

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from art_e.errors import UserError
from art_e.message import observation_json
from art_e.privacy import REDACTED
from art_e.runs import Run, start_run
from art_e.text import encodable
from art_e.trajectory import Trajectory, read_trajectories
from data_pipeline.rollouts import COLUMNS, SCHEMA, Sharing, export, fields_of, from_row, to_row
from data_pipeline.sharing import Addresses
from tests import command_line
from tests.builders import TEXT, trajectory
from tests.command_line import json_of, the_error
from tests.evals.runs import episode, question
from tests.hub import Hub, no_network, running

HOSTILE = "x | y\n\n# owned <script>alert(1)</script> [a](http://evil) `b` \0 \ud800 \x1b[31m"
ANN, BOB, EVE = "ann@harbor.example", "bob@harbor.example", "eve@evil.example"
KEY = "sk-" + "a1b2" * 8
# Of a form that no pattern knows.
OWN_KEY = 'correct-horse"battery\\staple'


def called(name: str, arguments: str = "{}") -> dict[str, Any]:
    call = {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def told(name: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": name, "content": content}


def mails(text: str = "When?", **fields: Any) -> Trajectory:
    """An episode that was shown two mails and read one, with hostile texts in them."""
    hits = [
        {"message_id": handle, "from": f"Bob <{BOB}>", "subject": HOSTILE, "snippet": TEXT}
        for handle in ("m1", "m2")
    ]
    mail = {"message_id": "m1", "from": f"Bob <{BOB}>", "body": f"{HOSTILE} {EVE}"}
    messages = [
        {"role": "user", "content": text},
        called("search_emails"),
        told("search_emails", observation_json({"hits": hits})),
        called("read_email"),
        told("read_email", observation_json(mail) + '\n{"note":"one turn left"}'),
    ]
    fields = {"handles": {"m1": "<1.ann@t.example>", "m2": "<2.ann@t.example>"}, **fields}
    return trajectory("May", messages=messages, sources=[], inbox_address=ANN, **fields)


def run_of(
    folder: Path, episodes: list[Trajectory], config: dict[str, Any] | None = None, **files: Any
) -> Run:
    run = start_run("eval", config or {"models": ["m"], "judges": ["f1/1"]}, folder, folder)
    with run.log() as log:
        for each in episodes:
            log.append(each.to_line())
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{each.to_line()}\n" for each in lines))
    run.finish()
    return run


def loaded(folder: Path, tmp_path: Path) -> dict[str, list[Trajectory]]:
    parts = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    return {name: [from_row(row) for row in rows] for name, rows in parts.items()}


# ---- Rows.

# Any character, lone surrogates and NULs too.
texts = st.text(st.characters()) | st.sampled_from([HOSTILE, '"\\\u2028', ""])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def through_parquet(*made: Trajectory) -> list[Trajectory]:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([to_row(each) for each in made], schema=SCHEMA), file)
    return [from_row(row) for row in pq.read_table(file).to_pylist()]


def test_every_field_of_a_trajectory_is_a_column() -> None:
    # Events follow from the messages.
    fields = {each.name for each in dataclasses.fields(Trajectory)} - {"events"}
    assert {each.name for each in COLUMNS} == fields


@given(texts, values, st.none() | st.floats(0, 100))
@example(TEXT, {"a": [None, 1, "x"]}, 0.1)
def test_a_row_gives_the_trajectory_back(text: str, value: Any, cost: float | None) -> None:
    made = trajectory(
        "plain",
        messages=[{"role": "user", "content": text}, called("f", text), told("f", text)],
        policy={"value": value},
        question={"question": text, "provenance": {"deep": value}},
        verdict={"reason": text, "correct": None},
        error={"kind": "provider", "message": text},
        cost_usd=cost,
        call_seconds=[0.5, None],
    )
    # As a run has it on disk: two surrogates side by side are one character there.
    made = Trajectory.from_line(made.to_line())
    other = trajectory("plain", question={"other": {"fields": 1}}, as_of="2020-01-05")
    assert through_parquet(made, other) == [made, other]
    [again] = through_parquet(trajectory(text, sources=[text], model=text))
    assert again.final_answer == again.model == again.sources[0] == encodable(text)


@pytest.mark.parametrize("row", [{}, {**to_row(trajectory()), "messages": "{"}])
def test_any_other_row_is_an_error(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"no row of rollouts|Expecting"):
        from_row(row)


# ---- What others may see.


def test_paths_of_this_machine_are_cut_and_mail_is_not() -> None:
    made = trajectory(
        "Where is /home/ann/secret/plan.txt?",
        model="local:/home/ann/secret/base+/home/ann/secret/adapter",
        policy={"path": "/home/ann/secret/base", "adapter": "~/secret/adapter", "dtype": "float32"},
        error={"kind": "model", "message": "OSError: no /home/ann/secret/base/model.safetensors"},
        verdict={"correct": True, "judge": "local:/home/ann/secret/judge", "reason": "so"},
        question={"question": "Where?", "provenance": {"source": "/home/ann/secret/q.jsonl"}},
    )
    made.messages.append(told("c", observation_json({"body": "in /home/ann/secret/plan.txt"})))
    assert fields_of(Sharing().shared(made)) == {
        **fields_of(made),
        "model": "local:base+adapter",
        "policy": {"path": "base", "adapter": "adapter", "dtype": "float32"},
        "error": {"kind": "model", "message": "OSError: no model.safetensors"},
        "verdict": {"correct": True, "judge": "local:judge", "reason": "so"},
        "question": {"question": "Where?", "provenance": {"source": "q.jsonl"}},
    }
    sharing = Sharing()
    made_by = [
        trajectory("a", model=f"local:/x/{each}/checkpoint-40") for each in ("one", "two", "one")
    ]
    assert [sharing.shared(each).model for each in made_by] == [
        "local:checkpoint-40", "local:checkpoint-40 (2)", "local:checkpoint-40",
    ]  # fmt: skip


@pytest.mark.parametrize("key", [KEY, OWN_KEY, f"https://ann:{KEY}@host.example/"])
def test_keys_are_cut_out_wherever_they_stand(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("SOME_API_KEY", OWN_KEY)
    sharing = Sharing()
    made = trajectory(
        f"My key is {key}",
        messages=[
            {"role": "user", "content": f"My key is {key}"},
            called("f", json.dumps({key: [f"it is {key}"]})),
            told("f", observation_json({"body": f'"{key}" is it'}) + '\n{"note":"one turn left"}'),
        ],
        policy={key: key},
        question={"answer": key},
    )
    clean = sharing.shared(made)
    assert sharing.redacted == 1
    for secret in (KEY, OWN_KEY, json.dumps(OWN_KEY)[1:-1]):
        assert secret not in json.dumps(fields_of(clean))
        assert json.dumps(secret)[1:-1] not in json.dumps(fields_of(clean))
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
    made = trajectory(text, messages=[told("c", text)])
    assert sharing.shared(made) == made
    assert sharing.redacted == 0


@given(st.text(st.characters()))
def test_a_key_never_breaks_the_json_around_it(text: str) -> None:
    body = observation_json({"body": f"?token={KEY}{text}"})
    [message] = Sharing().shared(trajectory("a", messages=[told("c", body)])).messages
    assert KEY not in message["content"]
    assert json.loads(message["content"])["body"].startswith("?token=[redacted]")


ROW = {
    "message_ids": ["<7.ann@harbor.example>"],
    "handles": {"m1": "<9.ann@harbor.example>"},
    "content": '{"message_id":"<10.ann@harbor.example>"}',
    "reason": "cites <7.ann@harbor.example>, which has no answer",
}


@pytest.mark.parametrize(
    ("added", "count"),
    [
        ([{"inbox": ANN}, [f"Write to <{ANN.upper()}>."], (f"{ANN}, {BOB}",)], 2),
        ([{"inboxes": {ANN: "train", BOB: "test"}}, None, 3, True, 0.5], 2),
        (["nobody", "user@host", "@", {}], 0),
        ([{"content": f'{{"from":"<{BOB}>","body":"Hi\\n{ANN}"}}\n{{"note":"x"}}'}, BOB], 2),
        ([ROW], 0),
        ([{"reason": ROW["reason"]}, ROW, EVE], 1),
    ],
)
def test_addresses_are_counted_and_ids_of_mails_are_not(added: list[Any], count: int) -> None:
    addresses = Addresses()
    for each in added:
        addresses.add(each)
    assert len(addresses) == count


# ---- The export.


def test_it_loads_with_datasets_and_gives_the_trajectories_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("data_pipeline.rollouts._GROUP", 3)
    train = [episode(question(n, split="train"), "right", reward={"a": 1.0}) for n in (1, 4)]
    test = [
        episode(question(2), "failed", call_seconds=[0.5, None]),
        episode(question(3), "lost", step=4, second=False),
    ]
    other = [mails(), trajectory(TEXT), *[trajectory("a", episode_id=str(n)) for n in range(7)]]
    run = run_of(tmp_path / "run", [other[0], *train, *other[1:]], test=test)
    exported = export(run, tmp_path / "out")
    assert exported.parts == {"train": 2, "test": 2, "rollouts": 9}
    parts = {"train": train, "test": test, "rollouts": other}
    assert loaded(tmp_path / "out", tmp_path) == parts
    assert {each.name for each in (tmp_path / "out").iterdir()} == {
        "README.md", "rollouts.parquet", "run.json", "test.parquet", "train.parquet",
    }  # fmt: skip
    # A second export replaces the first, and nothing else.
    assert export(run, tmp_path / "out", "test").parts == {"test": 2}
    assert loaded(tmp_path / "out", tmp_path) == {"test": test}
    before = (tmp_path / "out" / "run.json").read_bytes()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="something else"):
        export(run, tmp_path / "out")
    assert (tmp_path / "out" / "run.json").read_bytes() == before


def test_it_counts_what_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery")
    row = question(1, inbox_address=ANN).to_row()
    episodes = [
        mails(question=row), mails(question=row, repeat=1), mails("Who?", handles={}),
        trajectory("it is correct-horse-battery", inbox_address=BOB, handles={}),
    ]  # fmt: skip
    contents = export(run_of(tmp_path / "run", episodes), tmp_path / "out").contents
    assert (contents.questions, contents.answers) == (3, 1)
    # Without handles, ids of mails are counted as they are.
    assert (contents.mails, contents.inboxes, contents.addresses) == (4, 2, 3)
    assert contents.notes == (
        "4 episodes, each with all messages and the answer given",
        "mails that are in it as they were read: 2",
        "episodes with what looked like a key, which is cut out: 1",
    )
    facts = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))
    assert facts["contents"] == contents.to_json()


HOME = "/home/annsecret"
GRPO = {
    "kind": "grpo",
    "seed": 7,
    "init": f"{HOME}/start",
    "recipe": {
        "name": "mine",
        "model": {"base": f"{HOME}/.cache/models--Qwen--Qwen2.5-14B-Instruct/snapshots/1"},
        "data": {"questions": f"{HOME}/golden", "db": f"{HOME}/mail.duckdb"},
        "judging": {"reward": "openai/gpt-4.1", "validation": "f1", "max_cost_usd": 3},
    },
    "baseline": {"models": {f"local:{HOME}/x": {"n": 1}}},
}
GRPO_FACTS = {
    "kind": "grpo", "seed": 7, "recipe": "mine", "judges": ["openai/gpt-4.1", "f1"],
    "base_model": "Qwen/Qwen2.5-14B-Instruct",
}  # fmt: skip
EVAL = {
    "questions": f"test of {HOME}/run", "judges": ["f1/1", f"local:{HOME}/judge"],
    "recipe": f"{HOME}/run", "view": {"handles": True}, "db": f"{HOME}/mail.duckdb",
    "commit": "0" * 40, "cpus": 64,
}  # fmt: skip
EVAL_FACTS = {
    "questions": "test of run", "judges": ["f1/1", "local:judge"], "recipe": "run",
    "view": {"handles": True},
}  # fmt: skip


@pytest.mark.parametrize(("config", "expected"), [(GRPO, GRPO_FACTS), (EVAL, EVAL_FACTS)])
def test_it_tells_how_the_run_was_made_and_nothing_of_the_machine(
    tmp_path: Path, config: dict[str, Any], expected: dict[str, Any]
) -> None:
    made = trajectory("a", model=f"local:{HOME}/x", policy={"path": f"{HOME}/x"})
    export(run_of(tmp_path / "run", [made], config), tmp_path / "out")
    facts = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))
    assert {name: facts[name] for name in expected} == expected
    assert facts["models"] == {"local:x": 1}
    assert not {"db", "init", "baseline", "commit", "cpus", "started_at"} & facts.keys()
    for file in (tmp_path / "out").iterdir():
        assert b"annsecret" not in file.read_bytes()
        assert str(tmp_path).encode() not in file.read_bytes()


def test_the_card_says_what_it_is_and_no_text_in_it_is_markup(tmp_path: Path) -> None:
    names = "x | y <script>1</script> [a](http://evil) `b`"
    config = {"models": [names], "questions": names, "judges": [names], "prompt": {"name": names}}
    out = tmp_path / "out"
    run = run_of(tmp_path / "run [a](http:) <b>", [mails(model=names, run_id=names)], config)
    export(run, out)
    text = (out / "README.md").read_text("utf-8")
    front: dict[str, Any] = DatasetCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    assert front["license"] == "unknown"
    [own] = front["configs"]
    assert own["data_files"] == [{"split": "rollouts", "path": "rollouts.parquet"}]
    shown = str(MarkdownIt("commonmark").enable("table").render(text.split("---\n", 2)[2]))
    for markup in ("<script", "<a ", "<b>"):
        assert markup not in shown
    for column in COLUMNS:
        assert f"<td>{column.name}</td>" in shown
    for words in ("the text of 2 mails", "The license is unknown", "The mail may be real"):
        assert words in shown


def test_a_synthetic_world_and_a_killed_run_are_named_in_the_card(tmp_path: Path) -> None:
    row = question(1, provenance={"model": "synthetic"}).to_row()
    run = run_of(tmp_path / "run", [trajectory("a", question=row)])
    (run.folder / "COMPLETE").unlink()
    with run.trajectories.open("ab") as file:
        file.write(b'{"torn')
    export(run, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "The people, companies and mails are made up." in text
    assert "The run had not come to its end." in text


def test_a_run_that_can_not_be_exported_leaves_nothing(tmp_path: Path) -> None:
    def refused(run: Run, **more: Any) -> str:
        with pytest.raises(UserError) as caught:
            export(run, tmp_path / "out", **more)
        assert not [each for each in tmp_path.iterdir() if "out" in each.name]
        return str(caught.value)

    assert "has no episode;" in refused(run_of(tmp_path / "none", []))
    run = run_of(tmp_path / "run", [trajectory("a")])
    assert "of the split train" in refused(run, split="train")
    with run.trajectories.open("ab") as file:
        file.write(b"{}\n")
    assert "line 2 of" in refused(run)
    (run.folder / "config.json").write_text("[")
    assert "config.json" in refused(run)


# ---- The command.


@pytest.fixture
def run(art_e: command_line.Run, db: Path) -> Path:
    """A finished run of the offline policy; hostile mail is in what it was shown."""
    words, inbox = "What is the zebra prize code?", command_line.ANN
    asked = art_e("ask", words, "--inbox", inbox, "--db", db, "--json")
    return Path(json_of(asked)["trajectory"]).parent


def test_a_run_is_exported_by_its_name(art_e: command_line.Run, run: Path, tmp_path: Path) -> None:
    row = json_of(art_e("runs", "export", run.name, "--to", tmp_path / "out", "--json"))
    assert row["episodes"] == {"rollouts": 1}
    assert (row["push"], row["url"]) == (None, None)
    assert row["contents"]["mails"] >= 1
    [made] = read_trajectories(run / "trajectories.jsonl")
    assert loaded(tmp_path / "out", tmp_path) == {"rollouts": [made]}
    result = art_e("runs", "export", run, "--to", tmp_path / "out")
    assert result.stdout == "      1  rollouts\n"
    assert "1 episode written to" in result.stderr


def test_a_dry_run_lists_what_the_push_sends_and_makes_no_request(
    art_e: command_line.Run, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("runs", "export", run, "--to", tmp_path / "out", "--push", "me/rollouts")
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        with no_network():
            dry = json_of(art_e(*command, "--dry-run", "--json"))["push"]
            shown = art_e(*command, "--dry-run").stdout
        assert hub.requests == 0
        pushed = json_of(art_e(*command, "--json"))
    assert {each["path"]: each["bytes"] for each in dry["files"]} == {
        name: len(data) for name, data in hub.repos["me/rollouts"].items()
    }
    assert pushed["push"]["files"] == dry["files"]
    assert (hub.types, hub.private) == ({"me/rollouts": "dataset"}, {"me/rollouts": True})
    assert "as the dataset me/rollouts (private):" in shown
    for each in dry["files"]:
        assert f"{each['bytes']:>15,}  {each['path']}" in shown.splitlines()
    assert f"the text of {dry['contents']['mails']} mail" in shown
    public = json_of(art_e(*command, "--public", "--dry-run", "--json"))["push"]
    assert public["private"] is False


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["none"], "art-e runs list"),
        (["RUN", "--split", "all"], "there are train"),
        (["RUN", "--split", "test"], "no episode on questions of the split test"),
        (["RUN", "--dry-run"], "--push"),
    ],
)
def test_user_errors_are_one_line(
    options: list[str], words: str, art_e: command_line.Run, run: Path, tmp_path: Path
) -> None:
    chosen = [str(run) if each == "RUN" else each for each in options]
    assert words in the_error(art_e("runs", "export", *chosen, "--to", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
