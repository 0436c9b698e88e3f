"""Search as a user sees it: what is found, in which order, how it is shown, and by which words."""

import datetime as dt
import re
import sys
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.cli.mail import match_spans
from art_e.episode import gold_mails
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.query import parse_query
from art_e.inbox.snippet import SNIPPET_CHARS, cut_snippet
from art_e.inbox.tokenizer import addresses, fold, search_words, stems, tokens, words
from art_e.tools import Tools, View
from data_pipeline.ingest import batch
from tests import builders
from tests.builders import BOB, date_header, message_ids, new_file, raw, tries, with_files
from tests.queries import Query, as_row, plain_connection, run_query, run_sql

FILLER = "The weather here stays dry and nobody minds. " * 30
CASES = builders.table(__file__, "search.toml")


def filled(text: str) -> str:
    return text.replace("FILLER", FILLER).replace("DOTS", "." * 115)


MAILS = [raw(**{**fields, "body": filled(fields["body"])}) for fields in CASES["mails"]]
MAILS.append(raw("<undated@t>", subject="Someday", body="Whenever.", date=None))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    with new_file(tmp_path_factory.mktemp("search") / "inbox.duckdb", MAILS) as opened:
        yield opened


@pytest.fixture(scope="module")
def inbox(file: InboxFile) -> Inbox:
    return file.open_inbox(BOB)


def day(number: int) -> dt.date:
    return dt.date(2020, 1, number)


def test_more_matching_keywords_come_first(inbox: Inbox) -> None:
    hits = inbox.search(["portland", "move", "february"])
    assert message_ids(hits) == ["<move@t>", "<rain@t>", "<budget@t>"]
    assert [hit.missing for hit in hits] == [(), ("move", "february"), ("portland", "february")]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_subjects_count_more_than_bodies(tmp_path: Path) -> None:
    in_subject = raw("<s@t>", subject="Lease talk", body="Please call me")
    in_body = raw("<b@t>", subject="Please call", body="Lease talk me", date=date_header(9))
    with new_file(tmp_path / "inbox.duckdb", [in_subject, in_body]) as file:
        assert message_ids(file.open_inbox(BOB).search(["lease"])) == ["<s@t>", "<b@t>"]


def test_newest_first_among_equals_and_without_keywords(inbox: Inbox) -> None:
    hits = inbox.search(["lunch", "then"])
    assert message_ids(hits)[:2] == ["<again2@t>", "<again@t>"]
    assert hits[0].score == hits[1].score
    hits = inbox.search([])
    in_order = "undated again2 again who cafe budget rain move".split()
    assert message_ids(hits) == [f"<{name}@t>" for name in in_order]
    assert {hit.score for hit in hits} == {0.0}
    assert message_ids(inbox.search(["?!", ""])) == message_ids(hits)
    # All words are demanded before the cut, and then the newest mail comes first.
    assert message_ids(inbox.search(["in", "february"], all_words=True)) == ["<move@t>"]
    assert message_ids(inbox.search(["in"], all_words=True, max_results=1)) == ["<rain@t>"]
    assert inbox.search(["in", "zeppelin"], all_words=True) == []


def test_searched_words_are_normalised(inbox: Inbox) -> None:
    for form in ("moved", "MOVE", "Mové?"):
        assert set(message_ids(inbox.search([form]))) == {"<move@t>", "<budget@t>"}
    assert inbox.search(["move to portland"]) == inbox.search(["move", "portland"])
    assert inbox.search(["move", "moved"])[0].missing == ()
    assert inbox.search(["what is the", "budget"]) == inbox.search(["budget"])
    assert message_ids(inbox.search(["The Who"]))[0] == "<who@t>"
    # Unknown words are missing, once in all their forms, and alone find nothing.
    (hit,) = inbox.search(["budget", "xylophone", "xylophones"])
    assert hit.missing == ("xylophone",)
    assert hit.score < inbox.search(["budget"])[0].score
    assert inbox.search(["xylophone"]) == []


