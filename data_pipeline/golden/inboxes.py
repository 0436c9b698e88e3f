"""The inboxes of a golden set, their threads and cited mails, the form of mails in prompts, and
`split`, which divides inboxes into train, validation and test without common gold mail."""

import datetime as dt
import random
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, format_date
from art_e.inbox.schema import statements
from art_e.inbox.threads import DAYS, HEADER, bare_subject
from art_e.inbox.tokenizer import name_sets, stems, words
from art_e.question import SPLITS, Question, Split
from art_e.quotations import LEFT_OUT, added_texts
from art_e.tools import MAX_BODY_CHARS
from data_pipeline.golden.golden_set import GoldenSet, Outcome, by_rule, natural, with_checks

# ---- The mails that questions cite, looked up together.

_FILE = Path(__file__).with_name("queries.sql")
QUERIES = {name: each.template for name, each in statements(_FILE).items()}
OWN_MAIL = QUERIES["own_mail"]


class Cited(NamedTuple):
    """A cited mail: its id as the question's inbox stores it, or the fault. `contents` are content
    digests, several if other inboxes hold mails of this id; the cited id if no inbox does."""

    stored: str | None
    fault: str = ""
    contents: tuple[str, ...] = ()
    body: str = ""


def cited_mails(file: InboxFile, questions: Sequence[Question]) -> dict[str, dict[str, Cited]]:
    """Return the mails that each question cites, by question id and message id."""
    keys = sorted({_key(each, name) for each in questions for name in each.message_ids})
    rows = file.execute(QUERIES["cited"], [[key[part] for key in keys] for part in (0, 1)])
    mails: defaultdict[tuple[str, str], list[_Mail]] = defaultdict(list)
    for address, name, *mail in rows.fetchall():
        mails[address, name].append(tuple(mail))
    return {
        question.id: {
            name: _as_of(question.query_date, name, mails[_key(question, name)])
            for name in question.message_ids
        }
        for question in questions
    }


# Stored id, time, content digest, whether the mail is in the question's inbox, body.
_Mail = tuple[str, dt.datetime | None, str, bool, str]


def _as_of(day: dt.date | None, message_id: str, mails: Sequence[_Mail]) -> Cited:
    matches = [mail for mail in mails if mail[3]]
    for stored, sent_at, content, _, body in matches:
        # An inbox as of a day leaves out mail without a date.
        if day is None or (sent_at is not None and sent_at.date() <= day):
            return Cited(stored, contents=(content,), body=body)
    contents = tuple(dict.fromkeys(mail[2] for mail in matches[:1] or mails)) or (message_id,)
    if not matches:
        place = "in the file, but not in this inbox" if mails else "not in the inbox file"
        return Cited(None, f"is {place}", contents)
    if (sent_at := matches[0][1]) is None:
        return Cited(None, "has no date, so that it is in no inbox as of a day", contents)
    return Cited(None, f"was sent on {sent_at:%Y-%m-%d}, after the query date {day}", contents)


def address_of(question: Question) -> str:
    """Return the address of the question's inbox as inbox files write it."""
    return question.inbox_address.strip().lower()


def _key(question: Question, message_id: str) -> tuple[str, str]:
    name = message_id.strip()
    return address_of(question), name if name.startswith("<") else f"<{name}>"


# ---- Threads, by subject.


class Mail(NamedTuple):
    """A mail that may be drawn; `email_id` is in date order. `people` are ids of addresses."""

    email_id: int
    message_id: str
    sent_at: dt.datetime
    subject: str
    content: bytes
    body: str
    people: list[int]


def threads_of(mails: Iterable[Mail]) -> list[list[Mail]]:
    """Return the threads of mails in date order. A mail without a subject is its own thread."""
    threads: list[list[Mail]] = []
    last: dict[str, list[Mail]] = {}
    for mail in mails:
        subject = " ".join(bare_subject(mail.subject).split())
        thread = last.get(subject) if subject else None
        # After a longer gap, the same subject means another matter ("Expense report").
        if thread is not None and mail.sent_at - thread[-1].sent_at <= dt.timedelta(days=DAYS):
            thread.append(mail)
        else:
            threads.append([mail])
            last[subject] = threads[-1]
    return threads


def mails_of(inbox: Inbox, message_ids: Iterable[str]) -> list[Email]:
    """Return the mails that the inbox has, in the order of the ids and without repeats."""
    mails = inbox.read_many(list(message_ids))
    return list({each.message_id: each for each in mails if each is not None}.values())


