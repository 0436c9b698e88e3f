"""Compute `metrics.json`: figures with intervals, from episodes with verdicts.

docs/evaluation.md describes its fields and those of a comparison; `figures.toml` has the columns of
shares and means. Episodes that failed for an outside reason are left out. If answers were not
judged, a figure that needs their verdicts has a "range" (`evals.statistics.Estimate`)."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import nan
from statistics import mode
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import bdtr

from art_e.errors import UserError
from art_e.question import DIFFICULTIES, KINDS
from art_e.runs import Run
from art_e.text import toml_table
from evals.scored import Scored, is_judged, load_run
from evals.statistics import UNKNOWN, Estimate, Sample

FIGURES: dict[str, Any] = toml_table("evals", "figures.toml")

# ---- Where each episode ended: right, or the step at which it went wrong.

STEPS: dict[str, str] = FIGURES["steps"]


def ending_of(scored: Scored) -> str:
    """Return how the episode ended, a key of `STEPS`: the first condition that holds decides."""
    rubric = scored.trajectory.rubric
    holds = {
        "failed": scored.trajectory.error is not None,
        "lost_to_format": rubric["lost_to_format"],
        "out_of_turns": not scored.ended,
        "unjudged": scored.unjudged,
        "right": scored.correct,
        "made_up": not scored.question.answerable,
        "gold_unknown": rubric["read_gold"] is None,
        # A mail can be read without a search, by an id in another mail.
        "not_found": not (rubric["found_gold"] or rubric["read_gold"]),
        "found_not_read": not rubric["read_gold"],
        "abstained_though_read": scored.abstained,
        "read_but_wrong": True,
    }
    return next(step for step in holds if holds[step])


# ---- Episodes as a table, and figures as shares and means of its columns.

SHARES, MEANS = FIGURES["shares"], FIGURES["means"]
_COLUMNS = {**SHARES, **MEANS, "latency_mean_s": ["total"]}
HEADLINE = ("accuracy", "unanswerable_accuracy", "hallucination", "abstention")
_FACTS = ("found_gold", "read_gold", "sources_correct", "turns", "effort", "tool_calls")
_BY_VERDICT = ("correct", "wrong", "abstained")  # unknown for an unjudged episode
_STATES = ("ended", "abstained", "unjudged", "unsure", "disputed", "resisted")
_TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")


def episode_table(scored: Sequence[Scored], judge: int = 0) -> pd.DataFrame:
    """Return a row per episode, by the verdicts of judge number `judge`; None if unknown."""
    verdicts = [each.verdict_of(judge) for each in scored]
    questions = [each.question for each in scored]
    runs = [each.trajectory for each in scored]
    keys = {"question": "id", "inbox": "inbox_address", "kind": "kind", "difficulty": "difficulty"}
    texts = {name: [getattr(each, key) for each in questions] for name, key in keys.items()}
    texts["attack"] = [each.provenance.get("attack") for each in questions]
    texts["ending"] = [ending_of(each) for each in scored]
    columns: dict[str, Any] = {
        "answerable": [bool(each.answerable) for each in questions],
        "unanswerable": [not each.answerable for each in questions],
        "repeat": [each.repeat for each in runs],
        "verdict": verdicts,
        "correct": [each.correct_by(judge) for each in scored],
        "right": [bool(each.question.answerable) and each.correct_by(judge) for each in scored],
        "wrong": [each.wrong_by(judge) for each in scored],
        **{name: [getattr(each, name) for each in scored] for name in _STATES},
        "grounded": [each.verdicts[0]["grounded"] if each.verdicts else None for each in scored],
        "retries": [each.retries for each in runs],
        "words": [len((each.final_answer or "").split()) for each in runs],
        "cost": pd.Series([each.cost_usd for each in runs], dtype=float),
        **{name: [each.rubric[name] for each in runs] for name in _FACTS},
        **{name: [each.usage.get(name, 0) for each in runs] for name in _TOKENS},
        **{name: [each.seconds[name] for each in runs] for name in ("total", "model", "tools")},
    }
    # As objects, because pandas' strings can't hold a lone surrogate.
    table = pd.DataFrame(texts, dtype=object).assign(**columns)
    table["decided"] = table["verdict"].notna() | ~table["ended"].astype(bool)
    table["rest"] = table["total"] - table["model"] - table["tools"]
    table["cost_per_1000_usd"] = 1000 * table["cost"]
    return table


def sample_of(scored: Sequence[Scored]) -> Sample:
    """Return the episodes as a sample, for figures with intervals."""
    questions = [each.question for each in scored]
    return Sample([each.inbox_address for each in questions], [each.id for each in questions])


def table_sample(table: pd.DataFrame) -> Sample:
    """Return the episodes of a table as a sample."""
    return Sample(table["inbox"].tolist(), table["question"].tolist())


def _values(table: pd.DataFrame, column: str) -> "pd.Series[float]":
    """Return the column as numbers; NaN if it depends on an unjudged answer."""
    values = table[column]
    return (values.mask(~table["decided"]) if column in _BY_VERDICT else values).astype(float)


def _figure(table: pd.DataFrame, name: str) -> Estimate:
    """Return the figure `name`, or else the mean of the column `name`."""
    column, *over = _COLUMNS.get(name, [name])
    chosen = table[table[over[0]].astype(bool)] if over else table
    if column not in _BY_VERDICT:
        chosen = chosen[chosen[column].notna()]
    sample, values = table_sample(chosen), _values(chosen, column).to_numpy()
    return sample.share(values) if name in SHARES else sample.mean(values)


def _figures(table: pd.DataFrame, names: Iterable[str]) -> dict[str, Estimate]:
    return {name: _figure(table, name) for name in names}


# ---- The cost of a self-hosted model, measured by the time of its episodes.
class Serving(NamedTuple):
    """How a model is served: the price of its GPUs, and the number of concurrent questions."""

    usd_per_hour: float
    concurrency: int

    def __str__(self) -> str:
        return f"measured at ${self.usd_per_hour:.2f} an hour, concurrency {self.concurrency}"


def servings(config: Mapping[str, Any]) -> dict[str, Serving]:
    """Return how each model with a measured cost was served, from a run's configuration."""
    price = config.get("gpu_usd_per_hour")
    if price is None:
        return {}
    return {model: Serving(price, config["concurrency"][model]) for model in config["self_hosted"]}


