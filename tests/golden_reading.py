"""The reader and the judge of `golden_player.py`: they answer from what they are sent alone.

A question quotes a *cue*, some words of a mail; its answer are the words that follow.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

Data = dict[str, Any]

ANSWER_WORDS = 3


def reading(data: Data) -> Data:
    """The reader's answer; without mails it counts letters and knows no more."""
    question = data["question"]
    if "mails" not in data:
        letters = re.match('How many letters does "(.*)" have', question)
        answer = str(len(letters[1])) if letters else None
        return {"reason": "It is counted." if letters else "It is in no mail.", "answer": answer}
    mails = data["mails"]
    told = [next(_told(mails, cue), None) for cue in _cues(question)]
    if "by now" in question and (newest := _newest(mails)) is not None:
        told = [next(_told([newest], cue), _opening(newest)) for cue in _cues(question)]
    if None in told or not told:
        return {"reason": "The mails do not tell.", "answer": None}
    return {"reason": "The mails tell.", "answer": "; ".join(each or "" for each in told)}


def candidates(data: Data) -> Data:
    """Every answer that the mails support, and the other ones that a fault is to have."""
    question, mails = data["question"], data["mails"]
    [cue] = _cues(question)
    found: dict[str, list[str]] = {}
    for mail in mails:
        for answer in _told([mail], cue):
            found.setdefault(answer, []).append(mail["id"])
    others = [each for each in mails if next(_told([each], cue), None) is None]
    if "What else" in question:
        found |= {_opening(each): [each["id"]] for each in others[:3] if _opening(each)}
    elif "by now" in question and (newest := _newest(others)) is not None:
        found |= {_opening(newest): [newest["id"]]} if _opening(newest) else {}
    return {"answers": [{"answer": answer, "mails": ids} for answer, ids in found.items()]}


def settlement(data: Data) -> Data:
    """What is "by now" so is replaced by a later mail; every other answer stands."""
    gold, rival = (max(each["date"] for each in data[name]["mails"]) for name in ("gold", "rival"))
    if "by now" not in data["question"]:
        return {"reason": "Both say it.", "relation": "both_stand"}
    if rival > gold:
        return {"reason": "A later mail says otherwise.", "relation": "gold_replaced"}
    return {"reason": "It is an older matter.", "relation": "other_matter"}


def correctness(data: Data) -> Data:
    """The judge's verdict: right is what has the same words."""
    same = words_of(data["gold_answer"]) == words_of(data["given_answer"])
    return {"reason": "Compared.", "verdict": "correct" if same else "incorrect"}


def _cues(question: str) -> list[str]:
    return re.findall('"(.*?)"', question)


def _told(mails: Sequence[Data], cue: str) -> Iterator[str]:
    """What follows the cue in each of the mails that has it."""
    wanted = words_of(cue)
    for mail in mails:
        words = re.findall(r"[\w']+", mail["body"])
        lower = [each.lower() for each in words]
        for start in range(len(words) - len(wanted) + 1):
            if lower[start : start + len(wanted)] == wanted:
                yield " ".join(words[start + len(wanted) :][:ANSWER_WORDS])
                break


def _opening(mail: Data) -> str:
    """A mail's first words that say something."""
    words = re.findall("[A-Za-z]{3,}", mail["body"])
    return " ".join(words[:ANSWER_WORDS])


def _newest(mails: Sequence[Data]) -> Data | None:
    return max(mails, key=lambda each: (each["date"], each["id"]), default=None)


def words_of(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())
