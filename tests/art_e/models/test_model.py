"""Models by name, and the host that their calls go to."""

import asyncio
import contextlib
import inspect

import httpx
import openai
import pytest

from art_e.models.base import kind_of
from art_e.models.clients import complete
from art_e.models.model import Model
from art_e.models.providers import listed_models, load_litellm
from tests.builders import HELLO, table_rows, the_error
from tests.provider import MODELS, Provider, says, stand_in


@pytest.mark.parametrize("cells", table_rows(__file__, "hosts.tsv"))
def test_name_gives_kind_and_host(cells: list[str]) -> None:
    name, kind, address, owner = cells
    host, self_hosted = None if address == "-" else address, owner == "own"
    model = Model(name)
    assert (kind_of(name), model.host, model.self_hosted) == (kind, host, self_hosted)
    assert model.leaves_machine is (host not in (None, "localhost:11434"))
    local = {None: None, "localhost:11434": "mail text stays on this machine (localhost:11434, "}
    start = local.get(host, f"mail text goes to {host} (")
    notice = None if model.notice is None else model.notice.partition(";")[0]
    assert notice == (None if start is None else f"{start}{name})")


@pytest.mark.parametrize("cells", table_rows(__file__, "addresses.tsv"))
def test_environment_sets_addresses(monkeypatch: pytest.MonkeyPatch, cells: list[str]) -> None:
    name, variable, address, host = cells
    monkeypatch.setenv(variable, address)
    assert Model(name).host == host
    assert Model(name).self_hosted is not (host == "ollama.com" or "h.example" in host)


@pytest.mark.parametrize("name", MODELS)
def test_request_goes_to_the_named_host(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A real request by the real client, whatever the server answers."""
    with Provider(lambda _: says("OK.")) as provider:
        address = provider.base_url.removesuffix("/v1")
        stand_in(monkeypatch, name, address)
        assert Model(name).host == address.removeprefix("http://")
        with contextlib.suppress(openai.OpenAIError, httpx.HTTPStatusError):
            asyncio.run(complete({"model": name, "messages": HELLO}, 5))
        assert provider.requests
    # litellm keeps these clients forever, and an open socket would fail a later test.
    clients = load_litellm().in_memory_llm_clients_cache.cache_dict
    for key in [key for key in clients if not inspect.iscoroutinefunction(clients[key].close)]:
        clients.pop(key).close()


# Without the check litellm would send these requests, mail and all, to api.openai.com.
NOWHERE = [
    (f"{name}/qwen", f"export {name.upper()}_API_BASE=URL") for name in ("hosted_vllm", "azure")
]
NOWHERE += [(name, f"unknown model {name!r}; use offline") for name in ("", "Offline", "a\nb")]


@pytest.mark.parametrize(("name", "line"), NOWHERE)
def test_model_without_an_address_is_an_error(name: str, line: str) -> None:
    assert line in the_error(lambda: Model(name).host)
    assert line in the_error(Model(name).policy)


def test_model_list_is_litellms() -> None:
    costs = load_litellm().model_cost
    assert costs == {name: listed_models()[name] for name in costs}
