"""A conversation about one inbox, for `art-e ask`, `chat` and `web`.

Each question is a run of its own, which can be listed, shown, rated, and followed up (`ask -c`)."""

import datetime as dt
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from art_e.agent import run_episode, run_now
from art_e.cli.mail import highlighted
from art_e.cli.model_options import Options, chosen_form, turn_tokens
from art_e.cli.options import MailList, save_list
from art_e.cli.output import STARTED, clean, format_cost, one_line, plural, print_text, text
from art_e.episode import Episode, EpisodeForm
from art_e.errors import UserError
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, format_date
from art_e.inbox.tokenizer import stems, words
from art_e.message import ChatMessage
from art_e.models.base import OFFLINE, PERMANENT, ModelOptions, Policy
from art_e.models.model import Model
from art_e.offline import OfflinePolicy, passages_of
from art_e.passages import best_passages, informative_words, split_sentences
from art_e.question import Question
from art_e.runs import Run, start_run
from art_e.storage import runs_folder
from art_e.text import cut_line, toml_table
from art_e.trajectory import AnsweredCall, Exchange, Trajectory

if TYPE_CHECKING:
    from rich.text import Text

RETRIES = 2  # while a person waits
History = list[list[str]]  # questions and their answers
HISTORY = 3  # earlier questions that are sent with a follow-up, with their answers
PASSAGES = 3  # best passages shown if no model answered
STANDS_ALONE = 3  # with this many informative words, search without those of earlier questions
FEW_WORDS = 5  # a longer "I don't know" is shown, because it may say why


class Excerpt(NamedTuple):
    """A passage that matches the question, its best sentence, and its mail."""

    text: str
    sentence: str
    email: Email