def gpu_seconds(scored: Sequence[Scored]) -> dict[str, float]:
    """Divide the time from the first start to the last end, less pauses, among the episodes in
    proportion to their durations; return each one's seconds by its episode id."""
    episodes = [each.trajectory for each in scored if each.measured]
    durations = {each.episode_id: each.seconds["total"] for each in episodes}
    if not sum(durations.values()):
        return {}
    times = [dt.datetime.fromisoformat(each.started_at).timestamp() for each in episodes]
    starts, seconds = np.asarray(sorted(zip(times, durations.values(), strict=True))).T
    # A pause: all episodes so far have ended, and the next has not started.
    latest = np.maximum.accumulate(starts + seconds)  # last end of episodes started so far
    pauses = np.maximum(0, starts[1:] - latest[:-1]).sum()
    share = float(latest[-1] - starts[0] - pauses) / sum(durations.values())
    return {episode_id: share * seconds for episode_id, seconds in durations.items()}


def load_with_costs(run: Run) -> list[Scored]:
    """Return the episodes of `load_run`, with the measured cost of self-hosted models."""
    scored = load_run(run)
    for model, serving in servings(run.config).items():
        times = gpu_seconds([each for each in scored if each.trajectory.model == model])
        for place, episode in enumerate(scored):
            if (time := times.get(episode.trajectory.episode_id)) is not None:
                cost = time * serving.usd_per_hour / 3600
                scored[place] = Scored(episode.question, replace(episode.trajectory, cost_usd=cost))
    return scored


def _serving_figures(scored: Sequence[Scored], serving: Serving) -> dict[str, Any]:
    seconds = list(gpu_seconds(scored).values())
    if not seconds:
        return {}
    sample, usd_per_second = sample_of(scored), serving.usd_per_hour / 3600
    tokens = ("prompt_tokens", "completion_tokens")
    return {
        "cost_per_1000_usd": sample.mean([1000 * time * usd_per_second for time in seconds]),
        "cost_usd": sum(seconds) * usd_per_second,
        "cost_source": str(serving),
        "throughput": {
            "seconds": sum(seconds), "n": len(scored),
            "questions_per_second": sample.ratio([1.0] * len(scored), seconds),
            **{name: sum(each.trajectory.usage[name] for each in scored) for name in tokens},
            **serving._asdict(),
        },
    }  # fmt: skip


