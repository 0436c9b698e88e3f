"""Fits the weights of `art_e.abstention`: `python -m bench.fit_abstention` writes them.

The texts are those of `abstentions.jsonl` that are for tuning, and of the tuning half of the
judges' labelled set the gold answers and the right ones. Each is fitted to as it is, in lower case,
in upper case, and with a polite end; and abstentions once more with an answer behind, which makes
them answers. The penalty on absolute weights keeps few runs of words.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

import art_e.abstention
from art_e.abstention import word_runs
from evals.judges.labels import load_pairs

PENALTY = 5e-5
# Runs in fewer texts have no weight.
LEAST = 3
STEPS = 600
# Before an answer that follows an abstention after all; such answers are this short.
_OPENINGS = (
    ". It is ", ". It's ", ", but it is ", ". Perhaps ", ", maybe ", ". It might be ", ": ",
    ". The answer is ", ". However, it seems to be ", ", but I would guess ", ". My guess: ", "\n",
)  # fmt: skip
_SHORT = 80
_CLOSINGS = (
    "Hope this helps.", "Hope that helps!", "Let me know if you need more.", "Regards", "Thanks!",
    "Please let me know if I can help further.", "Do you want me to look further?",
)  # fmt: skip
TEXTS = Path(__file__).parents[1] / "tests" / "art_e" / "abstentions.jsonl"
WEIGHTS = Path(art_e.abstention.__file__).with_name("abstention.tsv")

Floats = NDArray[np.float64]


class Text(NamedTuple):
    """A labelled text; `half` is "tuning", "reporting" or "unseen"."""

    text: str
    abstains: bool
    half: str


def texts() -> list[Text]:
    """The labelled texts."""
    return [Text(**json.loads(line)) for line in TEXTS.read_text(encoding="utf-8").splitlines()]


def tuning() -> list[Text]:
    """The texts that weights are fitted to."""
    pairs = [each for each in load_pairs() if each.half == "tuning" and each.question.answerable]
    right = [each.answer for each in pairs if each.label] + [each.question.answer for each in pairs]
    answers = [Text(each, False, "tuning") for each in dict.fromkeys(right) if each]
    return [each for each in texts() if each.half == "tuning"] + answers


def varied(given: Sequence[Text]) -> list[Text]:
    """The texts with their variants."""
    random, made = Random(0), []
    contents = [each.text for each in given if not each.abstains and len(each.text) < _SHORT]
    for each in given:
        made += [each, each._replace(text=each.text.lower()), each._replace(text=each.text.upper())]
        made.append(each._replace(text=f"{each.text.rstrip(' .')}. {random.choice(_CLOSINGS)}"))
        if each.abstains:
            opening = random.choice(_OPENINGS)
            answered = f"{each.text.rstrip(' .!')}{opening}{random.choice(contents)}"
            made.append(Text(answered, False, each.half))
    return made


def fitted(given: Sequence[Text], penalty: float = PENALTY) -> dict[str, float]:
    """The weight of each run that has one, and the bias as that of ""."""
    given = varied(given)
    runs = [set(word_runs(each.text)) for each in given]
    used = Counter(run for each in runs for run in each)
    names = sorted(run for run, times in used.items() if times >= LEAST)
    places = {name: place for place, name in enumerate(names)}
    cells = [
        (len(each) ** -0.5, row, places[run])
        for row, each in enumerate(runs)
        for run in sorted(each)
        if run in places
    ]
    values, rows, columns = zip(*cells, strict=True)
    table = csr_matrix((values, (rows, columns)), shape=(len(given), len(names)))
    bias, weights = _lasso(table, np.array([each.abstains for each in given], float), penalty)
    kept = {name: weight for name, weight in zip(names, weights, strict=True) if weight}
    return {"": bias, **kept}


def _lasso(table: csr_matrix, labels: Floats, penalty: float) -> tuple[float, Floats]:
    """Logistic regression with a penalty on absolute weights, by FISTA (Beck and Teboulle 2009)."""
    weights = ahead = np.zeros(table.shape[1])
    bias = bias_ahead = 0.0
    momentum = 1.0
    # A row's squares sum to at most 1, so that the gradient's Lipschitz constant is at most 1/2.
    step = 2.0
    for _ in range(STEPS):
        errors = (1 / (1 + np.exp(-(table @ ahead + bias_ahead))) - labels) / len(labels)
        moved = ahead - step * (table.T @ errors)
        shrunk = np.sign(moved) * np.maximum(np.abs(moved) - step * penalty, 0)
        bias_next = float(bias_ahead - step * errors.sum())
        following = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        pull = (momentum - 1) / following
        ahead = shrunk + pull * (shrunk - weights)
        bias_ahead = bias_next + pull * (bias_next - bias)
        weights, bias, momentum = shrunk, bias_next, following
    return bias, weights


if __name__ == "__main__":
    rows = fitted(tuning()).items()
    WEIGHTS.write_text("".join(f"{run}\t{weight:.2f}\n" for run, weight in rows), encoding="utf-8")
    print(f"{len(rows)} weights in {WEIGHTS}")