class Answered(NamedTuple):
    """A finished episode, its run, the mails that the answer cites, and the best passages of the
    inbox, best first, if no model answered. `waited`: the seconds that the user waited."""

    question: str
    trajectory: Trajectory
    run: Run
    sources: list[Email]
    passages: list[Excerpt]
    waited: float

    @property
    def kind(self) -> Literal["answer", "passages", "none"]:
        """The kind of result; without a model these are passages rather than an answer."""
        if self.trajectory.model == OFFLINE and self.passages:
            return "passages"
        return "none" if self.reason else "answer"

    @property
    def reason(self) -> str:
        """The reason why there is no answer; "" if there is one."""
        return failure_reason(self.trajectory) or ""

    @property
    def answer(self) -> str | None:
        """The final answer; without a model the best sentence."""
        without_model = self.kind == "passages"
        return self.passages[0].sentence if without_model else self.trajectory.final_answer

    @property
    def headline(self) -> str:
        """The answer, or a line in its place."""
        if self.kind == "passages":
            return "best passages; no model was asked:"
        if self.kind == "answer":
            return self.answer or ""
        also = "; the best passages:" if self.passages else ""
        return f"no answer: {self.reason}{also}"

    @property
    def mails(self) -> list[Email]:
        mails = [*self.sources, *(each.email for each in self.passages)]
        return list({each.message_id: each for each in mails}.values())

    def sentence_of(self, email: Email) -> str:
        """Return the sentence of the mail's best passage, else the sentence that shares most stems
        with the answer, then with the question; "" if no sentence shares one with the answer."""
        for passage in self.passages:
            if passage.email.message_id == email.message_id:
                return passage.sentence
        texts = (self.trajectory.final_answer or "", self.question)
        answer, question = ({*stems(informative_words(text))} for text in texts)
        by_sentence = {s.text: {*stems(words(s.text))} for s in split_sentences(email.body)}
        shared = {text: (len(answer & s), len(question & s)) for text, s in by_sentence.items()}
        best = max(shared, key=shared.__getitem__, default="")
        return best if best and shared[best][0] else ""

    @property
    def cost_line(self) -> str:
        trajectory, usage, seconds = self.trajectory, self.trajectory.usage, self.trajectory.seconds
        parts = [plural(trajectory.rubric["turns"], "turn")]
        if usage["prompt_tokens"] or trajectory.error:
            split = f"model {seconds['model']:.2f} s, tools {seconds['tools']:.2f} s"
            cached = usage["cached_prompt_tokens"]
            read = f"{usage['prompt_tokens']:,}" + (f" ({cached:,} cached)" if cached else "")
            # The whole wait, including the time to load the model's client.
            parts.append(f"{self.waited:.2f} s ({split})")
            parts.append(f"{read} + {usage['completion_tokens']:,} tokens")
        else:
            parts.append(f"{seconds['total']:.2f} s")
        if trajectory.retries:
            parts.append(f"{trajectory.retries} retried")
        return ", ".join([*parts, format_cost(trajectory.cost_usd), trajectory.model])

    def show(self) -> None:
        """Print the answer or a line in its place, its mails with numbers, time and cost."""
        print_text((self.headline, "bold" if self.kind == "answer" else ""))
        if self.kind == "answer":
            if not self.sources:
                print_text(("  (no source was given)", "dim"))
            for dropped in self.trajectory.events[-1].get("notes", []):
                print_text((f"  ({dropped})", "dim"))
        elif self.kind == "none":
            if (prose := prose_answer(self.trajectory)) is not None:
                print_text(("the model said, without a source: ", "dim"), prose)
            answer = self.trajectory.final_answer or ""
            if len(answer.split()) > FEW_WORDS:
                print_text(("the model said: ", "dim"), answer)
        searched = informative_words(self.question)
        for number, email in enumerate(self.mails, start=1):
            print_text(*format_source(email), lead=f"{number:>2}. ")
            texts = [each.text for each in self.passages if each.email == email]
            for line in "\n...\n".join(texts).splitlines():
                print_text(*highlighted(searched, one_line(line)), lead="    ")
        print_text((self.cost_line, "dim"))

    def to_json(self) -> dict[str, Any]:
        """Return the episode as `art-e ask --json` prints it; `seconds` is wall time."""
        trajectory = self.trajectory
        seconds = {name: round(each, 3) for name, each in trajectory.seconds.items()}
        return {
            "question": self.question, "inbox_address": trajectory.inbox_address,
            "as_of": trajectory.as_of, "kind": self.kind, "answer": self.answer,
            "without_source": prose_answer(trajectory),
            "abstained": trajectory.rubric["abstained"],
            "sources": [source_json(email) for email in self.sources],
            "passages": [{"text": each.text, **source_json(each.email)} for each in self.passages],
            "turns": trajectory.rubric["turns"], "seconds": seconds["total"],
            "model_seconds": seconds["model"], "tools_seconds": seconds["tools"],
            "call_seconds": trajectory.call_seconds, "usage": trajectory.usage,
            "retries": trajectory.retries, "cost_usd": trajectory.cost_usd,
            "model": trajectory.model, "trajectory": str(self.run.trajectories),
        }  # fmt: skip


def source_json(email: Email) -> dict[str, Any]:
    """Return the JSON fields of a source."""
    fields = email.to_json()
    return {name: fields[name] for name in ("message_id", "date", "from", "subject")}


