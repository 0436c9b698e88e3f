"""The places that CONTRIBUTING.md tells people to change exist."""

import ast
import re

import pytest

from tests.documented import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PLACES = re.findall(r"^\| `([\w/]+\.(?:py|md))(?::(\w+))?` \|", PAGE, re.MULTILINE)


def test_each_recipe_names_code_a_test_and_a_page() -> None:
    for recipe in PAGE.split("\n## ")[-3:]:
        assert re.search(r"\.py:\w+`", recipe)
        assert "`tests/" in recipe
        assert re.search(r"^\| `(docs/\w+|README).md` \|", recipe, re.MULTILINE)


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_each_place_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text("utf-8")
    if not name:
        return
    defined = {"": ""}
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        defined |= {each.id: path for each in targets if isinstance(each, ast.Name)}
        defined[getattr(node, "name", "")] = path
    assert name in defined