# ---- Mails as a model sees them.

MAX_RECIPIENTS = 4
_PIECES, _PIECE_CHARS = 6, 150  # maximum passages of a mail, and characters of a passage

# Disclaimers, and quoted lists of recipients.
_DISCLAIMER = re.compile(r"(?is).*\b(?:intended recipient|property of Enron Corp)\b.*")
_RECIPIENTS = re.compile(rf"(?im)(^[ \t>]*(?:to|cc):[^:]{{150}})[^:]*(?=\n[ \t>]*{HEADER})")


def new_texts(bodies: Iterable[str]) -> list[str]:
    """Return what each mail adds to earlier ones, without disclaimers and long recipient lists."""
    texts = []
    for text in added_texts([body[:MAX_BODY_CHARS] for body in bodies]):
        paragraphs = (_DISCLAIMER.sub("[disclaimer]", each) for each in text.split("\n\n"))
        texts.append(_RECIPIENTS.sub(r"\1 ...", "\n\n".join(paragraphs)))
    return texts


def added_words(text: str) -> int:
    """Return the number of words in one of `new_texts`, without placeholders."""
    return len(words(text.replace(LEFT_OUT, "")))


def passages(text: str, keywords: Collection[str]) -> str:
    """Return the pieces of a text with the rarest `keywords` (stems) in or next to them. Piece i
    scores s[i-1] + 2 s[i] + s[i+1], where s sums 1 / frequency of the piece's keywords."""
    pieces = re.findall(rf"(?s).{{1,{_PIECE_CHARS}}}(?=\s|$)|\S+", text.strip())
    held_stems = [{*keywords}.intersection(stems(words(piece))) for piece in pieces]
    frequency = Counter(stem for each in held_stems for stem in each)
    scores = [*(sum(1 / frequency[stem] for stem in each) for each in held_stems), 0.0]
    near = [scores[at - 1] + 2 * scores[at] + scores[at + 1] for at in range(len(pieces))]
    best = sorted(range(len(pieces)), key=near.__getitem__, reverse=True)[:_PIECES]
    chosen = (piece if at in best else "\n[...]" for at, piece in enumerate(pieces))
    return re.sub(r"(\n\[\.\.\.\])+", r"\1", "".join(chosen)).strip()


