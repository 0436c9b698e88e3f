"""64 questions at a time of a provider that fails three times in ten."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from art_e.models.base import Usage
from art_e.trajectory import read_trajectories
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.builders import answer, read, search, tries
from tests.evals.runs import write_questions
from tests.provider import Provider, Reply, Request, broken, cut, no_json, rate_limited, says

ASKED = [each for each in questions(WorldConfig(size=1000)) if each.answerable][:40]
BY_TEXT = {each.question: each for each in ASKED}
USAGE = Usage(1_000, 0, 100, 0)
REPEATS = tries(5, 100)
TURNS, FAULTS = 3, 0.3
# What the figures are made of; a small run grows by caches.
MOST_BYTES_AN_EPISODE, MOST_BYTES = 4_500, 8_000_000


class Faulty:
    """The provider's rule: search, read, answer, between faults."""

    def __init__(self) -> None:
        self.whole = self.faults = 0
        self._rng = Random(0)

    def __call__(self, request: Request) -> Reply:
        if self._rng.random() < FAULTS:
            self.faults += 1
            return self._rng.choice([rate_limited("0"), broken(), cut(), no_json()])
        self.whole += 1
        question = BY_TEXT[request.messages[1]["content"]]
        final = answer(question.answer, *question.message_ids)
        calls = (search(question.question.split()[1]), read(question.message_ids[0]), final)
        turn = sum(each["role"] == "assistant" for each in request.messages)
        return says(None, calls[turn], usage=USAGE)


@pytest.mark.fire
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_all_is_answered_counted_and_forgotten(world_db: Path, tmp_path: Path) -> None:
    golden = write_questions(tmp_path / "questions.jsonl", ASKED)
    out, rule = tmp_path / "run", Faulty()
    command = ["eval", "run", "-m", "openai/gpt-4.1", "--judge", "f1", "--concurrency", "64"]
    command += ["--questions", str(golden), "--db", str(world_db), "--repeat", str(REPEATS)]
    with Provider(rule, records=False) as provider:
        environment = {
            "ART_E_HOME": str(tmp_path / "home"),
            "OPENAI_API_KEY": "sk-test-0123456789abcdef",
            "OPENAI_BASE_URL": provider.base_url,
        }
        running = subprocess.Popen(
            [sys.executable, "-m", "art_e", *command, "--json", "--out", str(out)],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        held: list[tuple[int, int]] = []  # replies, and bytes of memory
        status = Path(f"/proc/{running.pid}/status")
        while running.poll() is None:
            if found := re.search(r"VmRSS:\s+(\d+) kB", status.read_text()):
                held.append((rule.whole, 1024 * int(found[1])))
            time.sleep(0.5)
    assert running.returncode == 0
    episodes = list(read_trajectories(out / "trajectories.jsonl"))
    assert Counter(each.question_id for each in episodes) == {each.id: REPEATS for each in ASKED}
    assert rule.faults > 0.2 * rule.whole
    # Eight tries of a call all fail once in 15,000; nothing else goes unanswered.
    assert sum(each.error is None for each in episodes) > 0.99 * len(episodes)
    # What was answered is counted, once.
    assert sum(each.usage["prompt_tokens"] for each in episodes) == rule.whole * 1_000
    (first, before), *_, (last, after) = [each for each in held if each[0] > rule.whole / 4]
    assert after - before < MOST_BYTES + MOST_BYTES_AN_EPISODE * (last - first) / TURNS
