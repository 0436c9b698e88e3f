"""A tokenizer with each template that is trained on, an inbox for rollouts, and one tiny run of
each kind, made once a session and read by many tests."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.models.tool_formats import render_calls
from art_e.tools import schemas
from tests.builders import BOB, QUESTION, once
from tests.tiny_qwen import END, make_tokenizer, stock_template
from tests.training import full, tiny
from tests.training.launched import preloaded
from training.cli import load_material, run_training
from training.recipe import Setting
from training.rollout import ChatTokens, Material
from training.start import Start, load_start, template

Begin = Callable[..., Episode]
STARTING = {"test_killed.py", "test_processes.py"}


@pytest.fixture(scope="session", autouse=True)
def prepared(request: pytest.FixtureRequest) -> None:
    """Import the libraries of processes that tests start while other tests run."""
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    if alone and STARTING & {each.path.name for each in request.session.items}:
        preloaded()
        forkserver.ensure_running()


@pytest.fixture
def begin(inbox_file: InboxFile) -> Begin:
    return partial(Episode, inbox_file.open_inbox(BOB), QUESTION, max_turns=10)


@pytest.fixture(scope="session", params=[stock_template, template], ids=["stock", "nano"])
def tokenizer(request: pytest.FixtureRequest) -> Qwen2Tokenizer:
    qwen = make_tokenizer(["Who is on the crew of the crane? <tool_call> search_emails lease"])
    qwen.chat_template = request.param()
    return qwen


@pytest.fixture(scope="session")
def tokens(tokenizer: Qwen2Tokenizer) -> ChatTokens:
    return ChatTokens(tokenizer, tokenizer.get_vocab()[END])


def written(message: AssistantMessage) -> str:
    [chat] = render_calls([message.to_chat()])
    return str(chat["content"])


def whole(tokenizer: PreTrainedTokenizerFast, messages: Sequence[ChatMessage]) -> list[int]:
    """Render and encode the conversation up to the model's last turn at once."""
    last = max(place for place, each in enumerate(messages) if each["role"] == "assistant")
    text = tokenizer.apply_chat_template(
        render_calls(messages[: last + 1]), tools=list[Any](schemas()), tokenize=False
    )
    return list(tokenizer.encode(str(text), add_special_tokens=False))


@pytest.fixture(scope="session")
def training_home(shared: Path) -> Path:
    """Return the ART_E_HOME of all tests that train, which share its worlds and tiny runs."""
    home = shared / "training-home"
    home.mkdir(exist_ok=True)
    return home


@pytest.fixture
def home(training_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ART_E_HOME", str(training_home))
    return training_home


@pytest.fixture
def material(home: Path) -> Material:
    return load_material(tiny.recipe().data, "train")


def complete(setting: Setting, home: Path) -> Path:
    def make(folder: Path) -> None:
        with tiny.at(home), tiny.started(setting, folder) as training:
            run_training(training)

    return once(home / f"tiny-{setting.kind}", make)


@pytest.fixture(scope="session")
def warm(training_home: Path) -> Path:
    return complete(Setting("sft", tiny.recipe(), 0), training_home)


@pytest.fixture(scope="session")
def trained(warm: Path, training_home: Path) -> Path:
    return complete(Setting("grpo", tiny.recipe(), 0, str(warm)), training_home)


@pytest.fixture(scope="session")
def start(warm: Path) -> Start:
    """Return the trained warm start; no test may train it further."""
    return load_start(str(warm))


@pytest.fixture(scope="session")
def base(training_home: Path) -> Path:
    with tiny.at(training_home):
        return once(training_home / "base", full.make_base)
