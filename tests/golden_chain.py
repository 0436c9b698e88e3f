"""The golden set's commands, one after the other, against a provider that plays all models."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner, Result

from art_e.cli.main import app
from art_e.inbox.file import InboxFile
from data_pipeline.golden.generate import Options, make_plan
from data_pipeline.golden.inboxes import Counts
from tests.forked import Forked
from tests.golden_player import PLAN, Unreadable, batch_key, generated
from tests.provider import KEY, Provider

WRITER, READER, JUDGE = "openai/gpt-4.1", "openai/gpt-4.1-mini", "openai/gpt-4o"


class Planned(NamedTuple):
    """A batch that will be put before the generator: its id, its key, and what it will say."""

    batch: str
    key: str
    items: list[dict[str, Any]]


class Chain:
    """A golden set in `folder`/set, from two inboxes of `db`: the first trains, the second tests.

    A batch is asked about every fault of the player's plan.
    """

    def __init__(self, db: Path, inboxes: Sequence[str], batches: int, folder: Path) -> None:
        self.db, self.inboxes, self.batches, self.folder = db, inboxes, batches, folder
        self.set = folder / "set"

    def planned(self) -> list[Planned]:
        """The batches, in their order."""
        with InboxFile(self.db) as file:
            counts = Counts(1, 0, 1)
            options = Options(
                counts=counts,
                inboxes=tuple(self.inboxes),
                batches=self.batches,
                questions=len(PLAN),
            )
            plan = make_plan(file, options, WRITER)
        return [
            Planned(batch.id, batch_key(data["mails"]), generated(data))
            for batch, data in zip(plan.batches, plan.data, strict=True)
        ]

    def invoke(self, provider: Provider, step: str, *more: object) -> Result:
        """Run a step in this process."""
        runner = CliRunner(env=self._environment(provider))
        return runner.invoke(app, self._arguments(step, more))

    def done(self, provider: Provider, step: str, *more: object) -> dict[str, Any]:
        """Run a step in this process, which must succeed; its sums."""
        result = self.invoke(provider, step, "--json", *more)
        assert result.exit_code == 0, result.output
        sums: dict[str, Any] = json.loads(result.stdout)["sums"]
        return sums

    def start(self, forked: Forked, provider: Provider, step: str, *more: object) -> int:
        """Run a step as a process of its own; its id."""
        return forked.start(self._arguments(step, more), self._environment(provider))

    def _environment(self, provider: Provider) -> dict[str, str]:
        return {
            "ART_E_HOME": str(self.folder / "home"),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": provider.base_url,
        }

    def _arguments(self, step: str, more: Sequence[object]) -> list[str]:
        named = [part for each in self.inboxes for part in ("--inbox", each)]
        own: dict[str, list[object]] = {
            "generate": [
                "-m", WRITER, "--batches", self.batches, "--questions", len(PLAN),
                "--train", 1, "--validation", 0, "--test", 1, *named,
            ],
            "verify": ["-m", READER, "--judge", JUDGE],
        }  # fmt: skip
        where = ["--db", self.db, "--out", self.set]
        return [str(each) for each in ["golden", step, *where, *own.get(step, []), *more]]


def unreadable(planned: Sequence[Planned], *how: Unreadable) -> dict[str, Unreadable]:
    """The first batches with replies that can't be read, one for each way of `how`."""
    return {each.key: way for each, way in zip(planned, how, strict=False)}
