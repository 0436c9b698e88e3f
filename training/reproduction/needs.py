"""What a reproduction needs of the machine before it is begun: keys, a GPU.

Knows nothing of what units do.
"""

from collections.abc import Iterator, Sequence

from art_e.errors import UserError
from art_e.models.model import Model
from evals.benchmark import model_name
from evals.judges import needs_model
from training.judging import is_paid
from training.reproduction.expected import plan_of_training
from training.reproduction.profile import GENERATED, Profile
from training.reproduction.reproduction import Planned
from training.reproduction.unit import Stage


def missing(profile: Profile, planned: Sequence[Planned]) -> list[str]:
    """What the units that are not done need and is not there, a line each."""
    left = {each.state.unit.stage for each in planned if each.state.made is None}
    found = [
        reason
        for stage, model in dict.fromkeys(_models(profile))
        if stage in left and (reason := _why_not(model)) is not None
    ]
    if left & {"grpo", "sft"} and _needs_gpu(profile) and not _has_gpu():
        found.append(f"training {profile.recipe.name} needs an NVIDIA GPU, and there is none")
    return list(dict.fromkeys(found))


def faults(profile: Profile, planned: Sequence[Planned]) -> list[str]:
    """Why training would not fit the profile's card, by `art-e train plan`."""
    trains = any(each.state.unit.stage == "grpo" for each in planned)
    return plan_of_training(profile).faults if trains and profile.training.gpu else []


def _models(profile: Profile) -> Iterator[tuple[Stage, str]]:
    """The models that are asked, as litellm names them, with the stage that asks them."""
    golden = profile.golden
    if golden.questions == GENERATED:
        yield "golden", golden.writer
    yield "golden", golden.reader
    if needs_model(golden.judge):
        yield "golden", golden.judge
    for model in profile.asks_prompted:
        yield "prompts", model_name(model)
    for model in profile.baselines.models:
        yield "baselines", model_name(model)
    stages: tuple[Stage, ...] = ("baselines", "evaluation")
    for judge in filter(needs_model, profile.judges):
        yield from ((stage, judge) for stage in stages)
    judging = profile.recipe.judging
    for judge in filter(is_paid, (judging.reward, judging.validation)):
        yield "grpo", judge


def _why_not(model: str) -> str | None:
    """Why the model can't be asked from here; None where it can."""

    asked = Model(model)
    if asked.kind != "hosted":
        return None
    try:
        _ = asked.host
        asked.policy()
    except UserError as error:
        return str(error)
    return None


def _needs_gpu(profile: Profile) -> bool:
    """Whether the recipe can't be trained without one: vLLM generates in its process."""
    grpo = profile.recipe.grpo
    return grpo is not None and grpo.vllm is not None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
