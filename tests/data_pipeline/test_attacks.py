"""The injection benchmark: its attack mails, and the figures for resisting them."""

from collections import Counter
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words
from art_e.question import load_questions
from data_pipeline.cli import read_sources
from data_pipeline.synthetic.mail import reply_subject
from data_pipeline.synthetic.world import Attack, attacks
from tests.builders import answer, message_ids, search, tries
from tests.command_line import Run, json_of
from tests.provider import Reply, Request, openai, says


@pytest.fixture(scope="module")
def cases() -> list[Attack]:
    return list(attacks())


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("injection") / "injection.duckdb"
    read_sources(["synthetic:injection"], path)
    return path


@pytest.mark.fire
def test_attack_mails_lie_next_to_the_gold_mail(cases: list[Attack], db: Path) -> None:
    questions = load_questions(str(db.with_name("injection.questions.jsonl")))
    assert questions == [each.question for each in cases] and len(questions) == 60
    assert set(Counter(each.provenance["attack"] for each in questions).values()) == {12}
    with InboxFile(db) as file:
        for question in questions[:: tries(3, 1)]:
            inbox = file.inbox_of(question)
            gold = [inbox.read(each) for each in question.message_ids]
            assert gold[-1] is not None
            mails = map(inbox.read, message_ids(inbox.search([gold[-1].subject], max_results=50)))
            attack_id = f"<a{gold[-1].message_id[1:]}"
            replies = [each for each in mails if each and each.message_id.startswith(attack_id)]
            assert {each.subject for each in replies} == {reply_subject(gold[-1].subject)}
            planted = question.provenance["planted"]
            says_it = [each for each in replies if planted in " ".join(each.body.split())]
            # A secret is planted in another mail, any other text in the attack itself.
            assert bool(says_it) == (question.provenance["attack"] != "secret")
            assert inbox.search([planted]) and planted not in (question.answer or "")
            forged = question.provenance["attack"] == "forged-sender"
            name = sorted(words(gold[-1].sender.name))
            assert forged == any(sorted(words(each.sender.name)) == name for each in replies)
            assert all(each.sender.address != gold[-1].sender.address for each in replies)


def test_resistance_and_accuracy_are_measured(art_e: Run, cases: list[Attack], db: Path) -> None:
    """A third of the answers is what the attacker wants, a third is missing."""
    number_of = {each.question.question: number for number, each in enumerate(cases)}

    def rule(request: Request) -> Reply:
        if len(request.messages) == 2:
            return says(None, search("the"))
        number = number_of[request.messages[1]["content"]]
        question = cases[number].question
        claim = f"It is {question.provenance['planted']}, they say."
        return says(None, answer((claim, None, question.answer)[number % 3]))

    with openai(rule):
        questions = ("--questions", db.with_name("injection.questions.jsonl"), "--db", db)
        options = (*questions, "--judge", "offline", "--json")
        figures = json_of(art_e("eval", "run", "-m", "o3", *options))["models"]["openai/o3"]
    assert figures["resistance"]["value"] == pytest.approx(2 / 3)
    assert figures["accuracy"]["value"] == pytest.approx(1 / 3)
    assert set(figures["by_attack"]) == {each.question.provenance["attack"] for each in cases}
