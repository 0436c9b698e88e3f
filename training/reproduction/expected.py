"""What a unit is expected to take before it is run: time, money and disk.

Where the profile has been measured, time and disk are what was measured. Else they are
calculated from the constants below, from `art-e train plan`'s and from earlier runs' tokens, and
expected to be off by half. Knows nothing of how a plan is printed.
"""

from typing import NamedTuple

from art_e.models.base import Usage
from art_e.models.prices import expected_cost
from art_e.storage import expanded, runs_folder
from data_pipeline.golden.asking import THINKING_TOKENS, TOKENS_PER_ITEM
from data_pipeline.golden.verify import COMPLETION_TOKENS, JUDGE_USAGE, VERDICTS_PER_ROW
from evals.benchmark import estimate_cost
from evals.judges import needs_model
from training.planning import (
    DEFAULT_GPU,
    MAIL_TOKENS,
    TrainingPlan,
    expected_episode,
    fee_of,
    gpu_of,
)
from training.planning import plan as plan_of
from training.reproduction.profile import GENERATED, OFFLINE, Profile
from training.reproduction.unit import STAGES, Stage, Unit

# Measured on two cores on 47,990 mails of the Enron archive (134.7 MB as text): 6.6 to 7.0 s, and a
# file of 47.5 MB.
MAILS_PER_S, INBOX_BYTES, MAIL_BYTES = 7_000, 1_000, 2_800
# Of the golden set: mails of a batch, questions a batch, requests at a time.
BATCH_MAILS, BATCH_QUESTIONS, AT_ONCE = 20, 8, 8
# Assumed: the instructions of a batch in tokens, seconds a request that writes or reads, requests
# that verify a row and their tokens, seconds a question of a hosted model and of one's own.
FRAME_TOKENS, WRITE_S, READ_S = 1_500, 60.0, 4.0
READS_PER_ROW, READ_TOKENS = 3, 2_500
HOSTED_S, OWN_S, OFFLINE_S = 10.0, 5.0, 0.05
# Assumed: until a server answers; the bytes of an episode on disk, and of a report.
LOADING_S, EPISODE_BYTES, REPORT_S = 300.0, 20_000, 60.0
# A run keeps its newest checkpoint and its best one: weights and AdamW's two moments in float32.
CHECKPOINTS, CHECKPOINT_BYTES_A_WEIGHT = 2, 12


class Expected(NamedTuple):
    """What is expected of a unit; `usd` is None where a price is not known. `basis` says how it
    is known."""

    seconds: float
    usd: float | None
    disk: float
    basis: str


def expected_of(unit: Unit, profile: Profile) -> Expected:
    """What the unit takes, where nothing of it is done."""
    told = _OF[unit.stage](unit, profile)
    measured, seconds = profile.measured, _measured_s(profile, unit.stage)
    if measured is None or seconds is None:
        return told
    disk = 1e6 * measured.megabytes.get(unit.stage, 0.0)
    return Expected(seconds, told.usd, disk, measured.source)


def _measured_s(profile: Profile, stage: Stage) -> float | None:
    """Seconds that a unit of the stage was measured to take; None where it was not."""
    minutes = {} if profile.measured is None else profile.measured.minutes
    return 60 * minutes[stage] if stage in minutes else None


def _ingest(_: Unit, profile: Profile) -> Expected:
    mails = profile.ingest.limit or profile.ingest.mails
    local = all(
        each.startswith("synthetic:") or expanded(each).exists() for each in profile.sources
    )
    fetched = 0 if local else mails * MAIL_BYTES
    basis = f"{mails:,} mails at the rate of the Enron archive" + (
        "" if local else "; the download's time is not counted"
    )
    return Expected(mails / MAILS_PER_S, 0.0, mails * INBOX_BYTES + fetched, basis)


def _golden(_: Unit, profile: Profile) -> Expected:
    told = profile.golden
    if told.questions != GENERATED:
        unread = 0.0 if told.reader == OFFLINE else None
        basis = "assumed; a reader's fees depend on how many rows there are"
        return Expected(60.0, unread, 50e6, basis)
    batches = told.batches * (told.train + told.validation + told.test)
    rows = batches * BATCH_QUESTIONS
    written = Usage(
        BATCH_MAILS * MAIL_TOKENS + FRAME_TOKENS,
        completion_tokens=BATCH_QUESTIONS * TOKENS_PER_ITEM + THINKING_TOKENS,
    )
    reading = 0 if told.reader == OFFLINE else READS_PER_ROW * rows
    fees = [
        _fees(told.writer, batches, written),
        _fees(told.reader, reading, Usage(READ_TOKENS, completion_tokens=COMPLETION_TOKENS)),
        _fees(told.judge, VERDICTS_PER_ROW * rows, JUDGE_USAGE),
    ]
    seconds = (batches * WRITE_S + reading * READ_S) / AT_ONCE
    basis = f"{batches:,} batches, {rows:,} questions; tokens of replies and seconds assumed"
    disk = batches * BATCH_MAILS * MAIL_BYTES + rows * EPISODE_BYTES
    return Expected(seconds, _sum(fees), disk, basis)


