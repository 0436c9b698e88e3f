import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from art_e.cli.output import check, interrupted, listening
from tests.command_line import Run

pytestmark = pytest.mark.usefixtures("ctrl_c")


def press_and_swallow(*_: object) -> None:
    """What DuckDB does at times: Ctrl-C comes while it works, and nobody hears of it."""
    with contextlib.suppress(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def press_and_rename(*_: object) -> None:
    """What DuckDB does at other times."""
    press_and_swallow()
    raise RuntimeError("Query interrupted")


def test_a_swallowed_interrupt_is_known() -> None:
    with listening():
        check()
        press_and_swallow()
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with listening():
        assert not interrupted()


def test_a_renamed_interrupt_is_no_fault_of_ours(
    art_e: Run, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("art_e.inbox.file.InboxFile.inboxes", press_and_rename)
    result = art_e("inboxes", "--db", db)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == "interrupted\n"


def test_a_background_job_goes_on_ignoring_it() -> None:
    script = (
        "import os, signal\nfrom art_e.cli.output import interrupted, listening\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "with listening():\n    os.kill(os.getpid(), signal.SIGINT)\n    print(interrupted())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
