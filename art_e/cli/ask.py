"""`ask`: one question about an inbox, one episode, one answer with its sources."""

import asyncio
import dataclasses
import datetime as dt
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from typer import Argument, Option

from art_e.agent import run_episode
from art_e.cli.model_options import (
    DEFAULT_FORM,
    EffortOption,
    MaxCostOption,
    RecipeOption,
    TemperatureOption,
    ToolCallsOption,
    chosen_form,
    model_options,
    ready_policy,
    turn_tokens,
)
from art_e.cli.options import (
    AllOption,
    AsOfOption,
    DbOption,
    InboxOption,
    JsonOption,
    OutOption,
    chosen_address,
    chosen_db,
    parse_day,
)
from art_e.cli.output import (
    STARTED,
    console,
    example,
    note,
    one_line,
    plural,
    print_json,
    status,
    text,
)
from art_e.cli.trace import shown_turn
from art_e.episode import DEFAULT_MAX_TURNS, Episode, EpisodeForm
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, format_date
from art_e.models.base import OFFLINE, Policy
from art_e.models.model import Model, default_model, full_name
from art_e.models.nearby import nearby
from art_e.models.offline import OfflinePolicy, all_candidates
from art_e.question import Question
from art_e.runs import Run, runs_of, start_run
from art_e.storage import runs_folder
from art_e.trajectory import AnsweredCall, Exchange, Trajectory, read_trajectories

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
OFFLINE_NOTE = (
    "offline is the baseline: it quotes the best sentence it finds and understands nothing;"
    " --model NAME asks a model instead"
)

# Best passages shown where no model answered.
PASSAGES = 3

# Failures that the same command would meet again.
_LASTING = {"auth", "no-model", "no-credit", "budget", "context", "request"}

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class Passage(NamedTuple):
    """A sentence that fits the question, and the mail that it stands in."""

    text: str
    email: Email


class Answered(NamedTuple):
    """An episode that has ended: what happened, the mails it cites, and its file.

    `passages` are the best ones of the inbox, best first, if no model answered.
    """

    question: str
    trajectory: Trajectory
    sources: list[Email]
    path: Path
    passages: tuple[Passage, ...] = ()

    @property
    def kind(self) -> Literal["answer", "passages", "none"]:
        """What the episode gave; without a model it is a passage rather than an answer."""
        if why_no_answer(self.trajectory) is not None:
            return "none"
        return "passages" if self.trajectory.model == "offline" else "answer"

    def to_json(self) -> dict[str, Any]:
        """The episode as `art-e ask --json` prints it.

        `kind` says what `answer` is: an answer, without a model the best of the `passages`, or
        nothing ("none"). `seconds` is wall time, `call_seconds` the time of each call to the
        model.
        """
        trajectory = self.trajectory
        seconds = {name: round(each, 3) for name, each in trajectory.seconds.items()}
        return {
            "question": self.question,
            "inbox_address": trajectory.inbox_address,
            "as_of": trajectory.as_of,
            "kind": self.kind,
            "answer": trajectory.final_answer,
            "abstained": trajectory.rubric["abstained"],
            "sources": [_cited(email) for email in self.sources],
            "passages": [{"text": each.text, **_cited(each.email)} for each in self.passages],
            "turns": trajectory.rubric["turns"],
            "seconds": seconds["total"],
            "model_seconds": seconds["model"],
            "tools_seconds": seconds["tools"],
            "call_seconds": trajectory.call_seconds,
            "usage": trajectory.usage,
            "retries": trajectory.retries,
            "cost_usd": trajectory.cost_usd,
            "model": trajectory.model,
            "trajectory": str(self.path),
        }


