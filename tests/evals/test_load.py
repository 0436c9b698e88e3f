"""64 questions at a time, for minutes, of a provider that fails three times in ten."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from art_e.inbox.file import InboxFile
from art_e.models.base import Usage
from art_e.question import Question, load_questions
from art_e.trajectory import read_trajectories
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.builders import answer, read, search, tries
from tests.conftest import RealInbox
from tests.evals.runs import write_questions
from tests.provider import Provider, Reply, Request, broken, cut, no_json, rate_limited, says

QUESTIONS = 40
USAGE = Usage(1_000, 0, 100, 0)
REPEATS = tries(5, 100)
FAULTS = 0.3
TURNS = 3
# What the figures are made of; a small run grows by caches.
MOST_BYTES_AN_EPISODE, MOST_BYTES = 4_500, 8_000_000


class Faulty:
    """The provider's rule: search, read, answer, between faults."""

    def __init__(self, asked: Sequence[Question]) -> None:
        self._asked = {each.question: each for each in asked}
        self.whole = self.faults = 0
        self._rng = Random(0)

    def __call__(self, request: Request) -> Reply:
        if self._rng.random() < FAULTS:
            self.faults += 1
            return self._rng.choice([rate_limited("0"), broken(), cut(), no_json()])
        self.whole += 1
        question = self._asked[request.messages[1]["content"]]
        final = answer(question.answer, *question.message_ids)
        calls = (search(question.question.split()[1]), read(question.message_ids[0]), final)
        turn = sum(each["role"] == "assistant" for each in request.messages)
        return says(None, calls[turn], usage=USAGE)


class Mail(NamedTuple):
    """An inbox file, and questions about it."""

    db: Path
    asked: list[Question]


# Under `make fire` the real mail as well, where there is some.
@pytest.fixture(params=["made up", "real"][: tries(1, 2)])
def mail(request: pytest.FixtureRequest) -> Mail:
    if request.param == "made up":
        made_up = [each for each in questions(WorldConfig(size=1000)) if each.answerable]
        return Mail(request.getfixturevalue("world_db"), made_up[:QUESTIONS])
    real: RealInbox = request.getfixturevalue("real_inbox")
    with InboxFile(real.db) as file:

        def length(each: Question) -> int:
            inbox = file.open_inbox(each.inbox_address, each.query_date)
            gold = inbox.read(each.message_ids[0])
            return 0 if gold is None else len(gold.body)

        found = sorted(load_questions(str(real.folder / "questions.jsonl")), key=length)
    return Mail(real.db, found[-QUESTIONS:])


@pytest.mark.fire
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_all_is_answered_counted_and_forgotten(mail: Mail, tmp_path: Path) -> None:
    golden = write_questions(tmp_path / "questions.jsonl", mail.asked)
    out, rule = tmp_path / "run", Faulty(mail.asked)
    command = ["eval", "run", "-m", "openai/gpt-4.1", "--judge", "f1", "--concurrency", "64"]
    command += ["--questions", str(golden), "--db", str(mail.db), "--repeat", str(REPEATS)]
    with Provider(rule, records=False) as provider:
        running = subprocess.Popen(
            [sys.executable, "-m", "art_e", *command, "--json", "--out", str(out)],
            env={
                **os.environ,
                "ART_E_HOME": str(tmp_path / "home"),
                "OPENAI_API_KEY": "sk-test-0123456789abcdef",
                "OPENAI_BASE_URL": provider.base_url,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        held: list[tuple[int, int]] = []  # replies, and bytes of memory
        status = Path(f"/proc/{running.pid}/status")
        while running.poll() is None:
            found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text())
            if found:
                held.append((rule.whole, 1024 * int(found[1])))
            time.sleep(0.5)
    assert running.returncode == 0
    asked = Counter[str]()
    tokens = answered = 0
    for each in read_trajectories(out / "trajectories.jsonl"):
        asked[each.question_id] += 1
        tokens += each.usage["prompt_tokens"]
        answered += each.error is None
    assert asked == {each.id: REPEATS for each in mail.asked}
    assert rule.faults > 0.2 * rule.whole
    # Eight tries of a call all fail once in 15,000; nothing else goes unanswered.
    assert answered > 0.99 * len(mail.asked) * REPEATS
    # What was answered is counted, once.
    assert tokens == rule.whole * USAGE.prompt_tokens
    (first, before), *_, (last, after) = [each for each in held if each[0] > rule.whole / 4]
    episodes = (last - first) / TURNS
    print(
        f"{answered} answered, {rule.faults} faults, {(after - before) / episodes:,.0f} bytes each"
    )
    assert after - before < MOST_BYTES + MOST_BYTES_AN_EPISODE * episodes