@dataclass
class Conversation:
    """An open inbox of the file `db`, the model that answers, and in `history` the last questions
    and answers, which are sent with the next. Each run stores `options` for `art-e ask -c`. `say`
    gets each step and each retry of a call, `on_answer` the answer as it arrives."""

    inbox: Inbox
    db: Path
    options: Options = field(default_factory=Options)
    history: History = field(default_factory=list)
    say: Callable[[str], None] = lambda _: None
    on_answer: Callable[[str], None] = lambda _: None
    answered: Answered | None = None
    id: str | None = None  # the id of its first question's run, stored by later runs
    wait_start: float = STARTED
    policy: Policy = field(init=False)
    form: EpisodeForm = field(init=False)

    def load(self, model: str) -> None:
        """Load a model by its full name. Raises `UserError` if it can't be used."""
        options = self.options
        form = chosen_form(options.recipe, options.max_turns, [model])
        call_options = ModelOptions(
            temperature=options.temperature, reasoning_effort=options.effort,
            max_output_tokens=turn_tokens(form, model), tool_calls=options.tool_calls,
            concurrency=1, timeout_s=options.timeout, max_cost_usd=options.max_cost,
            tries=1 + (RETRIES if options.retries is None else options.retries),
            on_retry=lambda number, tries, why, wait: self.say(
                f"{why}; trying again in {wait:.0f} s, {number} of {tries}"
            ),
            on_answer=lambda answer: self.on_answer(answer),  # noqa: PLW0108 - may change
        )  # fmt: skip
        self.policy, self.form = Model(model).policy(call_options), form

    def ask(self, question: str) -> Answered:
        self.wait_start = time.monotonic()
        self.begin(question)
        return self.answer()

    def begin(self, question: str | Question, name: str = "ask", out: Path | None = None) -> None:
        """Create the folder of the question's run. Raises `UserError` if `out` is in use."""
        if isinstance(question, str):
            question = Question("ask", question, self.inbox.address, self.inbox.as_of)
        self._question, day = question, self.inbox.as_of
        config = {
            "question": question.question, "talk": self.history, "conversation": self.id,
            "inbox_address": self.inbox.address, "as_of": None if day is None else day.isoformat(),
            "model": self.policy.model, "policy": self.policy.settings,
            "max_turns": self.form.max_turns, "db": str(self.db.absolute()),
            "options": asdict(self.options),
        }  # fmt: skip
        self._run = start_run(name, config, runs_folder(), out)
        self.id = self.id or self._run.id

    def answer(self, show_turn: "Callable[[Text], None] | None" = None) -> Answered:
        """Run the question's episode and finish its run."""
        line, model = self._question.question, self.policy.model
        expand = searched_text if model == OFFLINE else with_history
        question = replace(self._question, question=expand(line, self.history))
        episode = self.form.begin(self.inbox, question, dt.date.today())

        def show(exchange: Exchange) -> None:
            if show_turn is not None:
                show_turn(format_turn(episode.rubric.turns, exchange))
            if not episode.done:
                done = "; ".join(_describe_call(call) for call in exchange.calls)
                self.say(f"{done}; waiting for {model}, turn {episode.rubric.turns + 1}")

        self.say(f"waiting for {model}")
        trajectory = run_now(run_episode(episode, self.policy, self._run.id, show), self.policy)
        with self._run.log() as log:
            log.append(trajectory.to_line())
        self._run.finish()
        if show_turn is not None:
            show_turn(text())
        waited = time.monotonic() - self.wait_start
        self.answered = load_answer(self.inbox, self._run, trajectory, waited)
        self.history = add_history(self.history, line, trajectory)
        return self.answered

    def show(self) -> MailList:
        """Print the last answer, and save its mails as the list for later commands."""
        answered = self.last()
        answered.show()
        ids = [mail.message_id for mail in answered.mails]
        return save_list(self.db, self.inbox, ids, junk=self.options.junk)

    def last(self) -> Answered:
        """Return the last answer. Raises `UserError` without one."""
        if self.answered is None:
            raise UserError("there is no answer yet; ask a question first")
        return self.answered

    def forget(self) -> None:
        self.history, self.answered, self.id = [], None, None


def load_answer(
    inbox: Inbox, run: Run, trajectory: Trajectory, waited: float | None = None
) -> Answered:
    """Return the result of a question's run, with its source mails, or passages if no answer."""
    line, history = (run.config[name] for name in ("question", "talk"))
    messages, handles = list[ChatMessage](), trajectory.handles
    if trajectory.model == OFFLINE:
        messages = trajectory.messages
    elif trajectory.error is None and failure_reason(trajectory):
        searched, policy = searched_text(line, history), OfflinePolicy()
        episode = Episode(inbox, Question("ask", searched, inbox.address, inbox.as_of))
        run_now(run_episode(episode, policy, "passages"), policy)
        messages, handles = episode.messages, episode.tools.handles
    best = best_passages(passages_of(messages), PASSAGES) if messages else []
    mails = inbox.read_many([handles.get(each.handle, each.handle) for each in best])
    pairs = zip(best, mails, strict=True)
    passages = [Excerpt(each.text, each.sentence, mail) for each, mail in pairs if mail]
    sources = list(filter(None, inbox.read_many(trajectory.sources)))
    waited = trajectory.seconds["total"] if waited is None else waited
    return Answered(line, trajectory, run, sources, passages, waited)


