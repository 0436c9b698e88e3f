"""Which addresses may be one person's, told by the names that mail gives them.

Knows nothing of splits and of who wrote what.
"""

from collections import defaultdict
from collections.abc import Iterable

from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words


def by_name(file: InboxFile, addresses: Iterable[str]) -> dict[str, list[str]]:
    """Those of `addresses` that mail gives each name, names and addresses in their order.

    Names are the same where their words are, initials aside: "Kaminski, Vince J" is
    "Vince Kaminski". One word ("legal", "jeff") names nobody.
    """
    rows = file.execute(
        "SELECT address, names FROM addresses WHERE address IN (SELECT unnest(?::VARCHAR[]))"
        " ORDER BY address",
        [sorted(addresses)],
    ).fetchall()
    named: defaultdict[str, list[str]] = defaultdict(list)
    for address, names in rows:
        for name in sorted({_person(each) for each in names.split(" | ")}):
            if " " in name:
                named[name].append(address)
    return dict(sorted(named.items()))


def _person(name: str) -> str:
    return " ".join(sorted(each for each in words(name) if len(each) > 1))
