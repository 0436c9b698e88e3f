"""An episode: one question, its messages and turns, the facts about them, and when it ends.

The agent loop, the benchmark and the training rollouts all drive `Episode`: give it the model's
next message with `step`, pass `messages` on, stop when it is `done`. It runs the tools, answers
wrong calls, and writes the rubric."""

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from string import Template
from typing import Annotated, Any

from pydantic import BaseModel, Field

from art_e import tools
from art_e.abstention import is_abstention
from art_e.inbox.inbox import Inbox
from art_e.inbox.tokenizer import words
from art_e.message import AssistantMessage, ChatMessage, ToolCall, observation_json, without_markup
from art_e.question import Question
from art_e.text import cut_line, digest, encodable, prompt_text

DEFAULT_MAX_TURNS = 10
# An episode is lost after this many messages in a row without a valid call, or without a call.
MAX_WRONG_MESSAGES, MAX_PROSE = 3, 2
_HOW_TO_CALL = (
    "no tool was called: search_emails looks for mail; to answer, call return_final_answer with the"
    " answer and its sources"
)

# Notes before the last turn, and instead of observations that leave no room for it.
LAST_TURN = {"note": "one turn left: call return_final_answer now"}
NO_ROOM = {"error": "there is no room left to show this"}

_Count = Annotated[int, Field(ge=1)]


class EpisodeForm(BaseModel, extra="forbid", frozen=True):
    """The settings of a recipe's episodes, saved with its checkpoints. `prompt` None is the default
    system prompt; `turn_tokens` and `episode_tokens` (with the prompt) are limits."""

    max_turns: _Count = DEFAULT_MAX_TURNS
    prompt: str | None = None
    handles: bool = True
    hits: Annotated[int, Field(ge=1, le=tools.MAX_RESULTS)] = tools.MAX_RESULTS
    snippet_chars: _Count | None = None
    addresses: bool = True
    spaced: bool = False
    lean: bool = True
    turn_tokens: _Count = 2_048
    episode_tokens: _Count = 8_000

    @property
    def view(self) -> tools.View:
        """Return what the tools show. Models of the spaced form learned dates in UTC."""
        limits = {"max_turns", "prompt", "turn_tokens", "episode_tokens"}
        return tools.View(**self.model_dump(exclude=limits), utc=self.spaced)

    def begin(self, inbox: Inbox, question: Question, today: dt.date | None = None) -> "Episode":
        return Episode(
            inbox, question, max_turns=self.max_turns, view=self.view, system_prompt=self.prompt,
            today=today,
        )  # fmt: skip


