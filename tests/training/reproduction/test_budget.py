"""Money that ran out is told, and what is there is no figure."""

import json
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from tests.golden import Chain, Player
from tests.provider import Provider
from training.reproduction.budget import check_golden, check_run


def test_a_golden_set_that_was_cut_short(world_db: Path, tmp_path: Path) -> None:
    with InboxFile(world_db) as file:
        owners = [each.address for each in file.inboxes(2)]
    chain = Chain(world_db, owners, 1, tmp_path)
    manifest = chain.set / "manifest.json"
    with Provider(Player()) as provider:
        chain.done(provider, "generate")
        check_golden(chain.set)
        whole = manifest.read_text("utf-8")
        row = json.loads(whole)
        assert row["steps"]["generate"]["batches"]["lost"] == {}
        row["steps"]["generate"]["batches"]["lost"] = {"budget": 1}
        manifest.write_text(json.dumps(row))
        with pytest.raises(UserError, match=r"1 batches .* golden\.max_cost_usd"):
            check_golden(chain.set)
        manifest.write_text(whole)
        chain.done(provider, "filter")
        chain.done(provider, "verify", "--max-cost", "0.000001")
        with pytest.raises(UserError, match="checks were not made"):
            check_golden(chain.set)
        chain.done(provider, "verify")
        check_golden(chain.set)


def test_a_run_that_was_cut_short(tmp_path: Path) -> None:
    figures = {"n": 9, "errors_by_kind": {"timeout": 2}}
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"models": {"openai/o3": figures}}))
    check_run(tmp_path, "baselines.max_cost_usd")
    path.write_text(
        json.dumps(
            {"models": {"openai/o3": {**figures, "not_asked": 4, "stopped": {"message": "spent"}}}}
        )
    )
    with pytest.raises(UserError, match=r"4 of 13 .*openai/o3.*baselines\.max_cost_usd \(spent\)"):
        check_run(tmp_path, "baselines.max_cost_usd")
