"""The rules of the house beyond ruff's: who imports whom, how long a file may be, what is locked.

The tests read the source and import nothing.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from art_e.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
# Each may import itself and those before it.
PACKAGES = ("art_e", "evals", "data_pipeline", "training", "art_e_env")
# Imported by name when their command runs.
LAZY = frozenset(
    {module for module, _ in COMMANDS.values()}
    # Trainers load torch.
    | {"training.grpo", "training.sft"}
    # Inspect and verifiers.
    | {"art_e_env.inspect_task", "art_e_env.trl_env", "art_e_env.verifiers_env"}
)
MOST_LINES = 700


class Import(NamedTuple):
    """An imported module; `late`: inside a function."""

    module: str
    late: bool


@cache
def files() -> Mapping[str, Path]:
    """The modules of the packages, by name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(files()[name].read_text("utf-8"))


@cache
def imports(name: str) -> tuple[Import, ...]:
    """What a module imports of the packages."""
    return tuple(each for each in _imports(tree(name)) if each.module != name)


def _imports(node: ast.AST, *, late: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            assert not isinstance(child, ast.ImportFrom) or not child.level, "names are whole"
            stem = f"{child.module}." if isinstance(child, ast.ImportFrom) else ""
            for alias in child.names:
                if (module := _module(stem + alias.name)) is not None:
                    yield Import(module, late)
        else:
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from _imports(child, late=late or inside)


def _module(name: str) -> str | None:
    """The project's module that has a dotted name; None for a library."""
    while name and name not in files():
        name = name.rpartition(".")[0]
    return name or None


def package_of(name: str) -> str:
    return name.partition(".")[0]


def is_entry_point(name: str) -> bool:
    """Whether it is run, or imported by name, and so by no other module."""
    if name.endswith("__main__") or name in LAZY or files()[name].name == "__init__.py":
        return True
    last = tree(name).body[-1]
    return isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'"


def test_the_packages_are_found() -> None:
    assert {package_of(name) for name in files()} == set(PACKAGES)
    assert files().keys() >= LAZY
    seen = {each.module: each for each in imports("art_e.cli.ask")}
    assert seen["art_e.agent"] == Import("art_e.agent", late=False)


def test_only_foreign_modules_are_imported_inside_functions() -> None:
    late = [
        f"{name} imports {each.module}" for name in files() for each in imports(name) if each.late
    ]
    assert not late


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    allowed = PACKAGES[: PACKAGES.index(package) + 1]
    wrong = [
        f"{name} imports {each.module}"
        for name in files()
        if package_of(name) == package
        for each in imports(name)
        if package_of(each.module) not in allowed
    ]
    assert not wrong


def test_no_modules_import_each_other_in_a_circle() -> None:
    """At the top: a late import can't keep a module from loading."""
    left = {name: {each.module for each in imports(name) if not each.late} for name in files()}
    while True:
        free = {name for name, wanted in left.items() if not wanted & left.keys()}
        if not free:
            break
        left = {name: wanted for name, wanted in left.items() if name not in free}
    assert not left, f"in a circle, or importing one: {sorted(left)}"


def test_no_file_is_too_long() -> None:
    lengths = {name: len(path.read_text("utf-8").splitlines()) for name, path in files().items()}
    assert {name: lines for name, lines in lengths.items() if lines > MOST_LINES} == {}


def test_every_module_is_used() -> None:
    used = {each.module for name in files() for each in imports(name)}
    by_name = re.compile(r'import_module\("([\w.]+)"\)')  # of a package that lies above
    used |= {found for path in files().values() for found in by_name.findall(path.read_text())}
    assert [name for name in files() if name not in used and not is_entry_point(name)] == []


def test_the_architecture_page_names_what_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    core, walks = page.partition("## Start here")[2].split("## Three walks")
    listed = re.findall(r"`((?:art_e|evals|data_pipeline|training)/[\w/.]+\.py)`", core)
    assert sum(len((ROOT / each).read_text("utf-8").splitlines()) for each in listed) <= 4000
    for walk in walks.split("**")[2::2]:
        steps = re.findall(r"^\d\. `([\w/.]+)`", walk, re.MULTILINE)
        assert 5 <= len(steps) <= 8
        assert [each for each in steps if not (ROOT / each).is_file()] == []
    assert len(walks.split("**")[2::2]) == 3


def test_every_library_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = {
        canonicalize_name(Requirement(each).name)
        for part in (project["dependencies"], *extras.values())
        for each in part
    }
    folders = (*PACKAGES, "bench", "tests", "notebooks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    nodes = [each for path in paths for each in ast.walk(ast.parse(path.read_text("utf-8")))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules = {each.partition(".")[0] for each in names} - {*sys.stdlib_module_names, *folders}
    found = packages_distributions()
    assert [
        module
        for module in modules
        if not declared & {canonicalize_name(each) for each in found.get(module, [module])}
    ] == []


# ---- A GPU machine installs what the tests run with, and it fits together. Only the packages' own
# metadata can tell whether requirements/gpu.txt is complete; `make lock-gpu` resolves that.

PIN = re.compile(r"^([A-Za-z0-9._-]+)={2,3}([^ ;\\]+)", re.MULTILINE)
# What rollouts, losses, adapters and checkpoints are tested with.
TESTED = "trl transformers peft accelerate tokenizers datasets bitsandbytes".split()


def locked(name: str) -> dict[str, Version]:
    """The versions in a file of `requirements`."""
    text = (ROOT / "requirements" / name).read_text("utf-8")
    return {canonicalize_name(each[1]): Version(each[2]) for each in PIN.finditer(text)}


GPU = locked("gpu.txt")


def test_every_package_has_hashes_and_no_address() -> None:
    text = (ROOT / "requirements" / "gpu.txt").read_text("utf-8")
    assert "://" not in text
    entries = re.split(r"^(?=[^ #\n])", text, flags=re.MULTILINE)[1:]
    assert entries.pop(0).strip() == "--only-binary :all:"
    assert len(entries) == len(GPU) > 150
    assert [each for each in entries if not PIN.match(each) or "--hash=sha256:" not in each] == []


def test_training_uses_the_tested_versions() -> None:
    dev = {**locked("dev.txt"), **locked("torch.txt")}
    # vLLM pins the torch of the extra `train`, the public build with CUDA.
    for name in (*TESTED, "torch"):
        assert GPU[name] == dev[name]
    assert GPU["torch"].local is None


def test_each_requirement_is_met() -> None:
    """Of the project, its extras and the public wheel of torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    cuda = (ROOT / "requirements" / "cuda.in").read_text("utf-8").splitlines()
    for line in [*project["dependencies"], *extras["train"], *extras["gpu"], *cuda]:
        if not line.startswith("#"):
            required = Requirement(line)
            assert required.specifier.contains(GPU[canonicalize_name(required.name)]), line


def test_trl_supports_this_vllm() -> None:
    pytest.importorskip("trl")
    assert Version(metadata.version("trl")) == GPU["trl"]
    required = map(Requirement, metadata.requires("trl") or [])
    [vllm] = [each for each in required if each.name == "vllm"]
    assert vllm.specifier.contains(GPU["vllm"])


def test_no_litellm_that_stole_credentials() -> None:
    for name in ("gpu.txt", "dev.txt", "core.txt"):
        assert locked(name)["litellm"] >= Version("1.83.7")
