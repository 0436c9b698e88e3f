"""docs/skill/SKILL.md and server.json, which agents and registries read, show what runs."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from art_e import __version__
from art_e.inbox.file import InboxFile
from tests.builders import BOB
from tests.documented import ROOT, blocks
from tests.test_readme import reader_environment

SKILL = ROOT / "docs" / "skill" / "SKILL.md"


def test_the_skill_is_short_and_says_when_to_use_it() -> None:
    _, front, _ = SKILL.read_text("utf-8").split("---\n", 2)
    fields = yaml.safe_load(front)
    assert set(fields) == {"name", "description"} and fields["name"] == "art-e"
    assert "Use when" in fields["description"] and len(fields["description"]) <= 1_024
    assert len(SKILL.read_text("utf-8").splitlines()) <= 60


def test_every_command_of_the_skill_runs_and_prints_json(tmp_path: Path) -> None:
    environment = reader_environment(tmp_path)
    lines = [line for block in blocks(SKILL) for line in block.script.splitlines()]
    # The skill imports mail only if there is none.
    lines.sort(key=lambda line: "ingest" not in line)
    message_id = ""
    for line in lines:
        command = ["bash", "-c", line.replace("MESSAGE_ID", message_id)]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
        )
        assert ended.returncode == 0, f"{line}\n{ended.stderr}"
        printed = json.loads(ended.stdout)
        if line.startswith("art-e search invoice "):
            message_id = printed[0]["message_id"].strip("<>")
    assert message_id and printed["passages"]


def test_a_registry_starts_the_server(inbox_file: InboxFile) -> None:
    server = json.loads((ROOT / "server.json").read_text("utf-8"))
    [package] = server["packages"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (package["registryType"], package["identifier"]) == ("pypi", project["name"])
    assert server["version"] == package["version"] == __version__
    assert package["transport"] == {"type": "stdio"}
    assert len(server["description"]) <= 100  # as the registry demands
    values = {"--inbox": BOB, "--db": str(inbox_file.path)}
    arguments = []
    for each in package["packageArguments"]:
        named = each["type"] == "named"
        arguments += [each["name"], values[each["name"]]] if named else [each["value"]]
    ended = subprocess.run(
        [sys.executable, "-m", "art_e", *arguments],
        stdin=subprocess.DEVNULL,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0 and ended.stdout == ""
    assert f"serving {BOB}, " in ended.stderr