def add_history(history: History, question: str, trajectory: Trajectory) -> History:
    """Return the last questions and answers, including this one, to send with the next."""
    answer = trajectory.final_answer or "(no answer was found)"
    return [*history, [question, answer]][-HISTORY:]


def with_history(question: str, history: History) -> str:
    """Return the question for a model, followed by the earlier ones with their answers."""
    earlier = "\n".join(f"- {past}\n  {reply}" for past, reply in history)
    return f"{question}\n\nIt follows up on:\n{earlier}" if earlier else question


def searched_text(question: str, history: History) -> str:
    """Return the text to search for without a model. A question with few informative words gets
    those of the earlier questions too, the latest first."""
    earlier = (informative_words(past) for past, _ in reversed(history))
    whole = " ".join([question, *dict.fromkeys(itertools.chain.from_iterable(earlier))])
    informative = {*words(question)}.intersection(informative_words(whole))
    return whole if len(informative) < STANDS_ALONE else question


def failure_reason(trajectory: Trajectory) -> str | None:
    """Return why an episode ended without an answer; None if it has one."""
    rubric = trajectory.rubric
    if trajectory.error is not None:
        return f"the model failed ({trajectory.error['kind']})"
    if rubric["ran_out_of_turns"]:
        return f"out of turns ({rubric['max_turns']}); --max-turns allows more"
    if rubric["lost_to_format"]:
        return "the model gave no source" if prose_answer(trajectory) else "too many wrong calls"
    if not rubric["abstained"]:
        return None
    offline = trajectory.model == OFFLINE
    return "no passage fits well enough" if offline else "the model found no answer in this inbox"


def outside_failure(trajectory: Trajectory) -> str | None:
    """Return the failure outside the episode, with its fix; None without one."""
    return None if trajectory.error is None else with_fix(**trajectory.error)


def with_fix(kind: str, message: str) -> str:
    """Return a failure with its fix."""
    fixes = toml_table("art_e.models", "failures.toml")["fixes"]
    fix = fixes.get(kind, "" if kind in PERMANENT else "try again")
    return f"{kind}: {message.rstrip('.')}{fix and f'; {fix}'}"


def prose_answer(trajectory: Trajectory) -> str | None:
    """Return the answer of a model that wrote prose instead of a call; None if it did not."""
    last = trajectory.messages[-2] if trajectory.rubric["lost_to_format"] else {}
    return None if last.get("tool_calls") else last.get("content") or None


def _describe_call(call: AnsweredCall) -> str:
    arguments = call.arguments if isinstance(call.arguments, dict) else {}
    result = next(iter(call.results), {})
    if "body" in result:
        return f"read {result.get('from')}: {result.get('subject')}"
    if isinstance(hits := result.get("hits"), list):
        words = arguments.get("keywords")
        searched = " ".join(map(str, words)) if isinstance(words, list) else str(words)
        return f'searched "{searched}", {plural(len(hits), "mail")}'
    return call.tool


# ---- An episode's turns for a person. Text of models and mails is untrusted, and maybe not JSON.

BODY_LINES, BODY_WIDTH = 8, 110
SENDER_WIDTH, SUBJECT_WIDTH = 34, 60
ARGUMENT_CHARS = 200
FILTERS = {"from_addr": "from", "to_addr": "to", "sent_after": "after", "sent_before": "before"}
_INDENT = " " * 9


