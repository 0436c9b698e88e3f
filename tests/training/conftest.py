"""A tokenizer with each of the templates that are trained on, and an inbox to roll out in."""

from collections.abc import Callable, Iterator
from importlib import resources

import pytest
from transformers import Qwen2Tokenizer

from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.policies.qwen_calls import as_written
from art_e.tools import schemas
from tests import episodes
from tests.episodes import QUESTION
from tests.tiny_qwen import END, make_tokenizer, stock_template
from training.tokens import Tokens

Begin = Callable[..., Episode]


def nano_template() -> str:
    return resources.files("training").joinpath("templates/nano.jinja").read_text("utf-8")


TEMPLATES = {"stock": stock_template, "nano": nano_template}


@pytest.fixture(scope="session")
def inbox_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    with episodes.write_inbox(tmp_path_factory.mktemp("bob") / "inbox.duckdb") as file:
        yield file


@pytest.fixture
def begin(inbox_file: InboxFile) -> Begin:
    """Begins an episode about Bob's inbox."""
    inbox = inbox_file.open_inbox(episodes.BOB)

    def episode(max_turns: int = 10) -> Episode:
        return Episode(inbox, QUESTION, max_turns=max_turns)

    return episode


@pytest.fixture(scope="session", params=list(TEMPLATES))
def tokenizer(request: pytest.FixtureRequest) -> Qwen2Tokenizer:
    made = make_tokenizer(["Who is on the crew of the crane? <tool_call> search_emails lease"])
    made.chat_template = TEMPLATES[request.param]()
    return made


@pytest.fixture(scope="session")
def tokens(tokenizer: Qwen2Tokenizer) -> Tokens:
    return Tokens(tokenizer, schemas(), tokenizer.get_vocab()[END])


def written(message: AssistantMessage) -> str:
    """A message as a model writes it."""
    [chat] = as_written([message.to_chat()])
    return str(chat["content"])


def last_model_message(messages: list[ChatMessage]) -> int:
    """Where the model last spoke."""
    return max(place for place, each in enumerate(messages) if each["role"] == "assistant")
