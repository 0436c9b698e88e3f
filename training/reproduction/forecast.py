"""What a reproduction takes and needs, before anything runs: time, money, disk, keys, a GPU.

If the profile has been measured, time and disk are as measured. Else they are calculated from the
constants below, `art-e train plan` and the tokens of earlier runs, and may be off by half.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from art_e.errors import UserError
from art_e.models.base import Usage
from art_e.models.model import Model
from art_e.models.prices import expected_cost
from art_e.storage import expanded, runs_folder
from data_pipeline.golden.generate import THINKING_TOKENS, TOKENS_PER_ITEM
from data_pipeline.golden.model_checks import COMPLETION_TOKENS, JUDGE_USAGE, VERDICTS_PER_ROW
from evals.benchmark import estimate_cost, model_name
from evals.judges import needs_model
from training.judging import is_paid
from training.planning import (
    DEFAULT_GPU,
    MAIL_TOKENS,
    TrainingPlan,
    expected_episode,
    fee_of,
    gpu_of,
)
from training.planning import plan as plan_of
from training.reproduction.chain import Stage, Unit
from training.reproduction.profile import GENERATED, OFFLINE, Profile

# Measured on two cores on 47,990 mails of the Enron archive (134.7 MB as text): 6.6 to 7.0 s, and a
# file of 47.5 MB.
MAILS_PER_S, INBOX_BYTES, MAIL_BYTES = 7_000, 1_000, 2_800
# Of the golden set: mails of a batch, questions of a batch, requests at a time.
BATCH_MAILS, BATCH_QUESTIONS, AT_ONCE = 20, 8, 8
# Assumed: the instructions of a batch in tokens, seconds of a request that writes or reads,
# requests that verify a row and their tokens, seconds of a question to a hosted, a served and no
# model.
FRAME_TOKENS, WRITE_S, READ_S = 1_500, 60.0, 4.0
READS_PER_ROW, READ_TOKENS = 3, 2_500
HOSTED_S, OWN_S, OFFLINE_S = 10.0, 5.0, 0.05
# Assumed: until a server answers; the bytes of an episode on disk; a report.
LOADING_S, EPISODE_BYTES, REPORT_S = 300.0, 20_000, 60.0
# A run keeps its newest checkpoint and its best one: weights and AdamW's two moments in float32.
CHECKPOINTS, CHECKPOINT_BYTES_A_WEIGHT = 2, 12


class Forecast(NamedTuple):
    """What a step takes; `usd` is None if a price is unknown. `basis` names the source."""

    seconds: float
    usd: float | None
    disk_bytes: float
    basis: str


def forecast(unit: Unit, profile: Profile) -> Forecast:
    """What the whole step takes."""
    calculated = _calculated(unit, profile)
    measured = profile.measured
    if measured is None or unit.stage not in measured.minutes:
        return calculated
    return Forecast(
        60 * measured.minutes[unit.stage],
        calculated.usd,
        1e6 * measured.megabytes.get(unit.stage, 0.0),
        measured.source,
    )


def missing(profile: Profile, units: Sequence[Unit]) -> list[str]:
    """What the steps that are not done lack on this machine, a line each."""
    left = {each.stage for each in units if each.digests is None}
    found = [
        reason
        for stage, model in dict.fromkeys(_models(profile))
        if stage in left and (reason := _why_not(model)) is not None
    ]
    grpo = profile.recipe.grpo
    needs_gpu = grpo is not None and grpo.vllm is not None
    if left & {"grpo", "sft"} and needs_gpu and not _has_gpu():
        found.append(f"training {profile.recipe.name} needs an NVIDIA GPU, and there is none")
    return list(dict.fromkeys(found))


def faults(profile: Profile, units: Sequence[Unit]) -> list[str]:
    """Why training does not fit the profile's GPU, by `art-e train plan`."""
    trains = any(each.stage == "grpo" for each in units)
    return _plan(profile).faults if trains and profile.training.gpu else []


def _plan(profile: Profile) -> TrainingPlan:
    return plan_of(profile.recipe, gpu_of(profile.training.gpu or DEFAULT_GPU))


def _calculated(unit: Unit, profile: Profile) -> Forecast:
    judging = profile.recipe.judging
    if unit.name == "prompts":
        return Forecast(1.0, 0.0, 1e4, "the choice")
    if unit.stage in ("prompts", "baselines"):
        tested = unit.stage == "baselines"
        questions = judging.test_questions if tested else judging.questions
        return _asked(profile, str(unit.settings["model"]), questions)
    if unit.stage in ("sft", "grpo"):
        return _trained(profile, unit.stage)
    if unit.stage == "report":
        episodes = judging.test_questions * (2 + len(profile.baselines.models))
        return Forecast(REPORT_S, 0.0, episodes * EPISODE_BYTES, "assumed")
    return {"ingest": _ingest, "golden": _golden, "evaluation": _evaluation}[unit.stage](profile)


def _ingest(profile: Profile) -> Forecast:
    mails = profile.ingest.limit or profile.ingest.mails
    local = all(
        each.startswith("synthetic:") or expanded(each).exists() for each in profile.sources
    )
    basis = f"{mails:,} mails at the rate of the Enron archive"
    if not local:
        basis += "; the download's time is not counted"
    disk = mails * (INBOX_BYTES + (0 if local else MAIL_BYTES))
    return Forecast(mails / MAILS_PER_S, 0.0, disk, basis)


