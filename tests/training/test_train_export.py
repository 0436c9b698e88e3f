"""`art-e train export`: a run's model, shown before it leaves, pushed, and asked again."""

import json
from pathlib import Path

import pytest

from tests import tiny_qwen
from tests.command_line import ANN, Run, json_of, the_error
from tests.hub import Hub, no_network, running
from tests.training import tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose model is of random weights."""
    folder = tmp_path_factory.mktemp("run")
    tokenizer = tiny_qwen.make_tokenizer(["When does the lease end?", tiny_qwen.stock_template()])
    model = tiny_qwen.make_model(tokenizer, hidden=32)
    tiny_qwen.save(model, tokenizer, folder / "checkpoints" / "checkpoint-4")
    (folder / "checkpoints" / "checkpoint-4" / "optimizer.pt").write_bytes(b"state")
    config = {"kind": "sft", "seed": 0, "recipe": tiny.recipe().to_row()}
    (folder / "config.json").write_text(json.dumps(config))
    metrics = {"best_checkpoint": "checkpoints/checkpoint-4", "alarms": []}
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_a_dry_run_lists_what_the_push_sends_and_asks_nobody(
    art_e: Run, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("train", "export", trained, "--to", tmp_path / "out", "--push", "me/agent")
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        with no_network():
            dry = json_of(art_e(*command, "--dry-run", "--json"))
            shown = art_e(*command, "--dry-run", "--public").stdout
        assert hub.requests == 0
        pushed = json_of(art_e(*command, "--json"))
        # What a version before had, of another form, goes with the next.
        hub.repos["me/agent"] |= {"adapter_config.json": b"{}", "mine.txt": b""}
        json_of(art_e(*command, "--json"))
    sent = {each["path"]: each["bytes"] for each in dry["push"]["files"]}
    received = {name: len(data) for name, data in hub.repos["me/agent"].items()}
    assert received == {**sent, "mine.txt": 0}
    assert sorted(sent) == dry["files"]
    assert pushed["push"]["files"] == dry["push"]["files"]
    assert pushed["url"] == f"{hub.url}/me/agent"
    assert (hub.types, hub.private) == ({"me/agent": "model"}, {"me/agent": True})
    assert "would go to the hub as the model me/agent (public):" in shown
    assert "  they have learnt from made-up mail" in shown.splitlines()


def test_what_was_exported_is_asked_as_the_command_says(
    art_e: Run, trained: Path, db: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = art_e("train", "export", trained, "--to", out)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"art-e ask --model local:{out} --recipe {out}" in result.stderr
    asked = ("When does the lease end?", "--inbox", ANN, "--db", db, "--json")
    answered = art_e("ask", *asked, "--model", f"local:{out}", "--recipe", out)
    # Weights of chance say nothing of sense, and may say it without an end.
    assert json.loads(answered.stdout)["usage"]["completion_tokens"] > 0


def test_what_is_wrong_is_a_line(art_e: Run, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "art-e runs list" in the_error(art_e("train", "export", "none", "--to", out))
    assert "no checkpoint" in the_error(art_e("train", "export", tmp_path, "--to", out))
    assert "leave out --base-id" in the_error(
        art_e("train", "export", trained, "--to", out, "--base-id", "me/base")
    )
    assert "add --push" in the_error(art_e("train", "export", trained, "--to", out, "--dry-run"))
    assert not out.exists()
