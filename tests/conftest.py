"""Inbox files that several tests search: the synthetic world's and, where there is one, Enron's."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from art_e.inbox.file import InboxFile
from data_pipeline.ingest.batch import default_rules
from data_pipeline.ingest.build import IngestReport, Source, ingest
from data_pipeline.ingest.detect import open_source
from data_pipeline.synthetic.world import WorldConfig, messages
from tests.builders import make_inbox, real_data

pytest_plugins = ["tests.command_line"]

# How long a thing takes is for the benchmarks, not for tests on a busy machine.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


class RealInbox(NamedTuple):
    """The real archive, ingested: `folder` holds the archive, nasty.tsv and questions.jsonl."""

    folder: Path
    db: Path
    report: IngestReport

    @property
    def archive(self) -> Path:
        return self.folder / "enron-maildir.tar.xz"


@pytest.fixture(scope="session")
def world_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The inbox file of a synthetic world of 1,000 mails."""
    db = tmp_path_factory.mktemp("world") / "inbox.duckdb"
    make_inbox(db, messages(WorldConfig(size=1000)))
    return db


@pytest.fixture(scope="session")
def world(world_db: Path) -> Iterator[InboxFile]:
    """The same, opened."""
    with InboxFile(world_db) as file:
        yield file


@pytest.fixture(scope="session")
def real_inbox(tmp_path_factory: pytest.TempPathFactory) -> RealInbox:
    """The real archive under the rules for Enron mail; skips where there is none."""
    folder = real_data()
    db = tmp_path_factory.mktemp("real") / "inbox.duckdb"
    messages = open_source(str(folder / "enron-maildir.tar.xz"), "enron")
    report = ingest([Source(messages, default_rules("enron"))], db)
    return RealInbox(folder, db, report)
