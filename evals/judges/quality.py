"""How often a judge errs, and what an accuracy would be without its errors.

A judge that calls some right answers wrong, and some wrong ones right, shifts every accuracy.
Where its errors have been counted on labelled answers, `corrected` takes them out. They are counted
on the labels of the run itself if there are enough, else on the labelled set: `art-e eval judge`
keeps what it measured, and the judges without a model are measured when they are needed.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError
from scipy.special import expit, logit
from scipy.stats import norm

from art_e.abstention import is_abstention
from art_e.runs import Run
from art_e.storage import home, write_whole
from art_e.text import digest
from evals.judges import WITHOUT_MODEL
from evals.judges.labels import Rated, confusion, labelled_cases, load_pairs, read_labels
from evals.metrics import model_metrics, servings
from evals.scored import Scored
from evals.statistics import CONFIDENCE, UNKNOWN, Estimate, Floats

# So many right and so many wrong answers of the run itself must be labelled.
ENOUGH_LABELS = 20
_DRAWS = 10_000


class Quality(BaseModel):
    """What a judge says of labelled answers, `on` those of a run or of the labelled set.

    Of the `right` answers it calls `right_as_right` right; of the `wrong` ones it calls
    `wrong_as_right` right.
    """

    judge: str
    on: str
    right: int
    right_as_right: int
    wrong: int
    wrong_as_right: int


def count_errors(judge: str, rated: Sequence[Rated], on: str) -> Quality:
    """The judge's errors on answers to answerable questions; abstentions are no matter of doubt."""
    cases = [each for each in rated if each.case.question.answerable]
    answered = [each for each in cases if not is_abstention(each.case.answer)]
    right, counts = sum(each.case.label for each in answered), confusion(answered)
    known = {name: counts[name] for name in ("right_as_right", "wrong_as_right")}
    return Quality(judge=judge, on=on, right=right, wrong=len(answered) - right, **known)


_WITHOUT_MODEL = {kind.name: kind for kind in WITHOUT_MODEL.values()}


def keep_quality(quality: Quality) -> None:
    """Keep what was measured of a model as judge in `ART_E_HOME`, for `quality_of`."""
    if quality.judge in _WITHOUT_MODEL:
        return
    _kept(quality.judge).parent.mkdir(parents=True, exist_ok=True)
    write_whole(_kept(quality.judge), quality.model_dump_json(indent=2) + "\n")


def quality_of(judge: str, run: Run, scored: Sequence[Scored]) -> Quality | None:
    """The errors of the judge that decided the run's episodes; None if nobody measured them."""
    cases = labelled_cases(scored, read_labels(run))
    rated = [Rated(case, case.stored[0]) for case in cases if case.stored]
    own = count_errors(judge, rated, f"labels of {run.id}")
    if min(own.right, own.wrong) >= ENOUGH_LABELS:
        return own
    if judge in _WITHOUT_MODEL:
        return _without_model(judge)
    try:
        return Quality.model_validate_json(_kept(judge).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None


@cache
def _without_model(name: str) -> Quality:
    judge = _WITHOUT_MODEL[name]()
    pairs = [each for each in load_pairs() if each.half == "reporting"]
    rated = [Rated(each, judge.decide(each.question, each.answer)) for each in pairs]
    return count_errors(name, rated, "the labelled set")


def _kept(judge: str) -> Path:
    return home() / "judges" / f"{digest(ascii(judge))}.json"


def figures_in(
    run: Run, model: str, scored: Sequence[Scored], judges: Sequence[str]
) -> dict[str, Any]:
    """All figures of the episodes of a run's model.

    "corrected" is {"accuracy": estimate without the errors of the deciding judge, "judge": its
    `Quality`}, None if nobody measured that judge.
    """
    figures = model_metrics(scored, judges, servings(run.config).get(model))
    quality = quality_of(judges[0], run, scored) if judges else None
    if quality is None:
        return {**figures, "corrected": None}
    asked = [each for each in scored if each.question.answerable]
    answered = sum(not each.abstained and each.ended for each in asked) / max(1, len(asked))
    accuracy = corrected(figures["accuracy"], answered, quality)
    return {**figures, "corrected": {"accuracy": accuracy, "judge": quality.model_dump()}}


def corrected(share: Estimate, answered: float, quality: Quality) -> Estimate:
    """The accuracy `share` without its judge's errors (Rogan and Gladen, American Journal of
    Epidemiology 107, 1978).

    Only the share `answered` of the questions can be misjudged. The interval carries both errors:
    it is that of draws of the accuracy by its own interval, and of the judge's two rates by their
    posterior (Jeffreys' prior). Unknown for a judge that is no better than chance.
    """
    if share["value"] is None or share["low"] is None or share["high"] is None:
        return UNKNOWN
    hits, slips = quality.right_as_right, quality.wrong_as_right
    if hits * quality.wrong <= slips * quality.right:
        return UNKNOWN

    def without(accuracy: Floats, hit: Floats, slip: Floats) -> Floats:
        true: Floats = np.clip((accuracy - slip * answered) / (hit - slip), 0, answered)
        return true

    value = without(*map(np.asarray, (share["value"], hits / quality.right, slips / quality.wrong)))
    random = np.random.default_rng(0)
    low, high = logit(np.clip([share["low"], share["high"]], 1e-4, 1 - 1e-4))
    spread = (high - low) / 2 / norm.ppf((1 + CONFIDENCE) / 2)
    accuracy = expit(random.normal((low + high) / 2, spread, _DRAWS))
    hit = random.beta(hits + 0.5, quality.right - hits + 0.5, _DRAWS)
    slip = random.beta(slips + 0.5, quality.wrong - slips + 0.5, _DRAWS)
    drawn = without(accuracy, hit, slip)[hit > slip]
    low, high = np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]).tolist()
    return Estimate(value=float(value), low=low, high=high, n=share["n"], method="Rogan-Gladen")
