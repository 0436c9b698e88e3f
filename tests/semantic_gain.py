"""Measures what ranking by meaning would add to BM25, alone and fused with it.

    pip install wordllama
    ART_E_REAL_DATA=FOLDER python -m tests.semantic_gain FILE

FILE is the inbox file of the real archive, the folder holds its `questions.jsonl`. These questions
and paraphrases of them are searched for in the offline baseline's words. A rank is that of the
first gold mail, an interval that of a paired bootstrap over questions.
"""

import json
import os
import sys
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path

import numpy as np
from safetensors.numpy import load
from tokenizers import Tokenizer

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.models.fit import informative_words
from art_e.question import Question, load_questions
from evals.statistics import Floats

K = 60  # of reciprocal rank fusion (Cormack et al., 2009)
PASSAGES = {"mails": 1_000_000, "passages": 64}  # the most tokens, behind the mail's subject


class Meaning:
    """The vectors of all mails of an inbox: their tokens' vectors, weighted by idf."""

    def __init__(self, inbox: Inbox) -> None:
        package = resources.files("wordllama")
        weights = load(package.joinpath("weights/l2_supercat_256.safetensors").read_bytes())
        self._table = weights["embedding.weight"].astype(np.float64)
        config = package.joinpath("tokenizers/l2_supercat_tokenizer_config.json").read_text("utf-8")
        self._encode = partial(Tokenizer.from_str(config).encode, add_special_tokens=False)
        mails = [each for each in inbox.read_many(ids_of(inbox, [])) if each is not None]
        self._places = {each.message_id: place for place, each in enumerate(mails)}
        tokens = [(self._encode(each.subject).ids, self._encode(each.body).ids) for each in mails]
        holders = [token for pair in tokens for token in {*pair[0], *pair[1]}]
        holding = np.bincount(holders, minlength=len(self._table))
        self._idf = np.log(1 + (len(mails) - holding + 0.5) / (holding + 0.5))
        self._vectors = {}
        for unit, size in PASSAGES.items():
            passages = [
                (place, self._vector(subject + body[start : start + size]))
                for place, (subject, body) in enumerate(tokens)
                for start in range(0, max(1, len(body) - size // 4), size * 3 // 4)
            ]
            self._vectors[unit] = [np.array(column) for column in zip(*passages, strict=True)]

    def ranks(self, query: str, unit: str, ids: list[str]) -> Floats:
        places, vectors = self._vectors[unit]
        nearest = np.full(len(self._places), -1.0)
        np.maximum.at(nearest, places, vectors @ self._vector(self._encode(query).ids))
        return ranks(nearest[[self._places[each] for each in ids]])

    def _vector(self, tokens: list[int]) -> Floats:
        vector = self._idf[tokens] @ self._table[tokens]
        return np.asarray(vector / max(np.linalg.norm(vector), 1e-9), dtype=np.float64)


def ids_of(inbox: Inbox, words: list[str]) -> list[str]:
    return [hit.message_id for hit in inbox.search(words, max_results=len(inbox))]


def ranks(scores: Floats) -> Floats:
    return np.asarray(np.argsort(np.argsort(-scores, kind="stable")) + 1, dtype=np.float64)


def ranked(inbox: Inbox, meanings: dict[str, Meaning], question: Question) -> dict[str, float]:
    """The rank of the first gold mail by each ranking."""
    ids, query = ids_of(inbox, []), informative_words(question.question)
    by_id = {each: rank for rank, each in enumerate(ids_of(inbox, query), start=1)}
    bm25 = np.array([by_id.get(each, np.inf) for each in ids])
    found = {"BM25": bm25}
    for unit in PASSAGES:
        near = found[f"meaning: {unit}"] = meanings[inbox.address].ranks(" ".join(query), unit, ids)
        found[f"fused: {unit}"] = ranks(1 / (K + bm25) + 1 / (K + near))
        found[f"places 9, 10: {unit}"] = ranks(np.where(bm25 <= 8, len(ids) - bm25, -near))
    wanted = [ids.index(each) for each in map(inbox.canonical_id, question.message_ids) if each]
    return {name: float(each[wanted].min()) for name, each in found.items()}


def shown(rank: Floats, bm25: Floats, questions: list[str]) -> str:
    _, numbers, counts = np.unique(questions, return_inverse=True, return_counts=True)
    chosen = np.random.default_rng(0).integers(len(counts), size=(10_000, len(counts)))
    cells = []
    for value, base in ((rank <= 1, bm25 <= 1), (rank <= 10, bm25 <= 10), (1 / rank, 1 / bm25)):
        gain = 1.0 * value - base
        means = np.bincount(numbers, gain)[chosen].sum(1) / counts[chosen].sum(1)
        low, high = np.percentile(means, [2.5, 97.5])
        cells.append(f"{value.mean():.3f} ({gain.mean():+.3f}, {low:+.3f} to {high:+.3f})")
    return " | ".join(cells)


def main() -> None:
    golden = load_questions(str(Path(os.environ["ART_E_REAL_DATA"]) / "questions.jsonl"))
    by_id, sets = {each.id: each for each in golden}, {"golden questions": golden}
    for path in sorted(Path(__file__).parent.glob("data/paraphrases*.jsonl")):
        written = map(json.loads, path.open(encoding="utf-8"))
        sets[path.stem] = [replace(by_id[each.pop("id")], **each) for each in written]
    with InboxFile(Path(sys.argv[1])) as file:
        opened = [file.open_inbox(each) for each in {each.inbox_address for each in golden}]
        meanings = {each.address: Meaning(each) for each in opened}
        for name, asked in sets.items():
            rows = [ranked(file.inbox_of(each), meanings, each) for each in asked]
            print(f"\n{len(asked)} {name}: recall@1 | recall@10 | MRR (gain, 95 %)")
            for key in rows[0]:
                rank, bm25 = (np.array([each[of] for each in rows]) for of in (key, "BM25"))
                print(f"{key:<22} | {shown(rank, bm25, [each.id for each in asked])}")


if __name__ == "__main__":
    main()