@app.command(
    epilog=example(
        'art-e ask "When is Shari\'s move to Portland targeted for?" \\',
        "    --inbox tim.belden@enron.com --as-of 2000-12-30 --db enron.duckdb --trace",
        'art-e ask "When does the lease end?" --model openai/o3 --max-cost 0.50',
        'art-e ask "When does the lease end?" --model local:mine/checkpoints/checkpoint-40'
        " --recipe mine",
    )
)
def ask(
    question: Annotated[
        str, Argument(metavar="QUESTION", help="In plain words, quoted; - reads standard input.")
    ],
    inbox: InboxOption = None,
    model: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            parser=full_name,
            help="o3, ollama_chat/qwen2.5:14b, ..., local:PATH; offline needs no model"
            " [default: that of art-e config, else offline].",
        ),
    ] = None,
    as_of: AsOfOption = None,
    junk: AllOption = False,
    max_turns: Annotated[
        int | None,
        Option(
            metavar="N", min=1, help=f"Messages the model may write [default: {DEFAULT_MAX_TURNS}]."
        ),
    ] = None,
    recipe: RecipeOption = None,
    follow_up: Annotated[
        bool,
        Option("--continue", "-c", help="Go on from the last question: same inbox, model, talk."),
    ] = False,
    trace: Annotated[
        bool, Option("--trace", help="Show each tool call and what came back.")
    ] = False,
    effort: EffortOption = None,
    temperature: TemperatureOption = None,
    max_cost: MaxCostOption = None,
    tool_calls: ToolCallsOption = "auto",
    db: DbOption = None,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer a question from the mail of one inbox, with sources."""
    question = sys.stdin.read() if question == "-" else question
    if not re.search(r"\w", question):
        raise UserError('the question is empty; ask one: art-e ask "When does the lease end?"')
    talk: list[list[str]] = []
    if follow_up:
        last, talk = _last_talk()
        inbox, model = inbox or last["inbox_address"], model or last["model"]
        db, as_of = db or Path(last["db"]), as_of or last["as_of"]
    today = parse_day(as_of, "--as-of")
    is_default, model = model is None, model or default_model()
    form = chosen_form(recipe, max_turns, [model])
    # The trace says itself what happens.
    with nullcontext(lambda _: None) if trace else status() as say:
        say(f"loading what calls {model}")
        options = model_options(
            effort,
            temperature,
            max_cost,
            tool_calls,
            1,
            turn_tokens(form, model),
            lambda number, most: say(f"{model}: trying again, {number} of {most}"),
            lambda answer: say(f"answers: {answer}"),
        )
        policy = ready_policy(Model(model), options)
    with InboxFile(chosen_db(db), junk=junk) as file:
        opened = file.open_inbox(chosen_address(file, inbox, db), today)
        bare = question.strip()
        own = Question("ask", with_talk(bare, talk), opened.address, today)
        run = begin_run("ask", own, policy, file.path, form.max_turns, out, recipe, (bare, talk))
        if policy.model == OFFLINE:
            note(OFFLINE_NOTE)
            # Nothing is looked for where nobody reads it.
            if is_default and sys.stderr.isatty() and (near := next(iter(nearby()), None)):
                first = f"{near.export}; " if near.export else ""
                note(f"{near.why}: {first}art-e config model {near.model}")
        elif (notice := Model(model).notice) is not None:
            note(notice)
        screen = console(to_stderr=as_json) if trace else None
        with nullcontext(lambda _: None) if trace else status() as say:
            answered = answer_question(opened, own, policy, run, form, screen, say)
    answered = answered._replace(question=bare)
    if as_json:
        print_json(answered.to_json())
    else:
        show_answer(answered)
    exit_for(answered.trajectory)


# So many earlier questions, with their answers, go along with a follow-up question.
TALK = 3


def _last_talk() -> tuple[dict[str, Any], list[list[str]]]:
    """The configuration of the last `ask`, and the questions and answers so far."""
    asked = (run for run in runs_of("ask", runs_folder()) if run.complete)
    if (run := next(asked, None)) is None:
        raise UserError("there is no question to go on from; ask one without --continue")
    [trajectory] = read_trajectories(run.trajectories)
    talk = run.config.get("talk", [])
    return run.config, talk_after(talk, run.config["question"], trajectory)


def talk_after(talk: list[list[str]], question: str, trajectory: Trajectory) -> list[list[str]]:
    """The questions and answers that go along with the next question."""
    answer = trajectory.final_answer or "(no answer was found)"
    return [*talk, [question, answer]][-TALK:]


def with_talk(question: str, talk: Sequence[Sequence[str]]) -> str:
    """The question with what was asked and answered before."""
    if not talk:
        return question
    before = "\n".join(f"Question: {asked}\nAnswer: {answer}" for asked, answer in talk)
    return f"Earlier in this talk:\n{before}\n\nThe question now: {question}"


def begin_run(
    name: str,
    question: Question,
    policy: Policy,
    db: Path,
    max_turns: int,
    out: Path | None,
    recipe: str | None = None,
    talk: tuple[str, list[list[str]]] | None = None,
) -> Run:
    """Make the folder of a run of one question; `talk` is the question as it was put, and the
    questions and answers before it."""
    asked, before = talk or (question.question, [])
    config = {
        "question": asked,
        "talk": before,
        "inbox_address": question.inbox_address,
        "as_of": None if question.query_date is None else question.query_date.isoformat(),
        "model": policy.model,
        "policy": policy.settings,
        "recipe": recipe,
        "max_turns": max_turns,
        "db": str(db),
    }
    return start_run(name, config, runs_folder(), out)


def answer_question(
    opened: Inbox,
    question: Question,
    policy: Policy,
    run: Run,
    form: EpisodeForm = DEFAULT_FORM,
    screen: "Console | None" = None,
    say: Callable[[str], None] = lambda _: None,
) -> Answered:
    """Run the episode, print its turns on `screen`, and complete the run with its trajectory. `say`
    gets what happens at the moment."""
    episode = Episode(
        opened,
        question,
        max_turns=form.max_turns,
        view=form.view,
        system_prompt=form.prompt,
        today=dt.date.today(),
    )

    def show(exchange: Exchange) -> None:
        if screen is not None:
            screen.print(shown_turn(episode.rubric.turns, exchange), soft_wrap=True)
        if episode.done:
            return
        done = "; ".join(_in_words(call) for call in exchange.calls)
        say(f"{done}; waiting for {policy.model}, turn {episode.rubric.turns + 1}")

    say(f"waiting for {policy.model}")
    trajectory = asyncio.run(run_episode(episode, policy, run.id, show))
    with run.log() as log:
        log.append(trajectory.to_line())
    run.finish()
    if screen is not None:
        screen.print()
    mails = (opened.read(message_id) for message_id in trajectory.sources)
    sources = [email for email in mails if email is not None]
    answered = Answered(question.question, trajectory, sources, run.trajectories)
    if answered.kind == "answer" or trajectory.error is not None:
        return answered
    # The question alone first: what was said before finds the passages of then.
    bare = dataclasses.replace(question, question=run.config["question"])
    ran = episode if policy.model == OFFLINE and bare == question else None
    passages = best_passages(ran or _offline_episode(opened, bare))
    if not passages and bare != question:
        passages = best_passages(_offline_episode(opened, question))
    return answered._replace(passages=passages)


def _in_words(call: AnsweredCall) -> str:
    """What a call did, in a few words of untrusted text."""
    given = call.arguments if isinstance(call.arguments, dict) else {}
    result = next(iter(call.results), {})
    if "body" in result:
        return f"read {result.get('from')}: {result.get('subject')}"
    if isinstance(hits := result.get("hits"), list):
        words = given.get("keywords")
        searched = " ".join(map(str, words)) if isinstance(words, list) else str(words)
        return f'searched "{searched}", {plural(len(hits), "mail")}'
    return call.tool


def _offline_episode(opened: Inbox, question: Question) -> Episode:
    """Return an episode of the offline policy, run without a call to a model."""
    episode = Episode(opened, question)
    asyncio.run(run_episode(episode, OfflinePolicy(), "passages"))
    return episode


def best_passages(episode: Episode) -> tuple[Passage, ...]:
    """Return the sentences that fit the question best, one from each mail that was read."""
    found: dict[str, Passage] = {}
    for each in sorted(all_candidates(episode.messages), key=lambda each: -each.score):
        if len(found) == PASSAGES:
            break
        email = episode.tools.inbox.read(episode.tools.resolve(each.handle))
        if email is not None:
            found.setdefault(email.message_id, Passage(each.text, email))
    return tuple(found.values())


def show_answer(answered: Answered) -> None:
    """Print the answer, its sources, passages if no model answered, time and cost."""
    screen = console()
    trajectory = answered.trajectory
    without = why_no_answer(trajectory)
    if without is not None:
        also = "; the best passages:" if answered.passages else ""
        screen.print(text(f"no answer: {without}{also}"), soft_wrap=True)
    elif answered.kind == "passages":
        screen.print(text("best passages, for no model was asked:"), soft_wrap=True)
    if without is None:
        screen.print(text((trajectory.final_answer or "", "bold")), soft_wrap=True)
    for email in answered.sources:
        screen.print(shown_source(email), soft_wrap=True)
    if without is None and not answered.sources:
        screen.print(text(("  (no source was given)", "dim")))
    cited = {email.message_id for email in answered.sources}
    for passage in answered.passages:
        if passage.email.message_id not in cited:
            screen.print(text((one_line(passage.text), "bold")), soft_wrap=True)
            screen.print(shown_source(passage.email), soft_wrap=True)
    screen.print(text((what_it_took(trajectory), "dim")), soft_wrap=True)


def shown_source(email: Email) -> "Text":
    """A source on one line: its day, sender, subject and id."""
    return text(
        f"  {format_date(email.date)[:10]}  ",
        (one_line(str(email.sender)), "cyan"),
        f"  {one_line(email.subject) or '(no subject)'}  ",
        (one_line(email.message_id), "dim"),
    )


def _cited(email: Email) -> dict[str, Any]:
    """A source as --json names it."""
    return {
        "message_id": email.message_id,
        "date": format_date(email.date),
        "from": str(email.sender),
        "subject": email.subject,
    }


def what_it_took(trajectory: Trajectory, began: float = STARTED) -> str:
    """Turns, seconds, tokens and cost in one line; a person has waited since `began`."""
    usage, seconds, cost = trajectory.usage, trajectory.seconds, trajectory.cost_usd
    asked_a_model = bool(usage["prompt_tokens"] or trajectory.error)
    parts = [plural(trajectory.rubric["turns"], "turn")]
    # All that a person waited for, what calls the model loaded too.
    took = f"{time.monotonic() - began:.2f} s" if asked_a_model else f"{seconds['total']:.2f} s"
    if asked_a_model:
        parts.append(f"{took} (model {seconds['model']:.2f} s, tools {seconds['tools']:.2f} s)")
        cached = usage["cached_prompt_tokens"]
        read = f"{usage['prompt_tokens']:,}" + (f" ({cached:,} cached)" if cached else "")
        parts.append(f"{read} + {usage['completion_tokens']:,} tokens")
    else:
        parts.append(took)
    if trajectory.retries:
        parts.append(f"{trajectory.retries} retried")
    # A failed call may cost something, so a sum of 0 after an error is unknown.
    if cost is None or (not cost and trajectory.error is not None):
        parts.append("cost unknown")
    else:
        parts.append(f"${cost:.4f}" if cost else "no cost")
    return ", ".join([*parts, trajectory.model])


def why_no_answer(trajectory: Trajectory) -> str | None:
    """Why an episode ended without an answer; None if it has one."""
    rubric = trajectory.rubric
    if trajectory.error is not None:
        return f"the model failed ({trajectory.error['kind']})"
    if rubric["ran_out_of_turns"]:
        return f"out of turns ({rubric['max_turns']}); --max-turns allows more"
    if rubric["lost_to_format"]:
        return "too many wrong calls in a row"
    if rubric["abstained"]:
        if trajectory.model == "offline":
            return "no passage fits well enough"
        return "the model found none in this inbox"
    return None


def exit_for(trajectory: Trajectory) -> None:
    """Exit with code 1 and a line on stderr if the episode failed for an outside reason."""
    if trajectory.error is not None:
        kind, message = trajectory.error["kind"], trajectory.error["message"]
        note(f"Error: {kind}: {message}{'' if kind in _LASTING else '; try again'}")
        raise typer.Exit(1)
