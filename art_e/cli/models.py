"""What every command that asks a model shares: its options, and where mail text goes.

Knows nothing of episodes and inboxes. Heavy imports are made inside the functions.
"""

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

if TYPE_CHECKING:
    from art_e.policies.base import Policy
    from art_e.policies.choose import ModelOptions

# Questions that hosted models work on at a time, where `--concurrency` does not say.
HOSTED_CONCURRENCY = 8

Effort = Literal["minimal", "low", "medium", "high"]
ToolCalls = Literal["auto", "native", "text"]

EffortOption = Annotated[
    Effort | None, typer.Option("--reasoning-effort", help="How long a reasoning model thinks.")
]
TemperatureOption = Annotated[
    float | None,
    typer.Option("--temperature", min=0, max=2, help="Default: 0 where the model takes it."),
]
MaxCostOption = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", min=0, help="Stop before a model has cost more."),
]
ToolCallsOption = Annotated[
    ToolCalls,
    typer.Option("--tool-calls", help="text: for models that can't call tools natively."),
]
CacheOption = Annotated[
    bool,
    typer.Option("--cache", help="Keep responses, and use those kept; time is not measured then."),
]


class Chosen(NamedTuple):
    """A policy that is ready to be asked; `host` receives mail text, None: nothing leaves."""

    name: str
    policy: "Policy"
    host: str | None

    @property
    def notice(self) -> str | None:
        """One line on where mail text goes; None where it stays in this process."""
        if self.host is None:
            return None
        return mail_notice(self.name, self.host)


def mail_notice(model: str, host: str) -> str:
    """One line on where the mail text that `model` reads goes."""
    from art_e.policies.host import on_this_machine

    if on_this_machine(host):
        return f"mail text stays on this machine ({host}, {model})"
    return f"mail text goes to {host} ({model})"


def model_options(
    effort: Effort | None,
    temperature: float | None,
    max_cost: float | None,
    tool_calls: ToolCalls,
    cache: bool,
    concurrency: int,
    turn_tokens: int | None = None,
) -> "ModelOptions":
    """What the command line says of how a model is asked; `turn_tokens` bounds each message."""
    from art_e.home import home
    from art_e.policies.choose import ModelOptions

    return ModelOptions(
        temperature=temperature,
        reasoning_effort=effort,
        max_output_tokens=turn_tokens,
        tool_calls=tool_calls,
        concurrency=concurrency,
        max_cost_usd=max_cost,
        cache=home() / "cache" / "responses" if cache else None,
    )


def default_concurrency(models: list[str]) -> int:
    """Several at a time where only hosted models are asked, else 1.

    A machine of one's own is measured with one question at a time.
    """
    hosts = [_host(model) for model in models if model != "offline"]
    if not hosts or None in hosts:
        return 1
    from art_e.policies.host import on_this_machine

    elsewhere = all(host is not None and not on_this_machine(host) for host in hosts)
    return HOSTED_CONCURRENCY if elsewhere else 1


def is_self_hosted(model: str) -> bool:
    """Whether the model runs on hardware of one's own, here or elsewhere."""
    host = _host(model)
    from art_e.policies.host import self_hosted

    return self_hosted(model, host)


def shares_a_machine(model: str) -> bool:
    """Whether other models of one's own would make it slower; so does `offline` work here."""
    return model == "offline" or is_self_hosted(model)


def choose(model: str, options: "ModelOptions") -> Chosen:
    """The policy of `--model`. Raises `UserError` where its key or its address is not set."""
    from art_e.policies.choose import choose_policy

    host = _host(model)
    chosen = Chosen(model, choose_policy(model, options), host)
    if host is not None and options.cache is None:
        from art_e.policies.litellm_module import warm_up

        # Or it would be part of the first question's time.
        warm_up()
    return chosen


def _host(model: str) -> str | None:
    from art_e.policies.choose import LOCAL_PREFIX

    if model == "offline" or model.startswith(LOCAL_PREFIX):
        return None
    from art_e.policies.host import receiving_host
    from art_e.policies.secrets import load_env

    load_env()
    return receiving_host(model)
