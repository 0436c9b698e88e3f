"""The places that CONTRIBUTING.md tells people to change are there."""

import ast
import re
from pathlib import Path

import pytest

from tests.documented import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PLACES = re.findall(r"^\| `([^`:]+?)(?::(\w+))?` \|", PAGE, re.MULTILINE)


def names(path: Path) -> set[str]:
    """What a module defines or imports at its top."""
    found: set[str] = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.FunctionDef(name) | ast.ClassDef(name):
                found.add(name)
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                found.add(name)
            case ast.ImportFrom(_, aliases):
                found.update(each.name for each in aliases)
    return found


def test_each_recipe_names_code_a_test_and_a_page() -> None:
    recipes = PAGE.split("\n## ")[-3:]
    for recipe in recipes:
        assert re.search(r"\.py:\w+`", recipe)
        assert "`tests/" in recipe
        assert re.search(r"^\| `(docs/\w+|README).md` \|", recipe, re.MULTILINE)


@pytest.mark.parametrize(("path", "name"), PLACES, ids=lambda each: each)
def test_each_place_is_there(path: str, name: str) -> None:
    if not path.startswith(("requirements", "docs/")) or path.endswith(".md"):
        assert (ROOT / path).exists()
    assert not name or name in names(ROOT / path)
