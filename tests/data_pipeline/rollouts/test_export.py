"""A run's episodes as a data set: they load with `datasets`, whole, and tell what they hold."""

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from huggingface_hub import DatasetCard
from markdown_it import MarkdownIt

from art_e.errors import UserError
from art_e.message import observation_json
from art_e.runs import Run, start_run
from art_e.trajectory import Trajectory
from data_pipeline.rollouts import COLUMNS, export, from_row
from tests.builders import TEXT, trajectory
from tests.evals.runs import episode, question

HOSTILE = "x | y\n\n# owned <script>alert(1)</script> [a](http://evil) `b` \0 \ud800 \x1b[31m"
ANN, BOB = "ann@harbor.example", "bob@harbor.example"


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


def mails(asked: str = "When?", **fields: Any) -> Trajectory:
    """An episode that was shown two mails and read one, with hostile texts in them."""
    hits = [
        {"message_id": handle, "from": f"Bob <{BOB}>", "subject": HOSTILE, "snippet": TEXT}
        for handle in ("m1", "m2")
    ]
    mail = {"message_id": "m1", "from": f"Bob <{BOB}>", "body": f"{HOSTILE} eve@evil.example"}

    def call(name: str) -> dict[str, Any]:
        return {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}}

    messages = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": None, "tool_calls": [call("search_emails")]},
        {
            "role": "tool",
            "tool_call_id": "search_emails",
            "content": observation_json({"hits": hits}),
        },
        {"role": "assistant", "content": None, "tool_calls": [call("read_email")]},
        {
            "role": "tool",
            "tool_call_id": "read_email",
            "content": observation_json(mail) + '\n{"note":"one turn left"}',
        },
    ]
    handles = {"m1": "<1.ann@t.example>", "m2": "<2.ann@t.example>"}
    return trajectory(
        "May", messages=messages, handles=handles, sources=[], inbox_address=ANN, **fields
    )


def test_it_loads_with_datasets_and_gives_the_trajectories_back(tmp_path: Path) -> None:
    parts = {
        "train": [episode(question(n, split="train"), "right", reward={"a": 1.0}) for n in (1, 4)],
        "test": [
            episode(question(2), "failed", call_seconds=[0.5, None]),
            episode(question(3), "lost", step=4, second=False),
        ],
        "rollouts": [mails(), trajectory(TEXT)],
    }
    mixed = [*parts["rollouts"][:1], *parts["test"], *parts["train"], *parts["rollouts"][1:]]
    exported = export(run_of(tmp_path / "run", mixed), tmp_path / "out")
    assert exported.parts == {"train": 2, "test": 2, "rollouts": 2}
    assert loaded(tmp_path / "out", tmp_path) == parts
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [
        "README.md", "rollouts.parquet", "run.json", "test.parquet", "train.parquet",
    ]  # fmt: skip


def test_many_rows_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_pipeline.rollouts._GROUP", 3)
    made = [trajectory("a", episode_id=str(number)) for number in range(7)]
    export(run_of(tmp_path / "run", made), tmp_path / "out")
    assert loaded(tmp_path / "out", tmp_path) == {"rollouts": made}


def test_a_training_runs_test_is_part_of_it(tmp_path: Path) -> None:
    trained = [episode(question(1, split="train"), "right", step=1)]
    tested = [episode(question(2), "wrong")]
    run = run_of(tmp_path / "run", trained, test=tested)
    assert export(run, tmp_path / "out").parts == {"train": 1, "test": 1}
    assert export(run, tmp_path / "out", "test").parts == {"test": 1}
    assert loaded(tmp_path / "out", tmp_path) == {"test": tested}


def test_it_counts_what_is_in_it(tmp_path: Path) -> None:
    asked = question(1, inbox_address=ANN).to_row()
    episodes = [
        mails(question=asked), mails(question=asked, repeat=1), mails("Who?"),
        trajectory("Hi", inbox_address=BOB, handles={}),
    ]  # fmt: skip
    contents = export(run_of(tmp_path / "run", episodes), tmp_path / "out").contents
    assert (contents.questions, contents.answers) == (3, 1)
    assert (contents.mails, contents.inboxes, contents.addresses) == (2, 2, 3)
    assert "4 episodes, each with all messages and the answer given" in contents.notes
    assert "mails that are in it as they were read: 1" in contents.notes
    assert not any("made up" in each or "key" in each for each in contents.notes)
    told = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))
    assert told["contents"] == contents.to_json()


def test_mails_are_counted_by_their_ids_where_there_are_no_handles(tmp_path: Path) -> None:
    one = mails()
    two = trajectory("a", messages=json.loads(json.dumps(one.messages)), handles={})
    contents = export(run_of(tmp_path / "run", [two]), tmp_path / "out").contents
    assert contents.mails == 2


def test_keys_are_counted_and_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "correct-horse-battery")
    run = run_of(tmp_path / "run", [trajectory("it is correct-horse-battery"), trajectory("a")])
    contents = export(run, tmp_path / "out").contents
    assert "episodes with what looked like a key, which is cut out: 1" in contents.notes
    [rows] = loaded(tmp_path / "out", tmp_path).values()
    assert rows[0].final_answer == "it is [redacted]"


