"""What a benchmark can vary besides models: judges, prompts, and repeats."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.mail import Email
from art_e.question import Question
from art_e.runs import Run, start_run
from art_e.tools import WHOLE_VIEW, View
from art_e.trajectory import read_trajectories
from evals.benchmark import Entrant, Prompt, read_prompt, run_benchmark
from evals.judges.offline import OfflineJudge
from evals.verdict import Verdict
from tests import builders as episodes
from tests.builders import LEASE
from tests.evals.rehearsed import QUESTIONS, Rehearsed, ask


@pytest.fixture(scope="module")
def inbox_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    with episodes.write_inbox(tmp_path_factory.mktemp("benchmark") / "inbox.duckdb") as file:
        yield file


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return start_run("eval", {}, tmp_path)


def test_a_view_is_what_every_episode_shows(inbox_file: InboxFile, tmp_path: Path) -> None:
    shown = []
    for number, view in enumerate((WHOLE_VIEW, View(snippet_chars=5, addresses=False))):
        run = start_run("eval", {}, tmp_path, tmp_path / str(number))
        ask(inbox_file, run, QUESTIONS[:1], Rehearsed("rehearsed", 0.01), view=view)
        [trajectory] = read_trajectories(run.trajectories)
        said = next(each["content"] for each in trajectory.messages if each["role"] == "tool")
        shown.append(json.loads(said)["hits"][0])
    whole, less = shown
    assert whole["snippet"].startswith("The lease")
    assert less["snippet"] == "The..."
    assert whole["from"].endswith(">")
    assert less["from"] == whole["from"].partition(" <")[0]


def test_repeats_are_whole_rounds_and_are_recorded(inbox_file: InboxFile, run: Run) -> None:
    metrics = ask(inbox_file, run, QUESTIONS[:2], Rehearsed("rehearsed", 0.01), repeats=3)
    trajectories = list(read_trajectories(run.trajectories))
    assert [(each.question_id, each.repeat) for each in trajectories] == [
        (name, repeat) for repeat in range(3) for name in ("right", "wrong")
    ]
    figures = metrics["models"]["rehearsed"]
    assert (figures["n"], metrics["questions"]["repeats"]) == (6, 3)
    assert figures["always_right"]["value"] == 1 / 2


class Sceptic:
    """Finds every answer wrong, whose mails it was given."""

    name = "sceptic"

    def __init__(self) -> None:
        self.given: dict[str, list[str]] = {}

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
    ) -> Verdict:
        self.given[question.id] = [each.message_id for each in mails]
        return Verdict(False, bool(mails), self.name, "no")


def test_further_judges_see_the_mails_that_were_read_and_stand_beside_the_first(
    inbox_file: InboxFile, run: Run
) -> None:
    sceptic = Sceptic()
    metrics = run_benchmark(
        QUESTIONS,
        [Entrant(Rehearsed("rehearsed", 0.01))],
        inbox_file,
        [OfflineJudge(), sceptic],
        run,
        max_turns=4,
    )
    judged = ("right", "wrong", "abstained", "right to abstain", "made up")
    # Only one of them read a mail.
    assert sceptic.given == {name: [LEASE] if name == "right" else [] for name in judged}
    trajectories = {each.question_id: each for each in read_trajectories(run.trajectories)}
    for name, each in trajectories.items():
        assert [one["judge"] for one in each.other_verdicts] == ["sceptic"] * (name in judged)
    figures = metrics["models"]["rehearsed"]
    assert metrics["judges"] == [OfflineJudge().name, "sceptic"]
    assert figures["by_judge"]["sceptic"]["accuracy"]["value"] == 0
    assert figures["agreement"]["n"] == 5
    assert figures["agreement"]["share"]["value"] == pytest.approx(3 / 5)


def test_a_prompt_of_ones_own_is_used_and_recorded(
    inbox_file: InboxFile, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "terse.txt"
    file.write_text("You search $inbox_address. Be terse.\n", encoding="utf-8")
    prompt = read_prompt(file)
    assert prompt == Prompt("terse", "You search $inbox_address. Be terse.\n")
    metrics = ask(inbox_file, run, QUESTIONS[:1], Rehearsed("rehearsed", 0.01), prompt=prompt)
    [trajectory] = read_trajectories(run.trajectories)
    assert trajectory.messages[0]["content"] == f"You search {episodes.BOB}. Be terse.\n"
    assert trajectory.policy == {"prompt_hash": prompt.hash, "prompt": "terse"}
    assert metrics["prompt"] == {"name": "terse", "hash": prompt.hash}


def test_a_prompt_that_is_none_is_one_line(tmp_path: Path) -> None:
    for name, content in (("empty", b" \n"), ("latin", b"\xff\xfe\xe9")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            read_prompt(tmp_path / name)
    with pytest.raises(UserError, match="--prompt"):
        read_prompt(tmp_path / "missing")
