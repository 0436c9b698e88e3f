"""Measures what ranking by meaning would add to BM25, alone and fused with it.

    pip install wordllama
    ART_E_REAL_DATA=FOLDER python -m tests.semantic_gain FILE

FILE is the inbox file of the real archive, the folder holds its `questions.jsonl`. The queries are
the words that the offline baseline searches for, of the golden questions and of paraphrases of
them. Fused are ranks by reciprocal rank (Cormack et al., 2009), or the last places of ten
are given to the nearest mails that BM25 leaves out. A rank is that of the first gold mail.
Intervals are 95 % of a bootstrap over questions, of paired differences to BM25.
"""

import datetime as dt
import importlib.util
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.models.fit import informative_words

PARAPHRASES = Path(__file__).parent / "data" / "paraphrases.jsonl"
K = 60
LEFT_TO_BM25 = 8
# Tokens of a passage, each of which begins with its mail's subject, and between their beginnings.
PASSAGE, STEP = 64, 48
RESAMPLES = 10_000

Reals = NDArray[np.float64]


class Setting(NamedTuple):
    """What gets a vector, and how its tokens' vectors are weighted."""

    passages: bool
    idf: bool

    def __str__(self) -> str:
        unit = f"passages of {PASSAGE} tokens" if self.passages else "whole mails"
        return f"{unit}, {'idf' if self.idf else 'equal'} weights"


SETTINGS = [Setting(passages, idf) for passages in (False, True) for idf in (False, True)]


class Mails:
    """The vectors of an inbox's mails."""

    def __init__(self, mails: list[tuple[str, str, str]]) -> None:
        package = Path(str(importlib.util.find_spec("wordllama").origin)).parent
        tokenizer = package / "tokenizers" / "l2_supercat_tokenizer_config.json"
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        weights = load_file(package / "weights" / "l2_supercat_256.safetensors")
        self._table = weights["embedding.weight"].astype(np.float32)
        self.places = {message_id: place for place, (message_id, _, _) in enumerate(mails)}
        self._tokens = [(self._encode(subject), self._encode(body)) for _, subject, body in mails]
        holding = np.zeros(len(self._table))
        for each in self._tokens:
            holding[np.unique(np.concatenate(each))] += 1
        self._idf = np.log(1 + (len(mails) - holding + 0.5) / (holding + 0.5))

    def _encode(self, text: str) -> NDArray[np.int64]:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype=np.int64)

    def _vector(self, tokens: NDArray[np.int64], setting: Setting) -> Reals:
        weights = self._idf[tokens] if setting.idf else np.ones(len(tokens))
        vector: Reals = weights @ self._table[tokens]
        return vector / max(float(np.linalg.norm(vector)), 1e-9)

    @cache
    def _vectors(self, setting: Setting) -> tuple[Reals, NDArray[np.int64]]:
        vectors, owners = [], []
        for place, (subject, body) in enumerate(self._tokens):
            size, step = (PASSAGE, STEP) if setting.passages else (len(body) + 1, len(body) + 1)
            for start in range(0, max(1, len(body) - (size - step)), step):
                passage = np.concatenate([subject, body[start : start + size]])
                vectors.append(self._vector(passage, setting))
                owners.append(place)
        return np.array(vectors), np.array(owners)

    def nearness(self, query: str, setting: Setting) -> Reals:
        """The cosine of each mail's nearest vector to the query's."""
        vectors, owners = self._vectors(setting)
        nearest = np.full(len(self._tokens), -1.0)
        np.maximum.at(nearest, owners, vectors @ self._vector(self._encode(query), setting))
        return nearest


def ranks(scores: Reals) -> Reals:
    """The rank of each score; among equals the first has the lower."""
    found = np.empty(len(scores))
    found[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return found


def row(name: str, of: Reals, bm25: Reals, questions: NDArray[np.int64]) -> str:
    """A line of the table: recall@1, recall@10 and MRR with their differences to BM25's."""
    n = questions.max() + 1
    chosen = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    cells = [f"{name:<48}"]
    for metric in (lambda rank: rank <= 1, lambda rank: rank <= 10, lambda rank: 1 / rank):
        gain = metric(of).astype(float) - metric(bm25)
        sums, counts = np.bincount(questions, gain), np.bincount(questions)
        low, high = np.percentile(sums[chosen].sum(1) / counts[chosen].sum(1), [2.5, 97.5])
        cells.append(f"{metric(of).mean():.3f} ({gain.mean():+.3f}, {low:+.3f} to {high:+.3f})")
    return " | ".join(cells)


def ranked(inbox: Inbox, mails: Mails, query: str, gold: list[str]) -> dict[str, float]:
    """The first gold mail's rank for a query, by BM25 and in every setting, alone and fused."""

    def places(words: list[str]) -> list[int]:
        return [mails.places[hit.message_id] for hit in inbox.search(words, max_results=len(inbox))]

    visible, hits = places([]), places(informative_words(query))
    by_words = np.full(len(mails.places), np.inf)
    by_words[hits] = np.arange(1, len(hits) + 1)
    by_words = by_words[visible]
    wanted = [visible.index(mails.places[each]) for each in map(inbox.canonical_id, gold) if each]
    found = {"BM25": float(by_words[wanted].min())}
    for setting in SETTINGS:
        nearness = mails.nearness(" ".join(informative_words(query)), setting)[visible]
        by_meaning = ranks(nearness)
        fused = ranks(1 / (K + by_words) + 1 / (K + by_meaning))
        last = ranks(np.where(by_words <= LEFT_TO_BM25, len(visible) - by_words, -by_meaning))
        for name, each in (("alone", by_meaning), ("fused", fused), ("last places", last)):
            found[f"{name}, {setting}"] = float(each[wanted].min())
    return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    golden = read_lines(Path(os.environ["ART_E_REAL_DATA"]) / "questions.jsonl")
    by_id = {each["id"]: each for each in golden}
    with InboxFile(Path(sys.argv[1])) as file:
        mails = {}
        for address in {each["inbox_address"] for each in golden}:
            inbox = file.open_inbox(address)
            ids = [hit.message_id for hit in inbox.search([], max_results=len(inbox))]
            read = [each for each in inbox.read_many(ids) if each is not None]
            mails[address] = Mails([(each.message_id, each.subject, each.body) for each in read])
        for name, asked in (("golden questions", golden), ("paraphrases", read_lines(PARAPHRASES))):
            found = []
            for each in asked:
                question = by_id[each["id"]]
                address = question["inbox_address"]
                inbox = file.open_inbox(address, dt.date.fromisoformat(question["query_date"]))
                gold = question["message_ids"]
                found.append(ranked(inbox, mails[address], each["question"], gold))
            questions = np.unique([each["id"] for each in asked], return_inverse=True)[1]
            print(f"\n{len(asked)} {name}: recall@1 | recall@10 | MRR (gain over BM25, 95 %)")
            bm25 = np.array([each["BM25"] for each in found])
            for ranking in found[0]:
                print(row(ranking, np.array([each[ranking] for each in found]), bm25, questions))


if __name__ == "__main__":
    main()