CONFIG = {
    "kind": "grpo",
    "seed": 7,
    "init": "/home/annsecret/start",
    "recipe": {
        "name": "mine",
        "model": {"base": "/home/annsecret/.cache/models--Qwen--Qwen2.5-14B-Instruct/snapshots/1"},
        "data": {"questions": "/home/annsecret/golden", "db": "/home/annsecret/mail.duckdb"},
        "judging": {"reward": "openai/gpt-4.1", "validation": "f1", "max_cost_usd": 3},
    },
    "baseline": {"models": {"local:/home/annsecret/x": {"n": 1}}},
}
EVAL = {
    "models": ["local:/home/annsecret/x"],
    "questions": "test of /home/annsecret/run",
    "judges": ["f1/1", "local:/home/annsecret/judge"],
    "recipe": "/home/annsecret/run",
    "view": {"handles": True},
    "db": "/home/annsecret/mail.duckdb",
    "max_cost_usd": None,
    "commit": "0" * 40,
    "cpus": 64,
}


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (
            CONFIG,
            {"kind": "grpo", "seed": 7, "recipe": "mine", "judges": ["openai/gpt-4.1", "f1"],
             "base_model": "Qwen/Qwen2.5-14B-Instruct"},
        ),
        (
            EVAL,
            {"questions": "test of run", "judges": ["f1/1", "local:judge"], "recipe": "run",
             "view": {"handles": True}},
        ),
    ],
)  # fmt: skip
def test_it_tells_how_the_run_was_made_and_nothing_of_the_machine(
    tmp_path: Path, config: dict[str, Any], told: dict[str, Any]
) -> None:
    made = trajectory("a", model="local:/home/annsecret/x", policy={"path": "/home/annsecret/x"})
    export(run_of(tmp_path / "run", [made], config), tmp_path / "out")
    facts = json.loads((tmp_path / "out" / "run.json").read_text("utf-8"))
    assert {name: facts[name] for name in told} == told
    assert facts["models"] == {"local:x": 1}
    assert not {"db", "init", "baseline", "commit", "cpus", "started_at"} & facts.keys()
    for file in (tmp_path / "out").iterdir():
        assert b"annsecret" not in file.read_bytes()
        assert str(tmp_path).encode() not in file.read_bytes()


def test_the_card_says_what_it_is_and_no_text_in_it_is_markup(tmp_path: Path) -> None:
    names = "x | y <script>1</script> [a](http://evil) `b`"
    config = {"models": [names], "questions": names, "judges": [names], "prompt": {"name": names}}
    made = [mails(model=names, run_id=names)]
    out = tmp_path / "out"
    export(run_of(tmp_path / "run [a](http:) <b>", made, config), out)
    text = (out / "README.md").read_text("utf-8")
    front: dict[str, Any] = DatasetCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    assert front["license"] == "unknown"
    [own] = front["configs"]
    assert own["data_files"] == [{"split": "rollouts", "path": "rollouts.parquet"}]
    shown = str(MarkdownIt("commonmark").enable("table").render(text.split("---\n", 2)[2]))
    assert "<script" not in shown
    assert "<a " not in shown
    assert "<b>" not in shown
    for column in COLUMNS:
        assert f"<td>{column.name}</td>" in shown
    assert "list of string" in shown
    for said in ("the text of 2 mails", "The license is unknown", "The mail may be real"):
        assert said in shown


def test_a_synthetic_world_is_told_as_such_and_a_killed_run_as_well(tmp_path: Path) -> None:
    row = question(1, provenance={"model": "synthetic"}).to_row()
    run = run_of(tmp_path / "run", [trajectory("a", question=row)])
    (run.folder / "COMPLETE").unlink()
    with run.trajectories.open("ab") as file:
        file.write(b'{"torn')
    export(run, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "The people, companies and mails are made up." in text
    assert "The run had not come to its end." in text


def test_what_can_not_be_exported_is_a_line(tmp_path: Path) -> None:
    def refused(run: Run, **more: Any) -> str:
        with pytest.raises(UserError) as caught:
            export(run, tmp_path / "out", **more)
        assert not (tmp_path / "out").exists()
        assert not [each for each in tmp_path.iterdir() if each.name.startswith(".out")]
        return str(caught.value)

    assert "has no episode;" in refused(run_of(tmp_path / "none", []))
    run = run_of(tmp_path / "run", [trajectory("a")])
    assert "of the split train" in refused(run, split="train")
    with run.trajectories.open("ab") as file:
        file.write(b"{}\n")
    assert "line 2 of" in refused(run)
    (run.folder / "config.json").write_text("[")
    assert "config.json" in refused(run)


def test_an_earlier_export_is_replaced_and_nothing_else_is(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [trajectory("a"), episode(question(1), "right")])
    out = tmp_path / "out"
    export(run, out)
    export(run, out, "test")
    assert not (out / "rollouts.parquet").exists()
    before = (out / "run.json").read_bytes()
    (out / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="something else"):
        export(run, out)
    assert (out / "run.json").read_bytes() == before
