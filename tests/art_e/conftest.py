"""The small inbox file, opened once, and episodes over it."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.tools import View
from tests import builders as episodes
from tests.builders import QUESTION, Start


@pytest.fixture(scope="session")
def inbox_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    with episodes.write_inbox(tmp_path_factory.mktemp("bob") / "inbox.duckdb") as file:
        yield file


@pytest.fixture(scope="session")
def start(inbox_file: InboxFile) -> Start:
    inbox = inbox_file.open_inbox(episodes.BOB, QUESTION.query_date)

    def begin(max_turns: int = 10, handles: bool = True, **fields: Any) -> Episode:
        question = dataclasses.replace(QUESTION, **fields)
        return Episode(inbox, question, max_turns=max_turns, view=View(handles=handles))

    return begin


@pytest.fixture(scope="session")
def taught(start: Start, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A checkpoint that has learnt some episodes; one worker trains it, the others wait."""
    from tests.taught import teach

    shared = tmp_path_factory.getbasetemp()
    shared = shared if worker_id == "master" else shared.parent
    folder = shared / "taught-qwen"
    with FileLock(shared / "taught-qwen.lock"):
        if not folder.exists():
            teach(start, shared / "taught-qwen.new").rename(folder)
    return folder
