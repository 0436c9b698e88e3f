"""What a reproduction takes and needs, before anything runs: time, money, keys, a GPU.

If the profile has been measured, time is as measured. Else it is calculated from the constants
below, `art-e train plan` and the tokens of earlier runs, and may be off by half.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from art_e.cli.output import console, one_line, print_line, text
from art_e.errors import UserError
from art_e.models.base import Usage
from art_e.models.model import Model
from art_e.models.prices import expected_cost
from art_e.storage import runs_folder
from data_pipeline.golden.generate import THINKING_TOKENS, TOKENS_PER_ITEM
from data_pipeline.golden.model_checks import COMPLETION_TOKENS, JUDGE_USAGE, VERDICTS_PER_ROW
from evals.benchmark import estimate_cost, model_name
from evals.judges import needs_model
from training.cli import duration
from training.judging import is_paid
from training.planning import (
    DEFAULT_GPU,
    MAIL_TOKENS,
    TrainingPlan,
    expected_episode,
    fee_of,
    gpu_of,
    plan,
)
from training.reproduction.chain import Stage, Unit
from training.reproduction.profile import GENERATED, OFFLINE, Profile

# Measured on two cores on 47,990 mails of the Enron archive: 6.6 to 7.0 s.
MAILS_PER_S = 7_000
# Of the golden set: mails of a batch, questions of a batch, requests at a time.
BATCH_MAILS, BATCH_QUESTIONS, AT_ONCE = 20, 8, 8
# Assumed: the instructions of a batch in tokens, seconds of a request that writes or reads,
# requests that verify a row and their tokens, seconds of a question to a hosted, a served and no
# model, seconds until a server answers, and of the steps that only read runs.
FRAME_TOKENS, WRITE_S, READ_S, READS_PER_ROW, READ_TOKENS = 1_500, 60.0, 4.0, 3, 2_500
HOSTED_S, OWN_S, OFFLINE_S, LOADING_S = 10.0, 5.0, 0.05, 300.0
_SECONDS = {"prompts": 1.0, "report": 60.0}


class Forecast(NamedTuple):
    """What a step takes; `usd` is None if a price is unknown. `basis` names the source."""

    seconds: float
    usd: float | None
    basis: str


def forecast(unit: Unit, profile: Profile) -> Forecast:
    """What the whole step takes."""
    calculated, measured = _calculated(unit, profile), profile.measured
    if measured is None or unit.stage not in measured.minutes:
        return calculated
    seconds = 60 * measured.minutes[unit.stage]
    return Forecast(seconds, calculated.usd, measured.source)


def _calculated(unit: Unit, profile: Profile) -> Forecast:
    judging = profile.recipe.judging
    if unit.name in _SECONDS:
        return Forecast(_SECONDS[unit.name], 0.0, "assumed")
    if unit.stage in ("prompts", "baselines"):
        tested = unit.stage == "baselines"
        questions = judging.test_questions if tested else judging.questions
        return _asked(profile, str(unit.settings["model"]), questions)
    if unit.stage in ("sft", "grpo"):
        return _trained(profile, unit.stage)
    if unit.stage == "golden":
        return _golden(profile)
    if unit.stage == "ingest":
        mails = profile.ingest.limit or profile.ingest.mails
        basis = f"{mails:,} mails at the rate of the Enron archive; a download is not counted"
        return Forecast(mails / MAILS_PER_S, 0.0, basis)
    questions, evaluation = judging.test_questions, profile.evaluation
    seconds = LOADING_S + questions * OWN_S / evaluation.concurrency
    usd = _sum(_judges(profile, questions), seconds / 3600 * (evaluation.usd_per_hour or 0.0))
    basis = f"{questions:,} questions, {evaluation.concurrency} at a time; seconds assumed"
    return Forecast(seconds, usd, basis)


def _golden(profile: Profile) -> Forecast:
    golden = profile.golden
    if golden.questions != GENERATED:
        fees = 0.0 if golden.reader == OFFLINE else None
        return Forecast(60.0, fees, "assumed; a reader's fees depend on the number of rows")
    batches = golden.batches * (golden.train + golden.validation + golden.test)
    rows = batches * BATCH_QUESTIONS
    written = Usage(
        BATCH_MAILS * MAIL_TOKENS + FRAME_TOKENS,
        completion_tokens=BATCH_QUESTIONS * TOKENS_PER_ITEM + THINKING_TOKENS,
    )
    reads = 0 if golden.reader == OFFLINE else READS_PER_ROW * rows
    read = Usage(READ_TOKENS, completion_tokens=COMPLETION_TOKENS)
    requests = (
        (golden.writer, batches, written),
        (golden.reader, reads, read),
        (golden.judge, VERDICTS_PER_ROW * rows, JUDGE_USAGE),
    )
    usd = _sum(
        *(expected_cost(model, [usage], n) for model, n, usage in requests if model != OFFLINE)
    )
    seconds = (batches * WRITE_S + reads * READ_S) / AT_ONCE
    basis = f"{batches:,} batches, {rows:,} questions; tokens of replies and seconds assumed"
    return Forecast(seconds, usd, basis)


def _asked(profile: Profile, model: str, questions: int) -> Forecast:
    """Questions asked of a prompted model, and the judges' fees."""
    fees = _judges(profile, questions)
    if model == OFFLINE:
        return Forecast(questions * OFFLINE_S, fees, f"{questions:,} questions")
    estimate = estimate_cost(model, questions, runs_folder())
    basis = f"{questions:,} questions; tokens {estimate.tokens.source}"
    return Forecast(questions * HOSTED_S / AT_ONCE, _sum(fees, estimate.usd), basis)


