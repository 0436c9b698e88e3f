"""The inbox of `verified.py`, and verifying rows of it with a model at the wire."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from art_e.inbox.file import InboxFile
from art_e.question import Question
from data_pipeline.golden.asking import Asker, responses_folder
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.model_checks import ModelChecks
from data_pipeline.golden.verify import verify
from evals.judges.llm import LlmJudge
from tests.builders import QUICK
from tests.data_pipeline.golden import verified
from tests.data_pipeline.golden.verified import JUDGE, READER, ROWS, Verified
from tests.provider import Provider, Reply, Request


@pytest.fixture(scope="module")
def verified_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify") / "inbox.duckdb"
    verified.write_inbox(path)
    return path


@pytest.fixture(scope="module")
def inbox_file(verified_db: Path) -> Iterator[InboxFile]:
    with InboxFile(verified_db) as file:
        yield file


@pytest.fixture
def run(
    inbox_file: InboxFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Verified]:
    """Verify rows with a rule of a provider, the same for all runs; replies stay in `folder`."""
    current: list[Callable[[Request], Reply]] = []

    def run(
        rule: Callable[[Request], Reply],
        rows: tuple[Question, ...] = ROWS,
        folder: Path = tmp_path,
        concurrency: int = 4,
        max_cost: float | None = None,
        **options: Any,
    ) -> GoldenSet:
        current[:] = [rule]
        golden = GoldenSet(list(rows))
        asker = Asker(
            READER, folder, "read", concurrency=concurrency, max_cost_usd=max_cost, retries=QUICK
        )
        judge = LlmJudge(JUDGE, cache=responses_folder(folder, "judge", JUDGE), retries=QUICK)
        checks = ModelChecks(asker, judge)
        verify(inbox_file, golden, checks, concurrency=concurrency, **options)
        golden.sort()
        return golden

    def latest(request: Request) -> Reply:
        return current[0](request)

    with Provider(latest) as provider:
        provider.stand_in_for_openai(monkeypatch)
        yield run
