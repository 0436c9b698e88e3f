"""`art-e runs export`: a run of the command line as a data set, shown, pushed, loaded again."""

from pathlib import Path
from typing import Any

import datasets
import pytest

from art_e.trajectory import read_trajectories
from data_pipeline.rollouts import from_row
from tests.command_line import ANN, Run, json_of, the_error
from tests.hub import Hub, no_network, running


@pytest.fixture
def run(art_e: Run, db: Path) -> Path:
    """A finished run of the offline policy; hostile mail is in what it was shown."""
    asked = art_e("ask", "What is the zebra prize code?", "--inbox", ANN, "--db", db, "--json")
    return Path(json_of(asked)["trajectory"]).parent


def test_a_run_is_exported_by_its_name_and_loads(art_e: Run, run: Path, tmp_path: Path) -> None:
    told = json_of(art_e("runs", "export", run.name, "--to", tmp_path / "out", "--json"))
    assert told["episodes"] == {"rollouts": 1}
    assert (told["push"], told["url"]) == (None, None)
    assert told["contents"]["mails"] >= 1
    rows: Any = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    [made] = read_trajectories(run / "trajectories.jsonl")
    assert [from_row(row) for row in rows["rollouts"]] == [made]
    result = art_e("runs", "export", run, "--to", tmp_path / "out")
    assert result.stdout == "      1  rollouts\n"
    assert "1 episode written to" in result.stderr


def test_a_dry_run_lists_what_the_push_sends_and_asks_nobody(
    art_e: Run, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    # Mail of anybody is in it, so it is private unless asked otherwise.
    public = json_of(art_e(*command, "--public", "--dry-run", "--json"))["push"]
    assert public["private"] is False


def test_what_is_wrong_is_a_line(art_e: Run, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert "art-e runs list" in the_error(art_e("runs", "export", "none", "--to", out))
    assert "there are train" in the_error(
        art_e("runs", "export", run, "--to", out, "--split", "all")
    )
    assert "no episode on questions of the split test" in the_error(
        art_e("runs", "export", run, "--to", out, "--split", "test")
    )
    assert "--push" in the_error(art_e("runs", "export", run, "--to", out, "--dry-run"))
    assert not out.exists()
