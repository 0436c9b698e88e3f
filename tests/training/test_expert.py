"""The expert: right without noise, wrong in the intended ways with it; the tokens with loss."""

import json
from random import Random

import pytest
from transformers import Qwen2Tokenizer

from art_e.agent import episode_record
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.offline import NOTHING
from art_e.trajectory import Trajectory
from data_pipeline.synthetic.stage import Planted
from data_pipeline.synthetic.world import WorldConfig, ledger
from evals.judges.offline import OfflineJudge
from tests import tiny_qwen
from tests.builders import answer, message, read, search, the_error
from tests.training import tiny
from tests.training.conftest import Begin, written
from tests.training.scripted import rollouts
from training import expert
from training.cli import planted_in
from training.expert import NO_LOSS, Expert, marked_tokens, part_of
from training.recipe import Noise, Part
from training.rollout import ChatTokens, Material

PERFECT = Noise(**dict.fromkeys(Noise.model_fields, 0.0))


@pytest.fixture(scope="module")
def planted() -> list[Planted]:
    return list(ledger(WorldConfig(size=1000)))


def play(file: InboxFile, chosen: list[Planted], noise: Noise, **options: bool) -> list[Trajectory]:
    trajectories = []
    for number, entry in enumerate(chosen):
        question = entry.question
        episode = Episode(file.open_inbox(question.inbox_address, question.query_date), question)
        Expert(episode, entry, Random(f"0/{number}"), noise, **options).play()
        trajectories.append(episode_record(episode, "run", "expert", {}))
    return trajectories


def test_without_noise_an_answer_is_right(world: InboxFile, planted: list[Planted]) -> None:
    judge, answered, right, spaces = OfflineJudge(), 0, 0, set()
    for entry, done in zip(planted, play(world, planted, PERFECT, leading_space=True), strict=True):
        rubric, text = done.rubric, str(done.final_answer)
        assert rubric["answered"] or rubric["abstained"]
        assert not rubric["unparseable_calls"] + rubric["bad_argument_calls"]
        if not entry.question.answerable:
            assert done.final_answer == NOTHING
        elif rubric["answered"]:
            answered += 1
            assert rubric["read_gold"] and rubric["sources_correct"]
            verdict = judge.decide(entry.question, done.final_answer)
            # A mail's nickname is right, but the judge does not know nicknames.
            assert verdict.correct or verdict.reason.startswith("lacks a value or name")
            right += bool(verdict.correct)
            # An answer begins with a space if its source in the mail does.
            seen = "".join(each["content"] for each in done.messages if each["role"] == "tool")
            assert not text.startswith(" ") or text in seen
            spaces.add(text.startswith(" "))
    assert right / answered > 0.95
    # The expert's few searches miss the other gold mails.
    assert answered / sum(entry.question.answerable is True for entry in planted) > 0.8
    assert spaces == {True, False}


@pytest.fixture(scope="module")
def clean(world: InboxFile, planted: list[Planted]) -> list[Trajectory]:
    return play(world, planted[:60], PERFECT)


@pytest.mark.parametrize("name", Noise.model_fields)
def test_noise_of_each_kind_changes_episodes(
    world: InboxFile, planted: list[Planted], clean: list[Trajectory], name: str
) -> None:
    noisy = play(world, planted[: len(clean)], PERFECT.model_copy(update={name: 1.0}))
    assert sum(a.messages != b.messages for a, b in zip(clean, noisy, strict=True)) > 10
    facts = [each.rubric for each in noisy]
    if name == "reads_one":
        assert {each["turns"] for each in facts if each["abstained"]} <= {2, 3}
        assert sum(each["abstained"] for each in facts if each["answerable"]) > 5
    elif name == "gives_up":
        assert not any(each["answered"] for each in facts)
    elif name == "lazy_searches":
        calls = [call for each in noisy for call in each.messages[2].get("tool_calls", ())]
        sought = [json.loads(each["function"]["arguments"])["keywords"] for each in calls]
        assert all(len(words) == 1 and " " not in words[0] for words in sought)
    else:
        efforts = zip(clean, facts, strict=True)
        assert sum(each["effort"] > done.rubric["effort"] for done, each in efforts) > 10


MUSE, SEARCH = AssistantMessage("I think."), message(search("lease"))
FIRST, SECOND, ANSWER = message(read("m1")), message(read("m2")), message(answer("May"))
Turns = list[AssistantMessage]
WHOLE: Turns = [MUSE, SEARCH, FIRST, SECOND, ANSWER]


@pytest.mark.parametrize(
    ("part", "turns"),
    [("whole", WHOLE), ("first", [MUSE]), ("read", [FIRST, SECOND]), ("answer", [SECOND, ANSWER])],
)
def test_labels_mark_the_models_turns_of_a_part(
    part: Part, turns: Turns, begin: Begin, tokens: ChatTokens, tokenizer: Qwen2Tokenizer
) -> None:
    """A part that has an earlier turn for context counts only its last turn."""
    messages = rollouts(begin, WHOLE)[0].episode.messages
    chosen = part_of(messages, part)
    assert chosen is not None
    last_alone = part in ("read", "answer")
    ids, labels = marked_tokens(chosen, tokens, last_alone=last_alone)
    assert all(label in (token, NO_LOSS) for token, label in zip(ids, labels, strict=True))
    learnt = tokenizer.decode([each for each in labels if each != NO_LOSS])
    counted = turns[-1:] if last_alone else turns
    assert learnt == "".join(written(each) + tiny_qwen.END for each in counted)
    # It begins with the question and ends with the model's end mark.
    prompt = tokens.begin(messages[:2]).prompt_ids
    assert ids[: len(prompt)] == prompt
    assert ids[-1] == labels[-1] == tokens.end_id
    text = str(tokenizer.decode(ids))
    assert [each for each in WHOLE if written(each) in text] == turns


def test_expert_plays_in_order(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny.recipe()
    of_id = planted_in(recipe.data)
    chosen = [of_id[each.id] for each in material.questions[:12]]
    Random(1).shuffle(chosen)
    path = material.file.path

    def plays(seed: int) -> list[list[ChatMessage]]:
        played = expert.expert_conversations(path, {Noise(): chosen}, recipe.episode, seed)
        return played[Noise()]

    alone = plays(0)
    for entry, messages in zip(chosen, alone, strict=True):
        assert messages[0]["content"] == recipe.episode.prompt
        assert entry.question.question in str(messages[1]["content"])
    assert plays(1) != alone
    monkeypatch.setattr(expert, "_AT_ONCE", 5)
    assert plays(0) == alone
    # A lean search shows whole mails.
    lean = recipe.episode.model_copy(update={"lean": True})
    [on_lean] = expert.expert_conversations(path, {Noise(): chosen}, lean, 0).values()
    assert len(on_lean) == len(alone)
    # It can't answer other questions.
    error = the_error(expert.conversations_of, tiny.recipe(), material, {}, 0)
    assert "play synthetic questions" in error
