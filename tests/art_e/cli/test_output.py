import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from art_e.cli.output import console, note, plural, print_json, progress, text
from tests.command_line import HOSTILE, assert_safe

TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(TEXT, st.lists(TEXT | st.integers() | st.none(), max_size=4), max_size=4))
def test_json_comes_back_whole_and_is_safe_on_any_terminal(
    capsys: pytest.CaptureFixture[str], value: Any
) -> None:
    print_json(value)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert all(" " <= char <= "~" or char == "\n" for char in printed)


def test_a_note_is_one_clean_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    note(f"first\nsecond {HOSTILE}")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("first second ") and err.count("\n") == 1
    assert_safe(err)


def test_the_console_takes_no_markup_and_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    line = f"[bold]{'word ' * 100}[/bold] :smile:"
    console().print(text((line, "bold")), soft_wrap=True)
    assert capsys.readouterr().out == line + "\n"


def test_progress_is_silent_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress("mails", 3) as advance:
        advance()
        advance(2)
    assert capsys.readouterr() == ("", "")


def test_plural() -> None:
    assert [plural(1, "mail"), plural(2_000, "mail"), plural(2, "address")] == [
        "1 mail",
        "2,000 mails",
        "2 addresses",
    ]
