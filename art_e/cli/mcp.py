"""`mcp`: one inbox's search and read, offered to an MCP client over stdin and stdout.

Knows nothing of the protocol, which is art_e/mcp.py's, and prints nothing on stdout.
"""

import typer

from art_e.cli.options import (
    AsOfOption,
    DbOption,
    InboxOption,
    chosen_address,
    chosen_db,
    example,
    parse_day,
)
from art_e.cli.output import note, plural

app = typer.Typer()


@app.command(
    "mcp",
    epilog=example(
        "art-e mcp --inbox me@example.com",
        "art-e mcp --inbox tim.belden@enron.com --as-of 2000-12-30 --db enron.duckdb",
    ),
)
def serve_mcp(inbox: InboxOption = None, as_of: AsOfOption = None, db: DbOption = None) -> None:
    """Let an MCP client (Claude, Cursor, VS Code) search and read one inbox, read-only.

    The client starts this command and talks to it over stdin and stdout.
    """
    today = parse_day(as_of, "--as-of")

    from art_e.inbox.file import InboxFile
    from art_e.mcp import run_server

    with InboxFile(chosen_db(db)) as file:
        opened = file.open_inbox(chosen_address(file, inbox, db), today)
        until = "" if today is None else f" up to {today}"
        mails = plural(len(opened), "mail")
        note(f"serving {opened.address}, {mails}{until}; waiting for an MCP client on stdin")
        run_server(opened)
