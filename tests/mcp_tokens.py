"""Measures the tokens of the results of `art-e mcp` on the mail of a file.

    python -m tests.mcp_tokens FILE          prints the table of docs/models.md

It draws mails of the file's largest inboxes, searches for words of each, reads it and follows its
thread, every page of both. Tokens are those of OpenAI's o200k_base. Only the text is counted:
the structured content beside it holds the same facts, and a client shows its model one of the two.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import tiktoken
from mcp import types

from art_e.cli.mcp import answer_call
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.tokenizer import search_words

INBOXES = 20
MAILS = 50  # of each inbox


def results(inbox: Inbox, rng: Random) -> Iterator[tuple[str, str]]:
    """What is measured, and the text of a result."""
    mails = inbox.search([], max_results=len(inbox))
    for hit in rng.sample(mails, min(MAILS, len(mails))):
        email = inbox.read(hit.message_id)
        assert email is not None
        found = search_words([email.subject, email.body]) or ["mail"]
        query = " ".join(rng.sample(found, min(3, len(found))))
        named = {"message_id": hit.message_id}
        for what, name, arguments in (
            ("`search_mail`", "search_mail", {"query": query}),
            ("`read_mail`, each page", "read_mail", named),
            ("`read_mail` with `find`", "read_mail", {**named, "find": query}),
            ("`read_thread`, each page", "read_thread", named),
        ):
            yield from ((what, text) for text in pages(inbox, name, arguments))


def pages(inbox: Inbox, name: str, arguments: dict[str, Any]) -> Iterator[str]:
    """The text of a call's result, and of those that follow it page by page."""
    page: int | None = None
    while True:
        asked = arguments if page is None else {**arguments, "page": page}
        result = answer_call(inbox, name, asked)
        [content] = result.content
        assert isinstance(content, types.TextContent) and not result.is_error, content
        yield content.text
        if (page := result.structured_content.get("next_page")) is None:
            return


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.mcp_tokens")
    parser.add_argument("file", type=Path, help="an inbox file of real mail")
    # litellm brings the vocabulary, which tiktoken would download.
    os.environ["TIKTOKEN_CACHE_DIR"] = str(files("litellm") / "litellm_core_utils" / "tokenizers")
    encoding = tiktoken.get_encoding("o200k_base")
    counts: defaultdict[str, list[int]] = defaultdict(list)
    with InboxFile(parser.parse_args().file) as file:
        for each in file.inboxes(INBOXES):
            for what, text in results(file.open_inbox(each.address), Random(0)):
                counts[what].append(len(encoding.encode(text, disallowed_special=())))
    print("| result | n | mean | p95 | maximum |\n|---|---|---|---|---|")
    for what, tokens in counts.items():
        mean, p95 = np.mean(tokens), np.quantile(tokens, 0.95)
        print(f"| {what} | {len(tokens):,} | {mean:,.0f} | {p95:,.0f} | {max(tokens):,} |")


if __name__ == "__main__":
    main()
