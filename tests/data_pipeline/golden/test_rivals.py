"""What a search finds besides the gold mails: copies are left out, and other inboxes' mail is."""

from collections.abc import Iterator

import pytest

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from tests.builders import BOB, date_header, make_inbox, raw
from tests.data_pipeline.golden.verified import row

GOLD = "The lease of the harbor office ends on May 3.\n\nBring the key."


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inbox]:
    db = tmp_path_factory.mktemp("rivals") / "inbox.duckdb"
    mails = [
        raw("<gold@t>", subject="Lease", body=GOLD, date=date_header(6)),
        raw("<copy@t>", subject="Fwd: Lease", body=f"  {GOLD.upper()}", date=date_header(7)),
        raw("<part@t>", subject="Re: Lease", body="> Bring the key.\n> ", date=date_header(8)),
        raw(
            "<reply@t>",
            subject="Re: Lease",
            body="Is the harbor lease not over in June?\n\n> " + GOLD.replace("\n", "\n> "),
            date=date_header(9),
        ),
        raw("<eve@t>", subject="Harbor lease", body="The lease is mine.", to="eve@test.example"),
        raw("<zoe@t>", subject="Dinner", body="With Zoe at Nonno's.", date=date_header(10)),
        *(
            raw(f"<more-{n}@t>", subject="Harbor", body=f"Harbor lease number {n}.")
            for n in range(20)
        ),
    ]
    make_inbox(db, mails)
    with InboxFile(db) as file:
        yield file.open_inbox(BOB)


ASKED = row("q", "When does the harbor lease end?", "May 3", "gold")