@pytest.mark.parametrize(("parts", "sent", "received"), [*CASES["people"], (["\ud800"], [], [])])
def test_people(inbox: Inbox, parts: list[str], sent: list[str], received: list[str]) -> None:
    for part in parts:
        assert message_ids(inbox.search([], from_addr=part)) == sent
        assert message_ids(inbox.search([], to_addr=part)) == received


def test_dates_from_inclusive_to_exclusive(inbox: Inbox) -> None:
    between = inbox.search([], sent_after=day(9), sent_before=day(10))
    assert message_ids(between) == ["<cafe@t>"]
    assert message_ids(inbox.search([], sent_after=day(12))) == ["<again2@t>"]
    assert message_ids(inbox.search([], sent_before=day(7))) == ["<move@t>"]
    assert len(inbox.search([], sent_after=dt.date.min, sent_before=dt.date.max)) == 7
    assert inbox.search([], sent_after=day(9), sent_before=day(9)) == []


def test_a_mails_day_is_that_of_its_own_zone(tmp_path: Path) -> None:
    evening = "Wed, 8 Jan 2020 22:00:00 -0800"  # the 9th in UTC
    mails = [raw("<late@t>", date=evening), raw("<utc@t>", body="New.", date=date_header(9, 6))]
    with new_file(tmp_path / "inbox.duckdb", mails) as file:
        inbox = file.open_inbox(BOB)
        for keywords in ([], ["hello"]):
            on_the_8th = inbox.search(keywords, sent_after=day(8), sent_before=day(9))
            assert message_ids(on_the_8th) == ["<late@t>"]
            assert message_ids(inbox.search(keywords, sent_after=day(9))) == ["<utc@t>"]
        for mail in (*on_the_8th, inbox.read("<late@t>")):
            assert mail is not None and mail.to_json()["date"] == "2020-01-08T22:00-08:00"
        for utc, late in ((False, "2020-01-08"), (True, "2020-01-09")):
            hits = builders.run(Tools(inbox, View(utc=utc)), builders.search())["hits"]
            assert [hit["date"] for hit in hits] == ["2020-01-09", late]


def test_reading_by_id_with_and_without_brackets(inbox: Inbox) -> None:
    mail = inbox.read("<budget@t>")
    assert mail is not None
    assert inbox.read(" budget@t ") == mail
    assert [str(each) for each in mail.cc] == ["Émile Zola <emile@zola.example>"]
    assert inbox.canonical_id("budget@t") == "<budget@t>"
    for other in ("<none@t>", "", "<>", "\ud800", "<cleo@t>"):
        assert (inbox.read(other), inbox.canonical_id(other)) == (None, None)


@pytest.mark.parametrize(("body", "sought", "part"), CASES["snippets"])
def test_snippet_is_own_text_with_the_most_words(body: str, sought: str, part: str) -> None:
    snippet = cut_snippet(filled(body), stems(words(sought)))
    assert filled(part) in snippet
    assert not re.search("Betreff|Subject|wrote|Forwarded", snippet)


