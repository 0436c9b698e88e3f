"""Options for the model: how it is called, and the form of its episodes."""

import tomllib
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ValidationError
from typer import Option

from art_e.episode import EpisodeForm
from art_e.errors import UserError, fault_of
from art_e.models.base import OFFLINE, Effort, kind_of
from art_e.models.checkpoint import episode_form
from art_e.models.model import Model, full_name
from art_e.storage import expanded

# ---- Calls.

HOSTED_CONCURRENCY = 8  # default of `--concurrency` for models hosted elsewhere; else 1

ToolCalls = Literal["auto", "native", "text"]


def model_option(help_text: str) -> Any:
    """Return an option that takes the name of a model, or several names."""
    return Option("--model", "-m", metavar="MODEL", parser=full_name, help=help_text)


ModelOption = Annotated[
    str | None,
    model_option("o3, ollama_chat/..., local:PATH, offline [default: config's, else offline]."),
]
EffortOption = Annotated[Effort | None, Option("--reasoning-effort", help="How long to reason.")]
TemperatureOption = Annotated[
    float | None, Option("--temperature", min=0, max=2, help="Default: 0 if the model accepts it.")
]
MaxCostOption = Annotated[
    float | None, Option("--max-cost", metavar="USD", min=0, help="Cost limit of a model's calls.")
]
_TIMEOUT = "Seconds without an answer before a call fails [default: 120, on this machine 600]."
TimeoutOption = Annotated[float | None, Option("--timeout", metavar="S", min=1, help=_TIMEOUT)]
RetriesOption = Annotated[
    int | None, Option("--retries", metavar="N", min=0, help="Maximum retries of a failed call.")
]
ToolCallsOption = Annotated[
    ToolCalls, Option("--tool-calls", help="text: for models without native tool calls.")
]


# ---- The form of episodes.

_FORM = (
    "Form of the episodes, instead of the one that a local model was trained in: a TOML file with"
    " a table [episode], or the folder of a training run or checkpoint."
)
RecipeOption = Annotated[str | None, Option("--recipe", metavar="RECIPE", help=_FORM)]
DEFAULT_FORM = EpisodeForm()
# Tokens cost the offline policy nothing, and it chooses passages from whole mails.
_OFFLINE_FORM = EpisodeForm(lean=False)


def turn_tokens(form: EpisodeForm, model: str) -> int | None:
    """Return the form's token limit per turn; None for hosted models, which may reason first."""
    limited = "turn_tokens" in form.model_fields_set and Model(model).self_hosted
    return form.turn_tokens if limited else None


def chosen_form(
    recipe: str | None,
    max_turns: int | None,
    models: Collection[str] = (),
    *,
    other_prompt: bool = False,
) -> EpisodeForm:
    """Return the form of `--recipe`, else the one that the models were trained in, with
    `--max-turns`. Raises `UserError` for models of different forms, an unreadable recipe, and a
    recipe with options that it sets itself: `--max-turns`, or `--prompt` (`other_prompt`)."""
    if recipe is None:
        local = (name for name in models if kind_of(name) == "local")
        trained = {name: form for name in local if (form := episode_form(name)) is not None}
        if len(set(trained.values())) > 1:
            names = " and ".join(trained)
            raise UserError(f"{names} were trained in different forms: choose one with --recipe")
        default = _OFFLINE_FORM if {*models} == {OFFLINE} else DEFAULT_FORM
        form = next(iter(trained.values()), default)
        changes = {} if max_turns is None else {"max_turns": max_turns}
        return form.model_copy(update=changes | ({"prompt": None} if other_prompt else {}))
    conflicts = ["--max-turns"] * (max_turns is not None) + ["--prompt"] * other_prompt
    if conflicts:
        raise UserError(f"--recipe already sets {' and '.join(conflicts)}; drop one of them")
    path = expanded(recipe)
    overriding = episode_form(recipe) if path.is_dir() else _form_in(path)
    if overriding is None:
        why = f"--recipe {recipe} has no episode form; name a TOML file with a table [episode]"
        raise UserError(f"{why}, or the folder of a training run or checkpoint")
    return overriding


def _form_in(file: Path) -> EpisodeForm | None:
    """Return the form in a TOML file's table [episode]; None without one."""
    try:
        table = tomllib.loads(file.read_text("utf-8"))
        return EpisodeForm.model_validate(table["episode"])
    except ValidationError as error:
        raise UserError(f"--recipe {file}: episode.{fault_of(error, 'episode')}") from None
    except (OSError, ValueError, KeyError):
        return None


# ---- A question.


@dataclass(frozen=True)
class Options:
    """Command-line options for a model's calls, its episodes, and the mail that they can read."""

    recipe: str | None = None
    max_turns: int | None = None
    effort: Effort | None = None
    temperature: float | None = None
    max_cost: float | None = None
    tool_calls: ToolCalls = "auto"
    junk: bool = False
    timeout: float | None = None
    retries: int | None = None

    def continuing(self, earlier: dict[str, Any], *, same_model: bool) -> "Options":
        """Return these options, and the `earlier` values of those that the command line leaves out.
        Another model may not accept them all; a recipe and a turn limit exclude each other."""
        default = asdict(Options())
        left_out = {name for name, value in default.items() if getattr(self, name) == value}
        if not {"recipe", "max_turns"} <= left_out:
            left_out -= {"recipe", "max_turns"}
        if not same_model:
            left_out -= {"recipe", "effort", "temperature", "tool_calls"}
        return replace(self, **{name: earlier[name] for name in left_out & earlier.keys()})