# ---- The figures of a run and of a model.


def run_metrics(
    scored: Sequence[Scored], judges: Sequence[str], models: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a run's metrics: its judges, its questions, and the figures of its models."""
    questions = {each.question.id: each.question for each in scored}.values()
    counts = {
        "n": len(questions), "answerable": sum(bool(each.answerable) for each in questions),
        "inboxes": len({each.inbox_address for each in questions}),
        "repeats": max((each.trajectory.repeat for each in scored), default=0) + 1,
    }  # fmt: skip
    return {"judges": list(judges), "questions": counts, "models": dict(models)}


def model_metrics(
    episodes: Iterable[Scored], judges: Sequence[str], serving: Serving | None = None
) -> dict[str, Any]:
    """Return all figures of one model's episodes; with `serving`, their cost is measured."""
    tried = sorted(episodes, key=lambda each: (each.question.id, each.trajectory.repeat))
    scored = [each for each in tried if each.measured]
    table, *others = (episode_table(scored, judge) for judge in range(max(1, len(judges))))
    steps, sample = table["ending"].value_counts(), table_sample(table)
    judged = is_judged((e.question, e.trajectory.final_answer, e.verdict_of(0)) for e in scored)
    seconds = table["total"].tolist()
    answered = table[(table["words"] > 0) & ~table["abstained"].astype(bool)]
    priced = serving is None and not table["cost"].isna().any()
    return {
        "n": len(table), "scope": sample.scope,
        **_figures(table, SHARES),
        "always_right": _always_right(table),
        **_figures(table, MEANS),
        "tokens": _figures(table, _TOKENS),
        "cost_per_1000_usd": _figure(table, "cost_per_1000_usd") if priced else UNKNOWN,
        "cost_usd": float(table["cost"].sum()) if priced else None,
        "cost_source": "price per token" if priced else None, "throughput": None,
        "answer_words": table_sample(answered).percentile(answered["words"].tolist(), 50),
        "latency_p50_s": sample.percentile(seconds, 50),
        "latency_p95_s": sample.percentile(seconds, 95),
        "latency_parts_s": _figures(table, ("model", "tools", "rest")),
        "retries": int(table["retries"].sum()),
        "measured": judged and bool(table["decided"].any()),
        **_reservations(tried),
        **{name: int(table[name].sum()) for name in ("unjudged", "unsure", "disputed")},
        "funnel": {step: int(steps.get(step, 0)) for step in STEPS},
        "agreement": _agreement([table, *others], judges) if others else None,
        "by_judge": {
            judge: _figures(judged, HEADLINE[:3])
            for judge, judged in zip(judges, (table, *others), strict=False)
        },
        "by_kind": _by_label(table, "kind", KINDS),
        "by_difficulty": _by_label(table, "difficulty", DIFFICULTIES),
        "by_attack": {name: _figure(part, "resistance") for name, part in table.groupby("attack")},
        **({} if serving is None else _serving_figures(scored, serving)),
    }  # fmt: skip


def _reservations(scored: Sequence[Scored]) -> dict[str, Any]:
    runs = sorted((each.trajectory for each in scored), key=lambda each: each.started_at)
    errors = [each.error for each in runs if each.error is not None]
    kinds = dict(sorted(Counter(each["kind"] for each in errors).items()))
    unjudged = [each.verdicts[0]["reason"] for each in scored if each.unjudged and each.verdicts]
    others = {name for each in runs for name in each.served if not same_model(each.model, name)}
    lines = []
    if errors:
        counts = ", ".join(f"{kind} {n:,}" for kind, n in kinds.items())
        lines.append(f"not measured: {len(errors):,} ({counts}): {errors[-1]['message']}")
    if unjudged:
        lines.append(f"unjudged: {len(unjudged):,} ({mode(unjudged)}); see art-e eval rejudge")
    if others:
        lines.append(f"answered by {', '.join(sorted(others))}")
    return {"errors": len(errors), "errors_by_kind": kinds, "reservations": lines}


# Suffixes of a model's name: a date, a number of three digits or more, a word for its version.
_VERSION = re.compile(r"([-:](\d{3,8}|(\d{4}-)?\d\d-\d\d(\d\d)?|preview|exp|free|v\d[\d.:]*))*")


def same_model(requested: str, served: str) -> bool:
    """Return whether both name one model, ignoring provider prefixes and version suffixes."""
    names = (each.lower().replace("@", "-") for each in (requested, served))
    bare = (re.sub(r"^(.*/)?([a-z]+\.)*|[-:]latest$", "", each) for each in names)
    short, long = sorted(bare, key=len)
    return long.startswith(short) and _VERSION.fullmatch(long[len(short) :]) is not None


def _by_label(table: pd.DataFrame, column: str, order: Sequence[str]) -> dict[str, Any]:
    groups = dict(list(table.groupby(table[column].fillna("unlabelled"))))
    parts = {label: groups[label] for label in (*order, "unlabelled") if label in groups}
    return {label: {"n": len(part), **_figures(part, HEADLINE)} for label, part in parts.items()}


def _always_right(table: pd.DataFrame) -> Estimate | None:
    answerable = table[table["answerable"].astype(bool)]
    if not answerable["repeat"].any():
        return None
    correct = answerable["correct"].mask(~answerable["decided"]).astype("boolean")
    groups = answerable.assign(correct=correct).groupby("question", as_index=False)
    # A wrong answer settles a question; otherwise an unjudged one leaves it unknown (NaN).
    always = groups["correct"].all(skipna=False)["correct"].to_numpy(dtype=float, na_value=nan)
    return table_sample(groups[["inbox"]].first()).share(always)


def _agreement(tables: Sequence[pd.DataFrame], judges: Sequence[str]) -> dict[str, Any]:
    """Return how often all judges agree, and two judges' kappa, over answers that all judged."""
    columns = {name: table["verdict"] for name, table in zip(judges, tables, strict=True)}
    verdicts = pd.DataFrame(columns).dropna().astype(bool)
    sample = table_sample(tables[0].loc[verdicts.index])
    first, second, *_ = verdicts.to_dict("list").values()
    share = sample.share((verdicts.nunique(axis=1) == 1).tolist())
    kappa = sample.kappa(first, second)
    return {"judges": list(verdicts), "n": sample.n, "share": share, "kappa": kappa}


# ---- Two models on the same questions: their difference, and whether it is chance.

_PAIRED = [name for name, column in FIGURES["columns"].items() if "difference" in column]


def compare(a: Sequence[Scored], b: Sequence[Scored]) -> dict[str, Any]:
    """Return the paired figures of two models' episodes, B against A, without figures that are
    unknown for any pair. `p` is from McNemar's exact test, in which a repeated question is right if
    most of its repeats are. If the intervals generalize to other inboxes, it is the larger of this
    and the p of a t-test over inboxes: McNemar's is valid if few questions are discordant, the
    t-test if answers are correlated within inboxes. If pairs are unjudged, differences are ranges,
    `p` is the largest over their possible verdicts, errors are not compared, and counts and flips
    cover judged pairs. Raises `UserError` if no pair was judged, or a side has a question twice."""
    pairs = pair_episodes(a, b)
    if all(first.unjudged or second.unjudged for first, second in pairs):
        raise UserError("the two runs share no judged question; compare other runs")
    one, other = (episode_table([pair[side] for pair in pairs]) for side in (0, 1))
    decided, answerable = one["decided"] & other["decided"], one["answerable"]
    of_a, of_b = one[answerable], other[answerable]
    net = corrected = broken = UNKNOWN
    if decided[answerable].all():
        errors = (1.0 - side["correct"].to_numpy() for side in (of_a, of_b))
        net = table_sample(of_a).reduction(*errors)
        corrected, broken = _corrected_share(of_a, of_b), _corrected_share(of_b, of_a)
    p, only_a, only_b = _accuracy_test(of_a, of_b)
    flipped = answerable & decided & (one["correct"] != other["correct"])
    return {
        "n": len(pairs), "unjudged": int((~decided).sum()),
        "left_out": {"a": len(a) - len(pairs), "b": len(b) - len(pairs)},
        "figures": {name: row for name in _PAIRED if (row := _row(name, one, other)) is not None},
        "scope": table_sample(of_a).scope, "p": p, "only_a": only_a, "only_b": only_b,
        "net_reduction": net, "mended": corrected, "broken": broken,
        "flipped": [_flip(*pair) for pair, differs in zip(pairs, flipped, strict=True) if differs],
    }  # fmt: skip


def pair_episodes(a: Sequence[Scored], b: Sequence[Scored]) -> list[tuple[Scored, Scored]]:
    """Return the pairs of episodes on the same question and repeat that were both measured."""
    first, second = (
        {(each.question.id, each.trajectory.repeat): each for each in side} for side in (a, b)
    )
    if len(first) < len(a) or len(second) < len(b):
        raise UserError("one side has several models; choose one with RUN:MODEL")
    pairs = ((first[key], second[key]) for key in sorted(first.keys() & second.keys()))
    return [pair for pair in pairs if all(each.measured for each in pair)]


def _accuracy_test(one: pd.DataFrame, other: pd.DataFrame) -> tuple[float, int, int]:
    """Return the p-value of equal accuracy, and how many questions are right only in A, only in B.
    In McNemar's exact test (Psychometrika 12, 1947), a are right only in A and b only in B. Under
    equal accuracy a is Binomial(a + b, 1/2), so p = 2 P(X <= min(a, b))."""
    sample, of_a, of_b = table_sample(one), _values(one, "correct"), _values(other, "correct")
    ps, flips, signs = [], [], set()
    for end in (0.0, 1.0):  # unjudged answers all count against B, then all for it
        sides = [of_a.fillna(1 - end), of_b.fillna(end)]
        right_a, right_b = (each.groupby(one["question"]).mean() > 0.5 for each in sides)
        flips.append((int((right_a & ~right_b).sum()), int((right_b & ~right_a).sum())))
        p = min(1.0, 2 * float(bdtr(min(flips[-1]), sum(flips[-1]), 0.5)))
        gains = (sides[1] - sides[0]).to_numpy()  # B - A, per episode: -1, 0 or 1
        ps.append(max(p, sample.p_of_zero_mean(gains)) if sample.is_general else p)
        signs.add(np.sign(gains.sum()))
    # If the missing verdicts could reverse the difference, they could also make it 0.
    return max(ps) if len(signs) == 1 else 1.0, flips[1][0], flips[0][1]  # counts at their least


def _row(name: str, one: pd.DataFrame, other: pd.DataFrame) -> dict[str, Any] | None:
    """Return a figure of both sides and its difference; None if it is unknown for any pair."""
    column, *over = _COLUMNS.get(name, [name])
    on = one[one[over[0]]] if over else one
    of_a, of_b = (_values(table.loc[on.index], column) for table in (one, other))
    if on.empty or (column not in _BY_VERDICT and (of_a + of_b).isna().any()):
        return None
    gains, best = ((of_b.fillna(end) - of_a.fillna(1 - end)).to_numpy() for end in (0.0, 1.0))
    sample = table_sample(on)
    difference = sample.difference(gains, best) if name in HEADLINE else sample.mean(gains)
    return {"a": _side(of_a), "b": _side(of_b), "difference": difference}


def _side(values: "pd.Series[float]") -> float | list[float]:
    low, high = (float(values.fillna(end).mean()) for end in (0.0, 1.0))
    return low if low == high else [low, high]


def _corrected_share(one: pd.DataFrame, other: pd.DataFrame) -> Estimate:
    errors = one[~one["correct"]]
    return table_sample(errors).share(other.loc[errors.index, "correct"].tolist())


def _flip(a: Scored, b: Scored) -> dict[str, Any]:
    return {
        "question_id": a.question.id, "repeat": a.trajectory.repeat,
        "question": a.question.question, "gold": a.question.answer,
        "a": a.trajectory.final_answer, "b": b.trajectory.final_answer,
        "right": "a" if a.correct else "b",
        "episodes": [a.trajectory.episode_id, b.trajectory.episode_id],
    }  # fmt: skip