def test_the_snippet_begins_and_ends_between_words() -> None:
    body = "four " * 100 + "needle " + "seven77 " * 100
    start = body.rindex(" ", 0, body.index("needle") - SNIPPET_CHARS // 6) + 1
    end = body.rindex(" ", 0, body.index("needle") - SNIPPET_CHARS // 6 + SNIPPET_CHARS)
    assert cut_snippet(body, ["needl"]) == f"...{body[start:end].strip()}..."
    assert cut_snippet(body, ["four"]).startswith("four four")
    assert cut_snippet("four " * 100 + "needle", ["needl"]).endswith(" needle")


@pytest.mark.parametrize("word", ["NAÏVE", "aging", "happy", "moving", "2001"])
def test_the_snippet_finds_every_form_of_a_word(word: str) -> None:
    body = FILLER + f"Then comes {word} at last. " + FILLER
    assert f"comes {word} at" in cut_snippet(body, stems(words(word)))


@given(st.text(st.sampled_from("ab é\n.\u0301界"), max_size=900), st.sampled_from("abé"))
def test_snippets_are_short_lines_of_the_body(body: str, sought: str) -> None:
    snippet = cut_snippet(body, words(sought))
    assert len(snippet) <= 2 * SNIPPET_CHARS + 6 and "\n" not in snippet
    line = " ".join(body.split())
    assert snippet.removeprefix("...").removesuffix("...") in line
    if len(body) <= SNIPPET_CHARS:
        assert snippet == line


def test_mails_that_say_the_same_are_one_hit(tmp_path: Path) -> None:
    lease = {"subject": "Lease", "body": "The lease  ends\nin May."}
    mails = [
        raw("<a@t>", **lease, date=date_header(6)),
        raw("<b@t>", subject="Lease", body="The lease ends in May.", date=date_header(7), cc="x@t"),
        raw("<other@t>", **lease, sender=BOB, date=date_header(8)),
        with_files(raw("<file@t>", **lease, date=date_header(9)), {"may.txt": b"Signed."}),
        raw("<c@t>", **lease, date=date_header(10), to="zoe@test.example"),
    ]
    with new_file(tmp_path / "inbox.duckdb", mails) as file:
        inbox = file.open_inbox(BOB)
        for keywords in ([], ["lease"]):
            hits = inbox.search(keywords)
            copies = {hit.message_id: hit.copies for hit in hits}
            assert copies == {"<file@t>": 1, "<other@t>": 1, "<b@t>": 2}
            for count in (1, 2, 3):
                assert inbox.search(keywords, max_results=count) == hits[:count]
        listed = builders.run(Tools(inbox), builders.search())["hits"]
        assert [hit.get("copies") for hit in listed] == [None, None, 2]
        assert {*inbox.copies("a@t")} == {"<a@t>", "<b@t>"} and inbox.copies("c@t") == []
        # Its copy counts as a gold mail.
        gold = replace(builders.QUESTION, message_ids=("<a@t>",))
        assert gold_mails(inbox, gold) == [{"<a@t>", "<b@t>"}]


# Words and stems: the same in Python and in SQL, in all of Unicode


INDEXED = "SELECT text, tokens_in(text), addresses_in(text) FROM (SELECT folded(unnest(?)) AS text)"
CHARACTERS = [*map(chr, range(1, 0xD800)), *map(chr, range(0xE000, sys.maxunicode + 1))]


@pytest.mark.parametrize("marks", ["\u0301\u0316", "\u0301\u0316\u0334e\u0301", "\u3099\u0301"])
def test_accents_of_several_classes_take_linear_time(marks: str) -> None:
    started = time.process_time()
    text = f"caf\u00e9 {marks * tries(100_000, 1_000_000)}"
    assert words(text)[0] == "cafe"
    assert time.process_time() - started < tries(5, 50)
    short = f"x{marks * 40}"
    assert fold(short) == fold("".join(sorted(short, key=unicodedata.combining)))


def test_sql_indexes_the_same_words(world: InboxFile) -> None:
    rng = Random(1)
    odd = "ab1@@..-_+ \u00e9\u6771\u4eac\u90fd\u3067\uac00\u30fc\u3005"
    texts = ["".join(rng.choices(odd, k=rng.randint(0, 30))) for _ in range(500)]
    texts += ["".join(rng.choices(CHARACTERS[:0x3400], k=rng.randint(0, 20))) for _ in range(500)]
    texts += [
        "Write to <Ann.B+c@x-1.Example.> or a@b, \u6771\u4eac\u90fd\u306e\u4f1a\u8b70lease",
        "ΟΔΟΣ ΣΑΣ İstanbul e\u0301tude \u1100\u1161\u11a8 ﬁne Ⅻ x² straße q\u0323\u0307 \u0307q",
    ]
    for first in range(0, len(CHARACTERS), tries(8_000, 1_000)):
        some = CHARACTERS[first : first + 1_000]
        texts.append(" ".join(f"{char} A{char}B" for char in some))
    for at in range(0, len(texts), 200):
        some = texts[at : at + 200]
        rows = world.execute(INDEXED, [some]).fetchall()
        assert rows == [(fold(text), tokens(text), addresses(text)) for text in some]


def test_cjk_is_found_by_any_part_of_it(tmp_path: Path) -> None:
    bodies = {
        "tokyo": "\u660e\u65e5\u3001\u6771\u4eac\u90fd\u3067\u4f1a\u8b70", "one": "\u79cb",
        "kyoto": "\u4eac\u90fd\u306e\u79cblease2024",
        "seoul": "\uc11c\uc6b8\uc5d0\uc11c \ud68c\uc758",
    }  # fmt: skip
    mails = [raw(f"<{name}@t>", subject="", body=body) for name, body in bodies.items()]
    with new_file(tmp_path / "inbox.duckdb", mails) as file:
        inbox = file.open_inbox(BOB)
        for words, expected in (
            ("\u6771\u4eac", ["tokyo"]), ("\u4eac\u90fd", ["tokyo", "kyoto"]),
            ("\uc11c\uc6b8", ["seoul"]), ("lease2024", ["kyoto"]), ("\u79cb", ["one"]),
            ("\u6771\u90fd", []),
        ):  # fmt: skip
            ids = message_ids(inbox.search([words]))
            assert sorted(ids) == sorted(f"<{each}@t>" for each in expected)
        for phrase in ('"\u6771\u4eac"', '"\u90fd\u3067"'):
            query = parse_query(phrase, dt.date(2024, 1, 1))
            assert message_ids(inbox.search(query.words, query=query)) == ["<tokyo@t>"]


OTHER_FORMS = builders.table_rows(__file__, "forms.tsv")


def test_words_are_found_in_the_forms_of_their_language(tmp_path: Path) -> None:
    mails = [raw(f"<{n}@t>", subject="", body=text) for n, (text, *_) in enumerate(OTHER_FORMS)]
    with new_file(tmp_path / "inbox.duckdb", mails) as file:
        inbox = file.open_inbox(BOB)
        for number, (text, form, marked) in enumerate(OTHER_FORMS):
            [hit] = inbox.search([form])
            assert (hit.message_id, hit.missing) == (f"<{number}@t>", ())
            places = match_spans(search_words([form]), text)
            assert any(text[slice(*place)].startswith(marked) for place in places), form
            # Words of the mail itself, which SQL knows too, in the one order of both.
            query = Query([text])
            with plain_connection(file.path) as connection:
                rows = [as_row(each) for each in run_query(inbox, query)]
                assert rows == run_sql(connection, BOB, None, query)


def test_a_trademark_sign_and_a_fraction_end_a_word() -> None:
    assert words("Acme™ ½ 2½ ㎏") == ["acme", "½", "2½"]


def test_a_common_word_finds_a_long_mail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its score rounds to nothing; that is not the same as lacking the word.
    monkeypatch.setattr(batch, "MIN_FOR_WORKERS", 10_000)
    few = {"subject": "", "sender": "a@t.example"}
    short = [raw(f"<{n}@t>", body=f"budget {n}", **few) for n in range(1700)]
    long = raw("<long@t>", subject="", body="budget " + "word " * 30_000)
    with new_file(tmp_path / "inbox.duckdb", [*short, long]) as file:
        query = Query(["budget"], from_addr="ann@test.example")
        hits = run_query(file.open_inbox(BOB), query)
        assert message_ids(hits) == ["<long@t>"]
        with plain_connection(file.path) as connection:
            assert [as_row(hit) for hit in hits] == run_sql(connection, BOB, None, query)
