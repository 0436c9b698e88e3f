"""Plays every model of the chain: who writes and checks questions, who is prompted, who judges.

The questions are those of `tests.golden`: each quotes words of a mail, and its answer are
the words that follow. A prompted model searches for them, reads the best hit and answers.
"""

import json
import re

from art_e.message import ToolCall
from tests.golden import Player, form_of, reading
from tests.provider import Reply, Request, says

# The models by what they are like; all of them are the provider's.
GOOD, HASTY, WRITER, READER, JUDGE = (
    "openai/o3",
    "openai/gpt-4.1",
    "openai/gpt-4.1-mini",
    "openai/gpt-4o",
    "openai/gpt-4o-mini",
)


class Players:
    """The provider's rule. Where the system prompt has `worse` in it, prompted models give up."""

    def __init__(self, worse: str) -> None:
        self._worse = worse
        self._golden = Player()

    def __call__(self, request: Request) -> Reply:
        if request.body.get("tools"):
            return says(None, self._next_call(request))
        if form_of(request) == "Support":
            return says(json.dumps({"reason": "It stands there.", "verdict": "supported"}))
        return self._golden(request)

    def _next_call(self, request: Request) -> ToolCall:
        system, question, *said = request.messages
        if self._worse in system["content"]:
            return _answer("I don't know")
        if request.body["model"] == HASTY.partition("/")[2]:
            return _answer("soon enough")
        cues = re.findall('"(.*?)"', question["content"])
        if not said:
            words = [word for cue in cues for word in cue.split()]
            return _call("search_emails", keywords=words or ["notes"])
        shown = json.loads(said[-1]["content"].partition("\n")[0])
        if len(said) == 2:
            if not shown.get("hits"):
                return _answer("I don't know")
            return _call("read_email", message_id=shown["hits"][0]["message_id"])
        told = reading({"question": question["content"], "mails": [shown]})
        return _answer(told["answer"] or "I don't know")


def _answer(text: str) -> ToolCall:
    return _call("return_final_answer", answer=text, sources=[])


def _call(name: str, **arguments: object) -> ToolCall:
    return ToolCall("call", name, json.dumps(arguments))