def prompt_mails(mails: Sequence[Email], texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return the mails as JSON with the handles m1, m2, ... as ids and `texts` as bodies."""
    return [
        {
            "id": f"m{number}", "date": format_date(mail.date, mail.message_id),
            "from": str(mail.sender),
            "to": _first([str(each) for each in (*mail.to, *mail.cc, *mail.bcc)]),
            "subject": mail.subject, "body": text[:MAX_BODY_CHARS],
        }
        for number, (mail, text) in enumerate(zip(mails, texts, strict=True), start=1)
    ]  # fmt: skip


def _first(names: list[str]) -> list[str]:
    more = len(names) - MAX_RECIPIENTS
    return names if more <= 0 else [*names[:MAX_RECIPIENTS], f"and {more} more"]


# ---- Inboxes and splits.

TRAIN, VALIDATION, TEST = 18, 2, 8  # the reference's 28; of its 20 for training, two validate
MIN_MAILS = 500
MIN_SENT = 20  # in Enron, mailing lists send at most 1 mail, people with 500 mails at least 52


class Counts(NamedTuple):
    """The target number of inboxes per split."""

    train: int = TRAIN
    validation: int = VALIDATION
    test: int = TEST


def choose_inboxes(file: InboxFile, targets: Counts, seed: int, min_mails: int) -> dict[str, Split]:
    """Return the splits of the largest inboxes with at least `min_mails` mails: the owners', or if
    the file has none, those of people (who send mail, unlike lists). Raises `UserError` if none."""
    owners = file.owners()
    parameters = [min_mails, owners, owners, owners, MIN_SENT]
    rows = file.execute(QUERIES["persons"], parameters).fetchall()
    if not rows:
        why = f"no inbox of {'an owner' if owners else 'a person'} holds {min_mails:,} mails"
        fix = "lower --min-mails, or name some with --inbox (art-e inboxes lists them)"
        raise UserError(f"{why}; {fix}")
    # Only the first address of each person, so that nobody is in two splits: "Kaminski, Vince J"
    # is "Vince Kaminski"; a single word ("legal", "jeff") is not a name.
    persons, used_names = list[str](), set[frozenset[str]]()
    for address, spelled in rows:
        names = name_sets(spelled.split(" | "))
        if len(persons) < sum(targets) and names.isdisjoint(used_names):
            persons.append(address)
            used_names |= names
    return draw(persons, seed, targets)


def draw(inboxes: Sequence[str], seed: int, targets: Counts) -> dict[str, Split]:
    """Draw a split for each inbox by `seed`, in about the proportions of `targets` and whatever the
    order of `inboxes`. Each split above 0 gets an inbox if there are enough, test first."""
    first = ("test", "train", "validation")
    weights = {name: weight for name in first if (weight := getattr(targets, name)) > 0}
    if not weights:
        raise UserError("no inbox to draw; give --train, --validation or --test a number above 0")
    shares = {name: len(inboxes) * each / sum(weights.values()) for name, each in weights.items()}
    counts = {name: int(place < len(inboxes)) for place, name in enumerate(weights)}
    # The next inbox goes to the split that is furthest below its share (largest remainder).
    while sum(counts.values()) < len(inboxes):
        counts[max(weights, key=lambda name: shares[name] - counts[name])] += 1
    shuffled = sorted(inboxes)
    random.Random(f"{seed}/inboxes").shuffle(shuffled)
    splits = [name for name in SPLITS for _ in range(counts.get(name, 0))]
    drawn = dict(zip(shuffled, splits, strict=True))
    return {inbox: drawn[inbox] for inbox in inboxes}


# ---- `split`.

# A model may have learned a mail that is gold in training, or that lies in a training inbox, and
# validation chooses the checkpoint. Rows that share gold mail with another split are dropped from
# training first, then from validation, and never from test. A gold mail that a test inbox quotes,
# in full or around the answer, counts as mail of it; so does a repeated question with its answer.

_SHINGLE_WORDS = 5  # rarely equal by chance, yet an edit spoils only five shingles
_PASSAGE_WORDS = 15
Contents = Mapping[str, str]  # a phrase about each mail, by content digest
# Drop a mail if a test inbox contains this share of its shingles (runs of words).
MAX_CONTAINED = 0.8


def split(file: InboxFile, golden: GoldenSet, *, seed: int, targets: Counts) -> None:
    """Give every row the split of its inbox, and drop rows that share gold mail with another split.
    Inboxes keep the splits that `generate` drew, or those of the rows if each inbox has one and
    they differ; else `seed` draws them in the proportions of `targets` (a single inbox goes
    to test). Raises `UserError` if there is no row, or every target is zero."""
    if not golden.questions:
        raise UserError("no rows to split; art-e golden stats shows what dropped them")
    origin, inboxes = _inboxes(golden, seed, targets)
    placed = [replace(each, split=inboxes[address_of(each)]) for each in golden.questions]
    # The gold contents of each question: its mails, and its text.
    mails = [replace(each, message_ids=each.message_ids + each.equivalent_ids) for each in placed]
    gold, bodies = dict[str, dict[str, str]](), dict[str, list[str]]()
    for name, cited in cited_mails(file, mails).items():
        gold[name] = {part: f"gold mail {id_}" for id_, it in cited.items() for part in it.contents}
        bodies |= {it.contents[0]: words(it.body) for it in cited.values() if it.body}
    # Gold mails by content, and passages around answers by question and content.
    parts: dict[str, dict[str, Sequence[str]]] = {name: {} for name in SPLITS}
    for question in placed:
        quotable = {name: bodies[name] for name in gold[question.id] if name in bodies}
        runs = {f"{question.id} {name}": _passage(quotable[name], question) for name in quotable}
        gold[question.id] |= dict.fromkeys(runs, "the passage with the answer")
        gold[question.id][_text(question)] = "the question with its answer"
        parts[inboxes[address_of(question)]] |= quotable | runs
    learned = parts["validation"] | parts["train"]
    tested = sorted(address for address, name in inboxes.items() if name == "test")
    contents = sorted({part for each in placed if each.split != "test" for part in gold[each.id]})
    holders = dict(file.execute(QUERIES["holders"], [contents, tested]).fetchall())
    quoted: dict[str, str] = {}
    for address in tested:
        texts = file.execute(f"SELECT body {OWN_MAIL}", [address])
        mail = (words(body) for (body,) in iter(texts.fetchone, None))
        quoted |= _contained(learned, f"mail of the test inbox {address}", mail)
    counts = {"gold_mails": len(learned.keys() & bodies), "contained": len(quoted.keys() & bodies)}
    # What is also gold in validation itself falls under `shared-gold`.
    training = {name: parts["train"][name] for name in parts["train"].keys() - parts["validation"]}
    quoted |= _contained(training, "gold mail of validation", parts["validation"].values())
    rows = list(_without_leaks(placed, gold, holders, quoted))
    sizes = {name: list(inboxes.values()).count(name) for name in SPLITS}
    settings: dict[str, Any] = {"splits_from": origin, "inboxes": sizes, "contained": counts}
    if origin == "seed":
        settings |= {"seed": seed, "proportions": targets._asdict()}
    golden.finish("split", rows, settings)


def _text(question: Question) -> str:
    return " ".join(words(f"{question.question} {question.answer or ''}"))


def _passage(body: Sequence[str], question: Question) -> Sequence[str]:
    """Return the run that has most words of question and answer; () if no run has any."""
    keywords, last = {*_text(question).split()}, max(0, len(body) - _PASSAGE_WORDS)
    runs = (body[start : start + _PASSAGE_WORDS] for start in range(last + 1))
    best = max(runs, key=lambda run: len(keywords.intersection(run)))
    return best if keywords.intersection(best) else ()


def _contained(
    parts: Mapping[str, Sequence[str]], where: str, mails: Iterable[Sequence[str]]
) -> dict[str, str]:
    """Return a phrase for each part of which the mails contain at least `MAX_CONTAINED`:
    |S(part) & S(mails)| / |S(part)| with shingles S (containment, Broder 1997)."""
    shingles = {name: set(_runs(part, len(part))) for name, part in parts.items() if part}
    known = set[int]().union(*shingles.values())
    sizes = {min(len(part), _SHINGLE_WORDS) for part in parts.values()}
    seen = known.intersection(run for mail in mails for size in sizes for run in _runs(mail, size))
    shares = ((name, len(part & seen) / len(part)) for name, part in shingles.items())
    return {name: f"to {share:.0%} in {where}" for name, share in shares if share >= MAX_CONTAINED}


def _runs(text: Sequence[str], size: int) -> Iterator[int]:
    """Yield the hashed shingles of a text; a short text is a single shingle."""
    parts = (text[start:] for start in range(min(size, _SHINGLE_WORDS)))
    return map(hash, zip(*parts, strict=False))


def _inboxes(golden: GoldenSet, seed: int, targets: Counts) -> tuple[str, dict[str, Split]]:
    used = sorted({address_of(each) for each in golden.questions})
    if "generate" in golden.manifest["steps"]:
        generated: dict[str, Split] = golden.manifest["steps"]["generate"]["splits"]
        return "generate", generated
    carried = {(address_of(each), each.split) for each in golden.questions}
    splits = {inbox: name for inbox, name in carried if name is not None}
    if len(carried) == len(splits) == len(used) and len(set(splits.values())) > 1:
        return "rows", splits
    return "seed", draw(used, seed, targets)


def _without_leaks(
    questions: list[Question], gold: Mapping[str, Contents], holders: Contents, quoted: Contents
) -> Iterator[Outcome]:
    """Yield the questions with their checks, or the failed check if they share gold mail."""
    earlier: dict[str, str] = {}  # the first row of an earlier split for which each content is gold
    for name in ("test", "validation", "train"):
        new: dict[str, str] = {}
        rows = [each for each in questions if each.split == name]
        for question in sorted(rows, key=lambda each: natural(each.id)):
            places: dict[str, Contents] = {"shared-gold": earlier}
            if name != "test":
                places = {"leak-test-inbox": holders, "contained": quoted, **places}
            leaks = {check: _leak(gold[question.id], each) for check, each in places.items()}
            checks = [by_rule(check, "split", leak) for check, leak in leaks.items()]
            fault = next((check for check in checks if not check.passed), None)
            yield (question, fault) if fault else (with_checks(question, checks), None)
            if fault is None:
                for content in gold[question.id]:
                    new.setdefault(content, f"that of {name} question {question.id} too")
        earlier = new | earlier


def _leak(gold: Contents, places: Contents) -> str | None:
    leaks = (f"{what} is {places[content]}" for content, what in gold.items() if content in places)
    return next((" ".join(leak.split()) for leak in leaks), None)
