"""The commands of the golden set against a provider that plays all models."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from art_e.cli.main import app
from art_e.question import Question
from data_pipeline.golden.golden_set import SET_FILES, GoldenSet, Step
from tests.command_line import json_of
from tests.processes import Killing
from tests.provider import Provider, Reply, Request, says

# ---- The models, which answer only from their request.

Data = dict[str, Any]

ANSWER_WORDS = 3


def reading(data: Data) -> Data:
    """Return the reader's answer; without mails it can only count letters and name languages."""
    question = data["question"]
    if "mails" not in data:
        letters = re.match('How many letters does "(.*)" have', question)
        language = "English" if "language" in question else None
        return {"reason": "Guessed.", "answer": str(len(letters[1])) if letters else language}
    mails, newest = data["mails"], _newest(data["mails"])
    if "by now" in question and newest is not None:
        answers = [next(_after([newest], cue), _opening(newest)) for cue in _cues(question)]
    else:
        answers = [next(_after(mails, cue), "") for cue in _cues(question)]
    if not answers or not all(answers):
        return {"reason": "No mail says it.", "answer": None}
    return {"reason": "A mail says it.", "answer": "; ".join(answers)}


def candidates(data: Data) -> Data:
    """Return every answer that the mails support, and the rival answers of a fault."""
    question, mails = data["question"], data["mails"]
    [cue] = _cues(question)
    answers: dict[str, list[str]] = {}
    for mail in mails:
        for answer in _after([mail], cue):
            answers.setdefault(answer, []).append(mail["id"])
    others = [each for each in mails if next(_after([each], cue), None) is None]
    rivals: list[Data] = []
    if "What else" in question:
        rivals = others[:3]
    elif "by now" in question and (newest := _newest(others)) is not None:
        rivals = [newest]
    answers |= {_opening(each): [each["id"]] for each in rivals if _opening(each)}
    return {"answers": [{"answer": answer, "mails": ids} for answer, ids in answers.items()]}


def settlement(data: Data) -> Data:
    """Decide that a later mail replaces an answer "by now", and that every other answer stands."""
    gold, rival = (max(each["date"] for each in data[name]["mails"]) for name in ("gold", "rival"))
    relation = "gold_replaced" if rival > gold else "other_matter"
    relation = relation if "by now" in data["question"] else "both_stand"
    return {"reason": "Compared.", "relation": relation}


def correctness(data: Data) -> Data:
    """Return the judge's verdict: correct if the words are the same."""
    same = words_of(data["gold_answer"]) == words_of(data["given_answer"])
    return {"reason": "Compared.", "verdict": "correct" if same else "incorrect"}


def rating(data: Data) -> Data:
    is_odd = re.search("colour|illness", data["question"])
    return {"reason": "Rated.", "how_realistic": 0.3 if is_odd else 0.9}


def _cues(question: str) -> list[str]:
    return re.findall('"(.*?)"', question)


def _after(mails: Sequence[Data], cue: str) -> Iterator[str]:
    """Yield the words after the cue in each mail that has it."""
    cue_words = words_of(cue)
    for mail in mails:
        words = re.findall(r"[\w']+", mail["body"])
        lower = [each.lower() for each in words]
        for start in range(len(words) - len(cue_words) + 1):
            if lower[start : start + len(cue_words)] == cue_words:
                yield " ".join(words[start + len(cue_words) :][:ANSWER_WORDS])
                break


def _opening(mail: Data) -> str:
    return " ".join(re.findall("[A-Za-z]{3,}", mail["body"])[:ANSWER_WORDS])


def _newest(mails: Sequence[Data]) -> Data | None:
    return max(mails, key=lambda each: (each["date"], each["id"]), default=None)


def words_of(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def written(data: Data) -> list[Data]:
    """Return a question about each mail that is long enough, and one without an answer."""
    common: Data = {"kind": "lookup", "difficulty": "medium"}
    items = [common | {"question": "What is it about?", "answer": "", "mails": []}]
    for mail in data["mails"]:
        words = re.findall(r"[\w']+", mail["body"])[8:16]
        if len(words) == 8:
            question = f'What do I have noted after "{" ".join(words[:5])}"?'
            answer = " ".join(words[5:])
            items.append(common | {"question": question, "answer": answer, "mails": [mail["id"]]})
    return items[: data["questions"]]


class Player:
    """The rule of a provider that plays every model of a golden set."""

    _plays: Mapping[str, Callable[[Data], Data]] = {
        "Reading": reading, "Candidates": candidates, "Settlement": settlement,
        "Correctness": correctness, "Rating": rating,
    }  # fmt: skip

    def __call__(self, request: Request) -> Reply:
        form, data = form_of(request), data_of(request)
        if form == "GeneratedItems":
            return self.write(data)
        return says(json.dumps(self._plays[form](data)))

    def write(self, data: Data) -> Reply:
        return says(json.dumps({"items": written(data)}))


def form_of(request: Request) -> str:
    return str(request.body["response_format"]["json_schema"]["name"])


def data_of(request: Request) -> Any:
    return json.loads(request.messages[1]["content"])


def set_of(*questions: Question, step: Step = "import", **settings: Any) -> GoldenSet:
    golden = GoldenSet(list(questions))
    golden.finish(step, [(each, None) for each in questions], settings)
    return golden


def set_files(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in SET_FILES if (folder / name).exists()}


WRITER, READER, JUDGE = "openai/gpt-4.1", "openai/gpt-4.1-mini", "openai/gpt-4o"


class Chain:
    """A golden set in `folder`/set, from two inboxes of `db`: one trains, the other tests."""

    def __init__(
        self, db: Path, inboxes: Sequence[str], batches: int, folder: Path, questions: int = 6
    ) -> None:
        self.db, self.inboxes, self.folder = db, inboxes, folder
        self.batches, self.questions = batches, questions
        self.set = folder / "set"

    def done(self, provider: Provider, step: str, *more: object) -> dict[str, Any]:
        """Run a step in this process, which must succeed, and return its sums."""
        runner = CliRunner(env=provider.environment(self.folder / "home"))
        return dict(json_of(runner.invoke(app, self._arguments(step, ["--json", *more])))["sums"])

    def killed(self, killing: Killing, provider: Provider, step: str, *more: object) -> None:
        killing.run(self._arguments(step, more), provider.environment(self.folder / "home"))

    def _arguments(self, step: str, more: Sequence[object]) -> list[str]:
        named = [part for each in self.inboxes for part in ("--inbox", each)]
        options: dict[str, list[object]] = {
            "generate": [
                "-m", WRITER, "--batches", self.batches, "--questions", self.questions,
                "--train", 1, "--validation", 0, "--test", 1, *named,
            ],
            "verify": ["-m", READER, "--judge", JUDGE],
        }  # fmt: skip
        where = ["--db", self.db, "--out", self.set]
        return [str(each) for each in ["golden", step, *where, *options.get(step, []), *more]]
