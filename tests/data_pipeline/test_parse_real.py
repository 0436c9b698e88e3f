"""Difficult messages of the real Enron mail, by what must hold of them (no mail text here).

Set ART_E_REAL_DATA to a folder with `enron-maildir.tar.xz` and `nasty.tsv`.
"""

import os
import re
from pathlib import Path

import pytest

from data_pipeline.ingest import sources as enron
from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import ParsedEmail

REAL_DATA = os.environ.get("ART_E_REAL_DATA")

pytestmark = pytest.mark.skipif(
    REAL_DATA is None, reason="ART_E_REAL_DATA names no folder with enron-maildir.tar.xz, nasty.tsv"
)

CALENDAR = ("calendar/137.", "test/calendar/90.", "test/calendar/93.")


@pytest.fixture(scope="module")
def nasty() -> dict[str, ParsedEmail]:
    folder = Path(REAL_DATA or "")
    lines = (folder / "nasty.tsv").read_text(encoding="utf-8").splitlines()
    wanted = {line.partition("\t")[0] for line in lines if line.strip()}
    emails: dict[str, ParsedEmail] = {}
    for raw in enron.read_enron(folder / "enron-maildir.tar.xz"):
        if raw.source in wanted:
            email = parse_message(raw)
            assert isinstance(email, ParsedEmail), email
            emails[raw.source] = email
    assert set(emails) == wanted
    return emails


def test_all_are_clean_and_complete(nasty: dict[str, ParsedEmail]) -> None:
    for source, email in nasty.items():
        boxes = [email.sender, *email.to, *email.cc, *email.bcc]
        texts = [email.subject, email.body, *(text for box in boxes for text in box)]
        assert not any(re.search("[\x00\ud800-\udfff]", text) for text in texts), source
        assert email.message_id.endswith("@thyme>"), source
        assert email.sent_at is not None, source
        assert email.body, source
        assert all("@" in box.address for box in boxes), source


def test_broken_headers_are_mended(nasty: dict[str, ParsedEmail]) -> None:
    for tail in CALENDAR:
        email = nasty[f"maildir/whalley-g/{tail}"]
        assert "Mime-Version" not in email.body
        assert "X-Folder" not in email.body
        assert len(email.body) < 200
        assert email.subject.endswith(")")
        assert email.sender.name
    first, second = (nasty[f"maildir/whalley-g/{tail}"] for tail in CALENDAR[:2])
    assert first.subject == second.subject
    assert len(first.subject) > 120
    assert first.body == second.body


def test_leftover_quoted_printable_and_html_are_gone(nasty: dict[str, ParsedEmail]) -> None:
    for source in ("lavorato-j/personal/45.", "whalley-g/inbox/473."):
        body = nasty[f"maildir/{source}"].body
        assert not re.search(r"=3D|=A0|[^=]=\n", body)
        assert not re.search(r"</?(?:html|td|font|br)\b", body, re.IGNORECASE)
        assert len(body) > 2_000
    assert "=\n" not in nasty["maildir/dasovich-j/all_documents/73."].body


def test_long_lists_and_odd_addresses(nasty: dict[str, ParsedEmail]) -> None:
    assert len(nasty["maildir/kitchen-l/_americas/netco_eol/23."].to) == 594
    assert len(nasty["maildir/kean-s/california___working_group/24."].to) > 100
    forwarded = nasty["maildir/kitchen-l/_americas/regulatory/129."]
    assert len(forwarded.to) == 109
    assert sum(not box.address.isascii() for box in forwarded.to) == 1
    sender = nasty["maildir/farmer-d/deleted_items/personal/2."].sender
    assert len(sender.address.partition("@")[0]) > 80


def test_absurd_dates_are_kept_where_nothing_better_is_known(nasty: dict[str, ParsedEmail]) -> None:
    placeholder = nasty["maildir/kean-s/all_documents/364."].sent_at
    assert placeholder is not None
    assert (placeholder.year, placeholder.month, placeholder.day) == (1980, 1, 1)
    future = nasty["maildir/whalley-g/inbox/44."].sent_at
    assert future is not None
    assert future.year == 2004
