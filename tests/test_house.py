"""The rules beyond ruff's: direction of imports, length of files, locked requirements."""

import ast
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from art_e.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
# A package may import itself and those before it.
PACKAGES = ("art_e", "evals", "data_pipeline", "training", "art_e_env")
# Imported when a command runs: the commands' modules, those that load torch or litellm, and those
# that libraries import by name.
ON_CALL = frozenset(
    {module for module, _ in COMMANDS.values()}
    | {f"art_e.models.{name}" for name in ("hosted", "loading", "local")}
    | {f"training.{name}" for name in ("grpo", "supervised")}
    | {f"art_e_env.{name}_env" for name in ("trl", "verifiers")}
    | {"art_e_env.inspect_task"}
)
MOST_LINES = 700
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Import(NamedTuple):
    """An imported module; `late`: inside a function, or by its name."""

    module: str
    late: bool


@cache
def files() -> Mapping[str, Path]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    return dict(zip((name.removesuffix(".__init__") for name in names), paths, strict=True))


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(files()[name].read_text("utf-8"))


@cache
def imports(name: str) -> tuple[Import, ...]:
    return tuple(each for each in _imports(tree(name)) if each.module != name)


def _imports(node: ast.AST, *, late: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            assert not isinstance(child, ast.ImportFrom) or not child.level, "names are whole"
            stem = f"{child.module}." if isinstance(child, ast.ImportFrom) else ""
            modules = filter(None, (_module(stem + alias.name) for alias in child.names))
            yield from (Import(module, late) for module in modules)
        elif isinstance(child, ast.Constant) and isinstance(name := child.value, str):
            if "." in name and name in files() and files()[name].name != "__init__.py":
                yield Import(name, late=True)
        else:
            yield from _imports(child, late=late or isinstance(child, FUNCTIONS))


def _module(name: str) -> str | None:
    """Return the project's module of a dotted name; None for a library."""
    while name and name not in files():
        name = name.rpartition(".")[0]
    return name or None


def package_of(name: str) -> str:
    return name.partition(".")[0]


def is_entry_point(name: str) -> bool:
    """Return whether a module is run or imported by name, rather than by another module."""
    if name.endswith("__main__") or name in ON_CALL or files()[name].name == "__init__.py":
        return True
    last = tree(name).body[-1]
    return isinstance(last, ast.If) and ast.unparse(last.test) == "__name__ == '__main__'"


def test_the_packages_are_found() -> None:
    assert {package_of(name) for name in files()} == set(PACKAGES)
    assert files().keys() >= ON_CALL
    assert Import("art_e.agent", late=False) in imports("art_e.cli.conversation")


def test_imports_point_one_way_and_are_not_late() -> None:
    for name in files():
        allowed = PACKAGES[: PACKAGES.index(package_of(name)) + 1]
        for module, late in imports(name):
            assert not late or module in ON_CALL, f"{name} imports {module} late"
            assert package_of(module) in allowed or name == "art_e.cli.main", f"{name}: {module}"
            assert "pipeline.ingest" not in name or "pipeline.accounts" not in module, name


def test_there_are_no_import_cycles() -> None:
    left = {name: {each.module for each in imports(name) if not each.late} for name in files()}
    while free := {name for name, modules in left.items() if not modules & left.keys()}:
        left = {name: modules for name, modules in left.items() if name not in free}
    assert not left, f"in a circle, or importing one: {sorted(left)}"


def test_files_are_short_and_classes_at_top_level() -> None:
    for name, path in files().items():
        assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES, name
        functions = (each for each in ast.walk(tree(name)) if isinstance(each, FUNCTIONS))
        inside = (part for function in functions for part in ast.walk(function))
        assert [each.name for each in inside if isinstance(each, ast.ClassDef)] == [], name


def test_every_module_is_used() -> None:
    used = {each.module for name in files() for each in imports(name)}
    assert [name for name in files() if name not in used and not is_entry_point(name)] == []


def test_the_architecture_page_names_existing_files() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    core, walks = page.partition("## Start here")[2].split("## Three walks")
    listed = re.findall(r"`((?:art_e|evals|data_pipeline|training)/[\w/.]+\.py)`", core)
    assert sum(len((ROOT / each).read_text("utf-8").splitlines()) for each in listed) <= 3600
    parts = walks.split("**")[2::2]
    assert len(parts) == 3
    for walk in parts:
        steps = re.findall(r"^\d+\. `([\w/.]+)`", walk, re.MULTILINE)
        assert 5 <= len(steps) <= 12
        assert [each for each in steps if not (ROOT / each).is_file()] == []


def project() -> tuple[list[str], dict[str, list[str]]]:
    """Return the requirements of the core, and of each extra."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return table["dependencies"], table["optional-dependencies"]


def test_imported_libraries_are_declared() -> None:
    core, extras = project()
    lines = [*core, *(line for extra in extras.values() for line in extra)]
    declared = {canonicalize_name(Requirement(line).name) for line in lines}
    folders = (*PACKAGES, "bench", "tests", "notebooks", "examples")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    nodes = [each for path in paths for each in ast.walk(ast.parse(path.read_text("utf-8")))]
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    modules = {package_of(name) for name in names} - {*sys.stdlib_module_names, *folders}
    packages = packages_distributions()
    for module in modules:
        assert declared & {
            canonicalize_name(package) for package in packages.get(module, [module.lstrip("_")])
        }


# ---- A GPU machine installs the versions that the tests run with, and they fit together.

PIN = re.compile(r"^([A-Za-z0-9._-]+)={2,3}([^ ;\\]+)", re.MULTILINE)


def locked(name: str) -> dict[str, Version]:
    text = (ROOT / "requirements" / name).read_text("utf-8")
    return {canonicalize_name(each[1]): Version(each[2]) for each in PIN.finditer(text)}


def test_gpu_requirements_are_tested_versions_with_hashes() -> None:
    text = (ROOT / "requirements" / "gpu.txt").read_text("utf-8")
    assert "://" not in text
    entries = re.split(r"^(?=[^ #\n])", text, flags=re.MULTILINE)[1:]
    assert entries.pop(0).strip() == "--only-binary :all:"
    assert len(entries) == len(locked("gpu.txt")) > 150
    assert [each for each in entries if not PIN.match(each) or "--hash=sha256:" not in each] == []
    gpu, dev = locked("gpu.txt"), {**locked("dev.txt"), **locked("torch.txt")}
    # vLLM pins the torch of the extra `train`, the public build with CUDA.
    for name in "trl transformers peft accelerate tokenizers datasets bitsandbytes torch".split():
        assert gpu[name] == dev[name]
    core, extras = project()
    # Some versions of litellm stole credentials; pyproject.toml leaves them out.
    for name, line in itertools.product(("core.txt", "dev.txt"), core):
        required = Requirement(line)
        assert required.specifier.contains(locked(name)[canonicalize_name(required.name)]), line
    cuda = (ROOT / "requirements" / "cuda.in").read_text("utf-8").splitlines()
    lines = [*core, *extras["eval"], *extras["train"], *extras["gpu"], *cuda]
    lines += [line for line in requires("trl") or () if line.startswith("vllm")]
    for line in lines:
        if not line.startswith("#"):
            required = Requirement(line)
            assert required.specifier.contains(gpu[canonicalize_name(required.name)]), line


def bindings(node: ast.AST) -> Iterator[str]:
    """Yield what is bound, except in comprehensions and lambdas of one line."""
    short = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, short) and child.lineno == child.end_lineno:
            continue
        if isinstance(child, ast.Name | ast.Attribute) and isinstance(child.ctx, ast.Store):
            yield child.id if isinstance(child, ast.Name) else child.attr
        elif isinstance(child, ast.arg):
            yield child.arg
        yield from bindings(child)


def test_names_and_texts_are_plain() -> None:
    plain = tomllib.loads((ROOT / "tests/plain.toml").read_text("utf-8"))
    phrases = re.compile("|".join(plain["phrases"]), re.IGNORECASE)
    scripts = [
        path for name in (*PACKAGES, "bench", "tests") for path in (ROOT / name).rglob("*.py")
    ]
    for path in (*scripts, *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")):
        text, name = path.read_text("utf-8"), str(path.relative_to(ROOT))
        names = {*bindings(ast.parse(text))} if path.suffix == ".py" else set[str]()
        words = {*map(str.lower, phrases.findall(text)), *names.intersection(plain["names"])}
        assert words <= {*plain["allowed"].get(name, ())}, f"{name}: {words}"
