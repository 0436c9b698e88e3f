"""Inbox files that many tests share (small, synthetic, Enron's), and a taught model."""

import dataclasses
import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings

from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.tools import View
from data_pipeline.ingest.batch import default_rules
from data_pipeline.ingest.sources import open_source
from data_pipeline.synthetic.world import WorldConfig, messages
from tests.builders import BOB, QUESTION, Start, make_inbox, once, real_data, tries, write_inbox

pytest_plugins = ["tests.command_line"]

# The models here are tiny: a second thread of each process takes more time than it saves.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Keys and servers are those that a test sets.
for name in [each for each in os.environ if re.search("_API_(KEY|BASE)$|_BASE_URL$", each)]:
    del os.environ[name]


def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than cores, because tests wait for the processes that they start."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out long tests except under `make fire`; run whole-system tests (slow) first."""
    long = [item for item in items if item.get_closest_marker("long") and "FIRE" not in os.environ]
    config.hook.pytest_deselected(items=long)
    selected = [item for item in items if item not in long]
    items[:] = sorted(selected, key=lambda item: item.path.parent != Path(__file__).parent)


def pytest_collection_finish() -> None:
    """Hide the libraries' million objects, which stay to the end, from garbage collection."""
    gc.freeze()


# Tests don't fail on a busy machine. Examples don't change the state of function fixtures.
settings.register_profile(
    "untimed",
    deadline=None,
    max_examples=tries(50, 1_000),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("untimed")


class RealInbox(NamedTuple):
    """The real archive, ingested: `folder` holds the archive, nasty.tsv and questions.jsonl."""

    folder: Path
    db: Path

    @property
    def archive(self) -> Path:
        return self.folder / "enron-maildir.tar.xz"


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """Return the folder of this session that all workers share."""
    folder = tmp_path_factory.getbasetemp()
    return folder if worker_id == "master" else folder.parent


@pytest.fixture(scope="session")
def world_db(shared: Path) -> Path:
    """Return the inbox file of a synthetic world of 1,000 mails."""
    config = WorldConfig(size=1000)
    return once(shared / "world.duckdb", lambda db: make_inbox(db, messages(config)))


@pytest.fixture(scope="session")
def world(world_db: Path) -> Iterator[InboxFile]:
    with InboxFile(world_db) as file:
        yield file


@pytest.fixture(scope="session")
def real_inbox(shared: Path) -> RealInbox:
    """Ingest the real archive under the rules for Enron mail; skip the test without one."""
    folder = real_data()

    def make(db: Path) -> None:
        archive = open_source(str(folder / "enron-maildir.tar.xz"), "enron")
        make_inbox(db, archive, default_rules("enron"))

    return RealInbox(folder, once(shared / "enron.duckdb", make))


@pytest.fixture(scope="session")
def inbox_file(shared: Path) -> Iterator[InboxFile]:
    with InboxFile(once(shared / "bob.duckdb", write_inbox)) as file:
        yield file


@pytest.fixture(scope="session")
def start(inbox_file: InboxFile) -> Start:
    inbox = inbox_file.open_inbox(BOB, QUESTION.query_date)

    def begin(max_turns: int = 10, handles: bool = True, **fields: Any) -> Episode:
        question = dataclasses.replace(QUESTION, **fields)
        return Episode(inbox, question, max_turns=max_turns, view=View(handles=handles))

    return begin


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from tests.browser import running_browser

    with running_browser() as running:
        yield running


@pytest.fixture(scope="session")
def taught(start: Start, shared: Path) -> Path:
    """Train a checkpoint on some episodes."""
    from tests.taught import teach

    return once(shared / "taught-qwen", lambda folder: teach(start, folder))
