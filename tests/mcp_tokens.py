"""Measures the tokens of the results of `art-e mcp` on the mail of a file.

    python -m tests.mcp_tokens FILE          prints the table of docs/models.md

It draws mails of the largest inboxes, searches for words of each, reads it and its thread, every
page of both. Tokens are those of o200k_base. The structured content repeats the text, and a client
shows its model one of the two, so it counts once.
"""

import argparse
import os
from collections import defaultdict
from importlib.metadata import distribution
from pathlib import Path
from random import Random

import numpy as np
import tiktoken

from art_e.cli.mcp import answer_call
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import search_words
from art_e.message import observation_json

INBOXES, MAILS = 40, 25  # mails of each inbox


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.mcp_tokens")
    parser.add_argument("file", type=Path, help="an inbox file of real mail")
    # litellm brings the vocabulary, which tiktoken would download.
    kept = distribution("litellm").locate_file("litellm/litellm_core_utils/tokenizers")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(kept)
    encoding = tiktoken.get_encoding("o200k_base")
    counts: defaultdict[str, list[int]] = defaultdict(list)
    rng = Random(0)
    with InboxFile(parser.parse_args().file) as file:
        for each in file.inboxes(INBOXES):
            inbox = file.open_inbox(each.address)
            mails = inbox.search([], max_results=len(inbox))
            for hit in rng.sample(mails, min(MAILS, len(mails))):
                found = search_words([hit.subject, hit.snippet]) or ["mail"]
                query = " ".join(rng.sample(found, min(3, len(found))))
                for what, name, arguments in (
                    ("`search_mail`", "search_mail", {"query": query}),
                    ("`read_mail`", "read_mail", {"message_id": hit.message_id}),
                    ("... with `find`", "read_mail", {"message_id": hit.message_id, "find": query}),
                    ("`read_thread`", "read_thread", {"message_id": hit.message_id}),
                ):
                    page: int | None = 1
                    while page:
                        paged = {} if name == "search_mail" else {"page": page}
                        result = answer_call(inbox, name, arguments | paged).structured_content
                        assert result is not None
                        text = observation_json(result)
                        counts[what].append(len(encoding.encode(text, disallowed_special=())))
                        page = result.get("next_page")
    print("| tool | results | mean | p95 | maximum |\n|---|---|---|---|---|")
    for what, tokens in counts.items():
        mean, p95 = np.mean(tokens), np.quantile(tokens, 0.95)
        print(f"| {what} | {len(tokens):,} | {mean:,.0f} | {p95:,.0f} | {max(tokens):,} |")


if __name__ == "__main__":
    main()