def format_turn(number: int, exchange: Exchange) -> "Text":
    """Return one turn, without a newline at its end: its calls, each with its result below it."""
    lines: list[Text] = []
    content = one_line(exchange.says)
    if content or not exchange.calls:
        lines.append(text(("says     ", "bold"), content[: 2 * ARGUMENT_CHARS] or "(nothing)"))
    for call in exchange.calls:
        lines += [_call(call), *_results(call.results)]
    lines += _results(exchange.replies)
    lines[0] = text((f"{number:>2}  ", "dim"), lines[0])
    lines[1:] = [text("    ", line) for line in lines[1:]]
    return text("\n").join(lines)


def format_source(email: Email) -> tuple[str | tuple[str, str], ...]:
    """Return a source on one line: its day, sender, subject and id."""
    sender, name = (one_line(str(email.sender)), "cyan"), (one_line(email.message_id), "dim")
    subject = one_line(email.subject) or "(no subject)"
    return f"{format_date(email.date)[:10]}  ", sender, f"  {subject}  ", name


def _call(call: AnsweredCall) -> "Text":
    name, args = call.tool, call.arguments
    if name == "search_emails" and isinstance(args, dict):
        keywords = args.get("keywords")
        words = keywords if isinstance(keywords, list) else [keywords]
        searched = _short(" ".join(str(word) for word in words if word is not None))
        filters = (
            f"  {word} {_short(args[key])}" for key, word in FILTERS.items() if args.get(key)
        )
        return text(("search   ", "bold cyan"), f'"{searched}"', ("".join(filters), "dim"))
    if name == "read_email" and isinstance(args, dict):
        return text(("read     ", "bold cyan"), _short(args.get("message_id")))
    if name == "return_final_answer" and isinstance(args, dict):
        answer, sources = args.get("answer"), args.get("sources")
        line = "(no answer)" if answer is None else one_line(str(answer))
        cited = ", ".join(_short(each) for each in sources) if isinstance(sources, list) else ""
        return text(("answer   ", "bold green"), line, (f"  from {cited}" if cited else "", "dim"))
    written = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
    return text((f"{_short(name)}  ", "bold red"), _short(written))


def _results(results: list[dict[str, Any]]) -> "Iterator[Text]":
    for result in results:
        if isinstance(result.get("hits"), list):
            yield from _hits(result["hits"])
        if "body" in result:
            yield from _mail(result)
        for name, style in (("error", "red"), ("shown", "dim"), ("note", "dim"), ("text", "dim")):
            if name in result:
                yield text(_INDENT, (_short(result[name]), style))


def _hits(hits: list[Any]) -> "Iterator[Text]":
    rows = [hit for hit in hits if isinstance(hit, dict)]
    width = max((len(_short(hit.get("message_id"))) for hit in rows), default=0)
    for hit in rows:
        sender = text((_short(hit.get("from")) or "(no sender)", "cyan"))
        sender.truncate(SENDER_WIDTH, overflow="ellipsis", pad=True)
        subject = text(_short(hit.get("subject")) or "(no subject)")
        subject.truncate(SUBJECT_WIDTH, overflow="ellipsis")
        handle = f"{_short(hit.get('message_id')):<{width}}"
        date = f"  {_short(hit.get('date'))[:10]:<10}  "
        yield text(_INDENT, (handle, "bold"), date, sender, "  ", subject)


def _mail(mail: dict[str, Any]) -> "Iterator[Text]":
    date, sender, subject = (_short(mail.get(name)) for name in ("date", "from", "subject"))
    from_whom = (f"{sender or '(no sender)'}  ", "cyan")
    yield text(f"{_INDENT}{date[:10]}  ", from_whom, subject or "(no subject)")
    lines = [line.rstrip() for line in clean(str(mail.get("body", ""))).split("\n") if line.strip()]
    for line in lines[:BODY_LINES]:
        quoted = text((line.expandtabs(4), "dim"))
        quoted.truncate(BODY_WIDTH, overflow="ellipsis")
        yield text(_INDENT, ("| ", "dim"), quoted)
    if len(lines) > BODY_LINES:
        more = plural(len(lines) - BODY_LINES, "more line")
        yield text(_INDENT, (f"| ({more})", "dim"))


def _short(value: object) -> str:
    return "" if value is None else cut_line(one_line(str(value)), ARGUMENT_CHARS)