@dataclass(slots=True)
class Rubric:
    """The facts of one episode; facts about gold mails are None if the question has none.

    `found_gold` and `read_gold`: a search showed every gold mail, every gold mail was read.
    `sources_correct`: every gold mail was cited. An equivalent mail counts as its gold mail.
    `num_sources` counts all that was cited, mail or not. `effort` is turns plus calls beyond the
    first in each message. `tool_calls` includes wrong and refused calls, `unparseable_calls`
    messages without a call. Token counts are sums over the turns."""

    max_turns: int
    answerable: bool | None = None
    num_gold_sources: int | None = None
    answered: bool = False
    abstained: bool = False
    sources_correct: bool | None = None
    num_sources: int = 0
    found_gold: bool | None = None
    read_gold: bool | None = None
    turns: int = 0
    effort: int = 0
    tool_calls: int = 0
    invalid_reads: int = 0
    unparseable_calls: int = 0
    unknown_tool_calls: int = 0
    bad_argument_calls: int = 0
    lost_to_format: bool = False
    ran_out_of_turns: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Episode:
    """An episode over `inbox`, which the caller opened with the question's `query_date`.
    `system_prompt` is a template with `$inbox_address`, `$today`, `$max_turns` and `$max_calls`;
    `view` sets which tools there are and how much they show. `today` is the day in the prompt of an
    inbox opened without a date; later mail is still shown, as clocks may be wrong."""

    def __init__(
        self, inbox: Inbox, question: Question, *, max_turns: int = DEFAULT_MAX_TURNS,
        view: tools.View = tools.WHOLE_VIEW, system_prompt: str | None = None,
        today: dt.date | None = None,
    ) -> None:  # fmt: skip
        self.question = question
        self.tools = (tools.LeanTools if view.lean else tools.Tools)(inbox, view)
        self.final_answer: str | None = None
        self.sources: tuple[str, ...] = ()
        self.done = False
        self.events: list[dict[str, Any]] = []
        self.rubric = Rubric(max_turns=max_turns, answerable=question.answerable)
        self._gold = [] if question.answerable is False else gold_mails(inbox, question)
        if question.answerable:
            self.rubric.num_gold_sources = len(self._gold)
        self._found: set[str] = set()
        self._read: set[str] = set()
        self._wrong_messages = self._prose = 0
        self._before: tuple[set[str], set[str]] = set(), set()  # found and read before this turn
        self._is_last = False
        self._answer: tools.ReturnFinalAnswer | None = None
        default = default_prompt(view.closed_book, lean=view.lean)
        template = default if system_prompt is None else system_prompt
        self.prompt_hash = digest(template)
        day = inbox.as_of or today
        system = Template(template).safe_substitute(
            inbox_address=inbox.address,
            # The weekday is there because mail says "next Friday".
            today=f"{day.isoformat()}, a {day:%A}" if day else "not given: all mail counts",
            max_turns=max_turns,
            max_calls=view.calls,
        )
        self.messages: list[ChatMessage] = [
            {"role": "system", "content": system},
            {"role": "user", "content": without_markup(question.question)},
        ]
        if self._gold:
            self.rubric.sources_correct = False
        self._note_gold()

    def step(self, message: AssistantMessage) -> list[ChatMessage]:
        """Run the calls of the model's next message; append the tools' answers to `messages` and
        return them. Raises `RuntimeError` if the episode is done."""
        if self.done:
            raise RuntimeError("the episode is done")
        rubric = self.rubric
        rubric.turns += 1
        rubric.tool_calls += len(message.tool_calls)
        rubric.effort += max(1, len(message.tool_calls))
        self.messages.append(message.to_chat())
        results: list[list[dict[str, Any]]] = []
        events: list[dict[str, Any]] = []
        any_valid = False
        self._before = set(self._found), set(self._read)
        for number, call in enumerate(message.tool_calls):
            try:
                observation = self._run(call, number)
                any_valid = True
            except tools.CallError as error:
                if error.kind != "refused":
                    setattr(rubric, error.kind, getattr(rubric, error.kind) + 1)
                observation = tools.Observation({"error": str(error)}, ())
            results.append([observation.content])
            events.append(self._event(call, observation))
        if not message.tool_calls:
            rubric.unparseable_calls += 1
            results.append([{"error": _HOW_TO_CALL}])
            events.append({"turn": rubric.turns, "tool": "", "error": _HOW_TO_CALL})
        self._wrong_messages = 0 if any_valid else self._wrong_messages + 1
        self._prose = 0 if message.tool_calls else self._prose + 1
        if dropped := self._end():
            answer = next(each for each in results if "done" in each[0])
            answer.append({"note": f"not accepted as sources, never shown: {', '.join(dropped)}"})
        if not self.done and rubric.turns == rubric.max_turns - 1:
            results[-1].append(LAST_TURN)
        for event, answers in zip(events, results, strict=True):
            if notes := [result["note"] for result in answers if "note" in result]:
                event["notes"] = notes
            if "cited" in event:
                # A call after the answer may have introduced the handle.
                event["cited"] = list(map(self.tools.resolve, event["cited"]))
        self.events += events
        texts = ["\n".join(map(observation_json, each)) for each in results]
        observations: list[ChatMessage] = [
            {"role": "tool", "tool_call_id": call.id, "content": text}
            for call, text in zip(message.tool_calls, texts, strict=False)
        ] or [{"role": "user", "content": texts[0]}]
        self.messages.extend(observations)
        return observations

    def last_turn(self, *, keep: bool) -> list[ChatMessage]:
        """Make the next turn the last, because there is no room for a second one, and return the
        observations with a note that says so. Unless `keep`, an error replaces them, and their
        mails don't count as found or read."""
        self._is_last = True
        events = [event for event in self.events if event["turn"] == self.rubric.turns]
        observations = self.messages[-len(events) :]
        if not keep:
            self._found, self._read = self._before
            self._note_gold()
            events = [{"turn": each["turn"], "tool": each["tool"], **NO_ROOM} for each in events]
            for observation in observations:
                observation["content"] = observation_json(NO_ROOM)
        notes = events[-1].setdefault("notes", [])
        if LAST_TURN["note"] not in notes:
            notes.append(LAST_TURN["note"])
            observations[-1]["content"] += f"\n{observation_json(LAST_TURN)}"
        self.events[-len(events) :] = events
        return observations

    def cut_off(self) -> None:
        """End an episode that has no room for another turn. Raises `RuntimeError` if it is done."""
        if self.done:
            raise RuntimeError("the episode is done")
        self.rubric.ran_out_of_turns = True
        self.done = True

    def count_tokens(self, prompt: int, completion: int) -> None:
        self.rubric.prompt_tokens += prompt
        self.rubric.completion_tokens += completion

    def _run(self, call: ToolCall, number: int) -> tools.Observation:
        view = self.tools.view
        arguments = tools.parse_call(call, view.offered, lean=view.lean)
        if number >= view.calls:
            calls = "call" if view.calls == 1 else f"{view.calls} calls"
            raise tools.CallError("refused", f"only the first {calls} of a message can be run")
        if isinstance(arguments, tools.ReturnFinalAnswer):
            if self._answer is not None:
                raise tools.CallError("refused", "the final answer was given already")
            self._answer = arguments
            return tools.Observation({"done": True}, tuple(arguments.sources))
        if isinstance(arguments, tools.SearchEmails):
            observation = self.tools.search(arguments)
            self._found.update(observation.message_ids)
            self._read.update(observation.whole)
            for copy, original in observation.copies.items():
                for gold in self._gold:
                    gold.update({original} if copy in gold else ())
        elif (read := self.tools.read(arguments)) is None:
            self.rubric.invalid_reads += 1
            return tools.Observation({"error": tools.not_found(arguments.message_id)}, ())
        else:
            observation = read
            self._read.update(observation.message_ids)
        self._note_gold()
        return observation

    def _event(self, call: ToolCall, observation: tools.Observation) -> dict[str, Any]:
        event: dict[str, Any] = {"turn": self.rubric.turns, "tool": encodable(call.name)}
        if "error" in observation.content:
            return {**event, "error": observation.content["error"]}
        mails, event["arguments"] = observation.message_ids, call.parsed
        if call.name == "read_email":
            return {**event, "read": mails[0]}
        whole = {"whole": list(observation.whole)} if observation.whole else {}
        return {**event, "found" if call.name == "search_emails" else "cited": list(mails), **whole}

    def _end(self) -> list[str]:
        """End the episode if the last message ends it. Return the cited sources that no search or
        reading showed: they don't count, even if the inbox has such a mail."""
        rubric, answer, dropped = self.rubric, self._answer, list[str]()
        if answer is not None:
            cited = dict.fromkeys(map(self.tools.resolve, answer.sources))
            mails = {source: self.tools.inbox.canonical_id(source) for source in cited}
            rubric.num_sources = len({mail or source for source, mail in mails.items()})
            seen = self._found | self._read
            dropped = [cut_line(source, 80) for source, mail in mails.items() if mail not in seen]
            self.sources = tuple(mail for mail in dict.fromkeys(mails.values()) if mail in seen)
            texts = (mail.body for mail in self.tools.inbox.read_many(self.sources) if mail)
            rubric.abstained = is_abstention(answer.answer, self.question.question, texts)
            rubric.answered = not rubric.abstained
            self.final_answer = answer.answer
            if self._gold:
                rubric.sources_correct = self._holds_gold(self.sources)
        elif self._wrong_messages >= MAX_WRONG_MESSAGES or self._prose >= MAX_PROSE:
            rubric.lost_to_format = True
        elif self._is_last or rubric.turns >= rubric.max_turns:
            rubric.ran_out_of_turns = True
        else:
            return []
        self.done = True
        return dropped

    def _note_gold(self) -> None:
        if self._gold:
            self.rubric.found_gold = self._holds_gold(self._found)
            self.rubric.read_gold = self._holds_gold(self._read)

    def _holds_gold(self, mails: Collection[str]) -> bool:
        return all(not ids.isdisjoint(mails) for ids in self._gold)


def gold_mails(inbox: Inbox, question: Question) -> list[set[str]]:
    """Return the ids that count as each gold mail: its own, its copies' and its equivalents'. An
    equivalent counts as the gold mail with the largest word overlap (Jaccard index)."""
    gold, equivalent = (
        list(dict.fromkeys(inbox.canonical_id(name) or name for name in names))
        for names in (question.message_ids, question.equivalent_ids)
    )
    groups = [{name, *inbox.copies(name)} for name in gold]
    if len(gold) > 1 and equivalent:
        mails = zip([*gold, *equivalent], inbox.read_many([*gold, *equivalent]), strict=True)
        held = {name: set(words(mail.body)) if mail else set() for name, mail in mails}
        for name in equivalent:
            likeness = [
                len(held[name] & held[other]) / max(1, len(held[name] | held[other]))
                for other in gold
            ]
            groups[likeness.index(max(likeness))].add(name)
    elif gold:
        groups[0].update(equivalent)
    return groups


def default_prompt(closed_book: bool = False, *, lean: bool = False) -> str:
    """Return the template of the system prompt; `closed_book` asks without mail."""
    name = "closed_book" if closed_book else "lean" if lean else "system"
    return prompt_text(__package__, name)
