"""Measures what ranking by meaning would add to BM25, alone and fused with it.

    pip install wordllama
    ART_E_REAL_DATA=FOLDER python -m tests.semantic_gain FILE

FILE is the inbox file of the real archive, the folder holds its `questions.jsonl`. Queries are the
words that the offline baseline searches for, of these questions and of `data/paraphrases.jsonl`.
A rank is that of the first gold mail; intervals are a paired bootstrap's over questions.
"""

import datetime as dt
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.models.fit import informative_words

K = 60  # of reciprocal rank fusion (Cormack et al., 2009)
LEFT_TO_BM25 = 8
# The longest passage in tokens, behind the mail's subject, and whether idf weights its tokens.
SETTINGS = {
    "mails, equal weights": (1_000_000, False),
    "mails, idf weights": (1_000_000, True),
    "passages, equal weights": (64, False),
    "passages, idf weights": (64, True),
}
METRICS = (lambda rank: rank <= 1, lambda rank: rank <= 10, lambda rank: 1 / rank)

Reals = NDArray[np.float64]
Tokens = NDArray[np.int64]


class Meaning:
    """The vectors of all mails of an inbox."""

    def __init__(self, inbox: Inbox) -> None:
        package = Path(str(importlib.util.find_spec("wordllama").origin)).parent
        weights = load_file(package / "weights" / "l2_supercat_256.safetensors")
        self._table = weights["embedding.weight"].astype(np.float64)
        config = package / "tokenizers" / "l2_supercat_tokenizer_config.json"
        self._tokenizer = Tokenizer.from_file(str(config))
        mails = [each for each in inbox.read_many(found(inbox, [])) if each is not None]
        self.places = {each.message_id: place for place, each in enumerate(mails)}
        tokens = [(self._tokens(each.subject), self._tokens(each.body)) for each in mails]
        holding = np.zeros(len(self._table))
        for each in tokens:
            holding[np.unique(np.concatenate(each))] += 1
        self._idf = np.log(1 + (len(mails) - holding + 0.5) / (holding + 0.5))
        self._vectors = {}
        for name, (size, idf) in SETTINGS.items():
            passages = [
                (place, self._vector(np.concatenate([subject, body[start : start + size]]), idf))
                for place, (subject, body) in enumerate(tokens)
                for start in range(0, max(1, len(body) - size // 4), size * 3 // 4)
            ]
            places, vectors = zip(*passages, strict=True)
            self._vectors[name] = np.array(places), np.array(vectors)

    def nearness(self, query: str, setting: str) -> Reals:
        """The cosine of the query and each mail's nearest passage."""
        places, vectors = self._vectors[setting]
        nearest = np.full(len(self.places), -1.0)
        wanted = self._vector(self._tokens(query), SETTINGS[setting][1])
        np.maximum.at(nearest, places, vectors @ wanted)
        return nearest

    def _tokens(self, text: str) -> Tokens:
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int64)

    def _vector(self, tokens: Tokens, idf: bool) -> Reals:
        vector: Reals = (self._idf[tokens] if idf else np.ones(len(tokens))) @ self._table[tokens]
        return vector / max(float(np.linalg.norm(vector)), 1e-9)


def found(inbox: Inbox, words: list[str]) -> list[str]:
    return [hit.message_id for hit in inbox.search(words, max_results=len(inbox))]


def ranks(scores: Reals) -> Reals:
    return np.argsort(np.argsort(-scores, kind="stable")) + 1.0


def ranked(inbox: Inbox, meaning: Meaning, query: list[str], gold: list[str]) -> dict[str, float]:
    """The rank of the first gold mail by each ranking."""
    ids = found(inbox, [])
    by_id = {each: rank for rank, each in enumerate(found(inbox, query), start=1)}
    words = np.array([by_id.get(each, np.inf) for each in ids])
    rankings = {"BM25": words}
    for setting in SETTINGS:
        nearness = meaning.nearness(" ".join(query), setting)
        near = ranks(nearness[[meaning.places[each] for each in ids]])
        last = np.where(words <= LEFT_TO_BM25, len(ids) - words, -near)
        rankings[f"meaning alone: {setting}"] = near
        rankings[f"fused: {setting}"] = ranks(1 / (K + words) + 1 / (K + near))
        rankings[f"places 9 and 10: {setting}"] = ranks(last)
    wanted = [ids.index(each) for each in map(inbox.canonical_id, gold) if each]
    return {name: float(each[wanted].min()) for name, each in rankings.items()}


def shown(rank: Reals, bm25: Reals, questions: Tokens) -> str:
    """Recall@1, recall@10 and MRR, each with its gain over BM25."""
    counts = np.bincount(questions)
    chosen = np.random.default_rng(0).integers(len(counts), size=(10_000, len(counts)))
    cells = []
    for metric in METRICS:
        gain = 1.0 * metric(rank) - metric(bm25)
        sums = np.bincount(questions, gain)
        low, high = np.percentile(sums[chosen].sum(1) / counts[chosen].sum(1), [2.5, 97.5])
        cells.append(f"{metric(rank).mean():.3f} ({gain.mean():+.3f}, {low:+.3f} to {high:+.3f})")
    return " | ".join(cells)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    golden = read_lines(Path(os.environ["ART_E_REAL_DATA"]) / "questions.jsonl")
    by_id = {each["id"]: each for each in golden}
    paraphrases = read_lines(Path(__file__).parent / "data" / "paraphrases.jsonl")
    with InboxFile(Path(sys.argv[1])) as file:
        addresses = {each["inbox_address"] for each in golden}
        meanings = {each: Meaning(file.open_inbox(each)) for each in addresses}
        for name, asked in (("golden questions", golden), ("paraphrases", paraphrases)):
            rows = []
            for each in asked:
                question = by_id[each["id"]]
                address, day = question["inbox_address"], question["query_date"]
                inbox = file.open_inbox(address, dt.date.fromisoformat(day))
                query = informative_words(each["question"])
                rows.append(ranked(inbox, meanings[address], query, question["message_ids"]))
            questions = np.unique([each["id"] for each in asked], return_inverse=True)[1]
            print(f"\n{len(asked)} {name}: recall@1 | recall@10 | MRR (gain over BM25, 95 %)")
            bm25 = np.array([each["BM25"] for each in rows])
            for ranking in rows[0]:
                values = np.array([each[ranking] for each in rows])
                print(f"{ranking:<40} | {shown(values, bm25, questions)}")


if __name__ == "__main__":
    main()
