"""Mail stays with its owner: modes of files, proxies, and code that comes with weights."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builders import make_inbox
from tests.command_line import ANN, MAILS
from tests.provider import Provider, Request, says

ROOT = Path(__file__).parents[2]
PACKAGES = ("art_e", "data_pipeline", "evals", "training")


def art_e(*arguments: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "art_e", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        cwd=environment.pop("cwd", str(ROOT)),
        env={**os.environ, **environment},
        check=False,
    )


def test_whatever_holds_mail_is_the_users_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    mails = tmp_path / "mail"
    mails.mkdir()
    (mails / "1.eml").write_bytes(MAILS[0].data)
    before = os.umask(0o022)
    try:
        ingested = art_e("ingest", mails, "--owner", ANN, ART_E_HOME=str(home))
        asked = art_e("ask", "When does the lease end?", ART_E_HOME=str(home))
    finally:
        os.umask(before)
    assert (ingested.returncode, asked.returncode) == (0, 0), ingested.stderr + asked.stderr
    made = [home, *home.rglob("*")]
    assert {each.name for each in made} >= {"inbox.duckdb", "trajectories.jsonl", "config.json"}
    modes = {str(each): stat.S_IMODE(each.stat().st_mode) for each in made}
    assert modes == {str(each): 0o700 if each.is_dir() else 0o600 for each in made}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
def test_no_proxy_hears_of_a_model_on_this_machine(tmp_path: Path, host: str) -> None:
    db = tmp_path / "inbox.duckdb"
    make_inbox(db, MAILS)

    def overhears(_: Request) -> object:
        raise AssertionError("a proxy was asked")

    with Provider([says("I don't know")] * 3) as model, Provider(overhears) as proxy:  # type: ignore[arg-type]
        port = model.base_url.rpartition(":")[2]
        through = proxy.base_url.removesuffix("/v1")
        names = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
        asked = art_e(
            "ask", "When does the lease end?", "--inbox", ANN, "--db", db,
            "--model", "hosted_vllm/mine", "--json",
            HOSTED_VLLM_API_BASE=f"http://{host}:{port}",
            ART_E_HOME=str(tmp_path / "home"),
            NO_PROXY="intranet.example", no_proxy="intranet.example",
            **dict.fromkeys(names, through),
        )  # fmt: skip
        assert proxy.requests == []
        # 127.0.0.2 is this machine too, though the provider does not listen there.
        assert bool(model.requests) is (host != "127.0.0.2"), asked.stderr


def test_code_that_comes_with_weights_is_never_run_and_never_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    marker = tmp_path / "ran"
    (folder / "evil.py").write_text(f"import pathlib; pathlib.Path({str(marker)!r}).touch()")
    config = {"model_type": "evil", "auto_map": {"AutoConfig": "evil.C", "AutoModel": "evil.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    tiny_qwen = pytest.importorskip("tests.tiny_qwen")
    tiny_qwen.make_tokenizer(["When does the lease end?"]).save_pretrained(folder)
    db = tmp_path / "inbox.duckdb"
    make_inbox(db, MAILS)
    asked = art_e("ask", "When?", "--inbox", ANN, "--db", db, "--model", f"local:{folder}")
    assert asked.returncode == 2
    assert "can't be loaded" in asked.stderr
    assert not marker.exists()
    shutil.rmtree(folder)