def _trained(profile: Profile, name: Stage) -> Forecast:
    planned = _plan(profile)
    stage = next(each for each in planned.stages if each.stage == name)
    fees = [fee.usd for fee in planned.judges] if name == "grpo" else []
    if profile.training.gpu is not None:
        fees.append(stage.hours * sum(planned.gpus.values()) * planned.usd_per_hour)
    return Forecast(3600 * stage.hours, _sum(*fees), f"art-e train plan on {planned.gpu}")


def _plan(profile: Profile) -> TrainingPlan:
    return plan(profile.recipe, gpu_of(profile.training.gpu or DEFAULT_GPU))


def _judges(profile: Profile, episodes: int) -> float | None:
    """The fees of the profile's judges for their verdicts on so many episodes."""
    paid = [each for each in profile.judges if needs_model(each)]
    return _sum(*(fee_of(each, episodes, expected_episode(profile.recipe)).usd for each in paid))


def _sum(*fees: float | None) -> float | None:
    return None if None in fees else sum(each for each in fees if each is not None)


# ---- What is missing on this machine.


def missing(profile: Profile, units: Sequence[Unit]) -> list[str]:
    """What the steps that are not done lack on this machine, a line each."""
    left = {each.stage for each in units if each.digests is None}
    models = dict.fromkeys(name for stage, name in _models(profile) if stage in left)
    found = [reason for name in models if (reason := _why_not(name)) is not None]
    grpo = profile.recipe.grpo
    needs_gpu = grpo is not None and grpo.vllm is not None
    if left & {"grpo", "sft"} and needs_gpu and not _has_gpu():
        found.append(f"training {profile.recipe.name} needs an NVIDIA GPU, and there is none")
    return list(dict.fromkeys(found))


def _models(profile: Profile) -> Iterator[tuple[Stage, str]]:
    """The models that are asked, as litellm names them, with the stage that asks them."""
    golden, judging = profile.golden, profile.recipe.judging
    if golden.questions == GENERATED:
        yield "golden", golden.writer
    yield "golden", golden.reader
    yield from (("golden", each) for each in filter(needs_model, [golden.judge]))
    yield from (("prompts", model_name(each)) for each in profile.asks_prompted)
    yield from (("baselines", model_name(each)) for each in profile.baselines.models)
    for judge in filter(needs_model, profile.judges):
        yield "baselines", judge
        yield "evaluation", judge
    yield from (("grpo", each) for each in filter(is_paid, (judging.reward, judging.validation)))


def _why_not(name: str) -> str | None:
    """Why a hosted model can't be asked from here; None if it can."""
    model = Model(name)
    try:
        if model.kind == "hosted":
            _ = model.host
            model.policy()
    except UserError as error:
        return str(error)
    return None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


# ---- The plan of `--dry-run`.


def plan_row(profile: Profile, units: Sequence[Unit], out: str) -> dict[str, Any]:
    """The plan as JSON:

        {"profile", "out", "units": [{"stage", "unit", "state", "folder", "commands", "seconds",
         "usd", "basis"}], "left": {"seconds", "usd"}, "faults", "missing"}

    A state is "done", "begun", "to do", or "to do or done" if that depends on earlier steps. A
    step that is done takes nothing more. The sum in USD is null if a part is unknown. `faults`
    say why training does not fit the profile's GPU.
    """
    rows: list[dict[str, Any]] = [
        {
            "stage": unit.stage,
            "unit": unit.name,
            "state": unit.state,
            "folder": str(unit.folder),
            "commands": list(unit.commands),
            **forecast(unit, profile)._asdict(),
            **({"seconds": 0.0, "usd": 0.0} if unit.state == "done" else {}),
        }
        for unit in units
    ]
    trains = any(each.stage == "grpo" for each in units)
    return {
        "profile": profile.name,
        "out": out,
        "units": rows,
        "left": {name: _sum(*(row[name] for row in rows)) for name in ("seconds", "usd")},
        "faults": _plan(profile).faults if trains and profile.training.gpu else [],
        "missing": missing(profile, units),
    }


def print_plan(row: dict[str, Any]) -> None:
    """Print a plan that `plan_row` made."""
    table = Table("stage", "unit", "", "time", "cost", "source of these", box=None, pad_edge=False)
    for column in table.columns[3:5]:
        column.justify = "right"
    for each in row["units"]:
        done = each["state"] == "done"
        takes = ("", "", "") if done else (*_shown(each), each["basis"])
        table.add_row(*map(text, (each["stage"], each["unit"], each["state"], *takes)))
    table.add_section()
    table.add_row("in all", "", "left", *_shown(row["left"]))
    console().print(table)
    print_line()
    for each in row["units"]:
        if each["commands"]:
            print_line(f"# {each['stage']}: {one_line(each['unit'])}")
        for command in each["commands"]:
            print_line(one_line(command))
    for fault in row["faults"]:
        print_line(f"training does not fit: {one_line(fault)}")
    for lacking in row["missing"]:
        print_line(f"missing: {one_line(lacking)}")


def _shown(takes: dict[str, Any]) -> tuple[str, str]:
    usd = takes["usd"]
    return duration(takes["seconds"] / 3600), "unknown" if usd is None else f"${usd:,.2f}"