def _golden(profile: Profile) -> Forecast:
    golden = profile.golden
    if golden.questions != GENERATED:
        fees = 0.0 if golden.reader == OFFLINE else None
        basis = "assumed; a reader's fees depend on the number of rows"
        return Forecast(60.0, fees, 50e6, basis)
    batches = golden.batches * (golden.train + golden.validation + golden.test)
    rows = batches * BATCH_QUESTIONS
    written = Usage(
        BATCH_MAILS * MAIL_TOKENS + FRAME_TOKENS,
        completion_tokens=BATCH_QUESTIONS * TOKENS_PER_ITEM + THINKING_TOKENS,
    )
    reads = 0 if golden.reader == OFFLINE else READS_PER_ROW * rows
    usd = _sum(
        _fees(golden.writer, batches, written),
        _fees(golden.reader, reads, Usage(READ_TOKENS, completion_tokens=COMPLETION_TOKENS)),
        _fees(golden.judge, VERDICTS_PER_ROW * rows, JUDGE_USAGE),
    )
    seconds = (batches * WRITE_S + reads * READ_S) / AT_ONCE
    basis = f"{batches:,} batches, {rows:,} questions; tokens of replies and seconds assumed"
    return Forecast(seconds, usd, batches * BATCH_MAILS * MAIL_BYTES + rows * EPISODE_BYTES, basis)


def _asked(profile: Profile, model: str, questions: int) -> Forecast:
    """Questions asked of a prompted model, and the judges' fees."""
    fees, disk = _judges(profile, questions), questions * EPISODE_BYTES
    if model == OFFLINE:
        return Forecast(questions * OFFLINE_S, fees, disk, f"{questions:,} questions")
    estimate = estimate_cost(model, questions, runs_folder())
    basis = f"{questions:,} questions; tokens {estimate.tokens.source}"
    return Forecast(questions * HOSTED_S / AT_ONCE, _sum(fees, estimate.usd), disk, basis)


def _trained(profile: Profile, name: Stage) -> Forecast:
    planned = _plan(profile)
    stage = next(each for each in planned.stages if each.stage == name)
    fees = [fee.usd for fee in planned.judges] if name == "grpo" else []
    if profile.training.gpu is not None:
        fees.append(stage.hours * sum(planned.gpus.values()) * planned.usd_per_hour)
    weights = planned.lora_parameters or planned.parameters
    disk = CHECKPOINTS * CHECKPOINT_BYTES_A_WEIGHT * weights
    disk += round(stage.steps * stage.episodes) * EPISODE_BYTES
    base = profile.recipe.model.base
    if base is not None and not expanded(base).exists():
        disk += 2 * planned.parameters
    return Forecast(3600 * stage.hours, _sum(*fees), disk, f"art-e train plan on {planned.gpu}")


def _evaluation(profile: Profile) -> Forecast:
    questions, evaluation = profile.recipe.judging.test_questions, profile.evaluation
    seconds = LOADING_S + questions * OWN_S / evaluation.concurrency
    if profile.measured is not None and "evaluation" in profile.measured.minutes:
        seconds = 60 * profile.measured.minutes["evaluation"]
    usd = _sum(_judges(profile, questions), seconds / 3600 * (evaluation.usd_per_hour or 0.0))
    at_once = f"{evaluation.concurrency} at a time"
    basis = f"{questions:,} questions, {at_once}; loading and seconds assumed"
    return Forecast(seconds, usd, questions * EPISODE_BYTES, basis)


def _models(profile: Profile) -> Iterator[tuple[Stage, str]]:
    """The models that are asked, as litellm names them, with the stage that asks them."""
    golden, judging = profile.golden, profile.recipe.judging
    if golden.questions == GENERATED:
        yield "golden", golden.writer
    yield "golden", golden.reader
    if needs_model(golden.judge):
        yield "golden", golden.judge
    yield from (("prompts", model_name(each)) for each in profile.asks_prompted)
    yield from (("baselines", model_name(each)) for each in profile.baselines.models)
    for judge in filter(needs_model, profile.judges):
        yield "baselines", judge
        yield "evaluation", judge
    yield from (("grpo", each) for each in filter(is_paid, (judging.reward, judging.validation)))


def _why_not(name: str) -> str | None:
    """Why a hosted model can't be asked from here; None if it can."""
    model = Model(name)
    if model.kind != "hosted":
        return None
    try:
        _ = model.host
        model.policy()
    except UserError as error:
        return str(error)
    return None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _judges(profile: Profile, episodes: int) -> float | None:
    """The fees of the profile's judges for their verdicts on so many episodes."""
    paid = [each for each in profile.judges if needs_model(each)]
    return _sum(*(fee_of(each, episodes, expected_episode(profile.recipe)).usd for each in paid))


def _fees(model: str, requests: int, usage: Usage) -> float | None:
    if model == OFFLINE or not requests:
        return 0.0
    return expected_cost(model, [usage], requests)


def _sum(*fees: float | None) -> float | None:
    return None if None in fees else sum(each for each in fees if each is not None)