def _prompts(unit: Unit, profile: Profile) -> Expected:
    if "model" not in unit.settings:
        return Expected(1.0, 0.0, 1e4, "the choice")
    return _asked(profile, str(unit.settings["model"]), profile.recipe.judging.questions)


def _baselines(unit: Unit, profile: Profile) -> Expected:
    return _asked(profile, str(unit.settings["model"]), profile.recipe.judging.test_questions)


def _sft(_: Unit, profile: Profile) -> Expected:
    return _trained(profile, "sft")


def _grpo(_: Unit, profile: Profile) -> Expected:
    return _trained(profile, "grpo")


def _evaluation(_: Unit, profile: Profile) -> Expected:
    asked, told = profile.recipe.judging.test_questions, profile.evaluation
    measured = _measured_s(profile, "evaluation")
    seconds = LOADING_S + asked * OWN_S / told.concurrency if measured is None else measured
    fees = _judges(profile, asked)
    gpu = 0.0 if told.usd_per_hour is None else seconds / 3600 * told.usd_per_hour
    basis = f"{asked:,} questions, {told.concurrency} at a time; loading and seconds assumed"
    return Expected(seconds, _sum([fees, gpu]), asked * EPISODE_BYTES, basis)


def _report(_: Unit, profile: Profile) -> Expected:
    episodes = profile.recipe.judging.test_questions * (2 + len(profile.baselines.models))
    return Expected(REPORT_S, 0.0, episodes * EPISODE_BYTES, "assumed")


_OF = dict(
    zip(
        STAGES,
        (_ingest, _golden, _prompts, _baselines, _sft, _grpo, _evaluation, _report),
        strict=True,
    )
)


def plan_of_training(profile: Profile) -> TrainingPlan:
    """What `art-e train plan` says of the recipe on the profile's card."""
    return plan_of(profile.recipe, gpu_of(profile.training.gpu or DEFAULT_GPU))


def _asked(profile: Profile, model: str, questions: int) -> Expected:
    """Questions put to a model that is prompted, and its judges."""
    fees = _judges(profile, questions)
    disk = questions * EPISODE_BYTES
    if model == OFFLINE:
        return Expected(questions * OFFLINE_S, fees, disk, f"{questions:,} questions")
    told = estimate_cost(model, questions, runs_folder())
    basis = f"{questions:,} questions; tokens {told.tokens.source}"
    return Expected(questions * HOSTED_S / AT_ONCE, _sum([fees, told.usd]), disk, basis)


def _trained(profile: Profile, name: Stage) -> Expected:
    planned = plan_of_training(profile)
    stage = next(each for each in planned.stages if each.stage == name)
    hours = stage.hours
    fees: list[float | None] = [fee.usd for fee in planned.judges] if name == "grpo" else []
    if profile.training.gpu is not None:
        fees.append(hours * sum(planned.gpus.values()) * planned.usd_per_hour)
    weights = planned.lora_parameters or planned.parameters
    disk = CHECKPOINTS * CHECKPOINT_BYTES_A_WEIGHT * weights
    disk += round(stage.steps * stage.episodes) * EPISODE_BYTES
    base = profile.recipe.model.base
    if base is not None and not expanded(base).exists():
        disk += 2 * planned.parameters
    basis = f"art-e train plan on {planned.gpu}"
    return Expected(3600 * hours, _sum(fees), disk, basis)


def _judges(profile: Profile, episodes: int) -> float | None:
    """What the profile's judges are paid for their verdicts on so many episodes."""
    paid = [each for each in profile.judges if needs_model(each)]
    return _sum([fee_of(each, episodes, expected_episode(profile.recipe)).usd for each in paid])


def _fees(model: str, requests: int, usage: Usage) -> float | None:
    if model == OFFLINE or not requests:
        return 0.0
    return expected_cost(model, [usage], requests)


def _sum(fees: list[float | None]) -> float | None:
    return None if None in fees else sum(each for each in fees if each is not None)
