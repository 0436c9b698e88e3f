"""Which mails of an inbox belong together, and what each of them adds.

Mails are linked by the message ids that they name (References, In-Reply-To), by Gmail's name of
their thread, and, where no header says so, by their subject: a reply or forward follows the latest
mail of that subject, within `DAYS`, that has someone in common with it besides the inbox's owner.
Only the open inbox's own mail counts, so nothing outside it can link two mails.
"""

import re
from collections.abc import Sequence

from art_e.inbox.mail import Execute
from art_e.inbox.tokenizer import tokens

DAYS = 60
# Fewer words in a row are no quotation: a greeting, a signature.
QUOTED_WORDS = 8
LEFT_OUT = "[earlier text left out]"
_SEVERAL_LEFT_OUT = re.compile(rf"{re.escape(LEFT_OUT)}([\W_]*{re.escape(LEFT_OUT)})+")
# Of replies and forwards in the languages of mail programs, several in a row.
_PREFIX = re.compile(
    r"^((re|fw|fwd|aw|wg|sv|vs|antw|doorst|tr|rif|r|i|odp|pd|res|enc)(\[\d+\])?\s*[:：]\s*)+"
)

_LINKS = """
WITH mine AS (
    SELECT email_id, message_id, reference_ids, gmail_thread, sent_at, bare_subject,
        length(bare_subject) < length(subject) AS is_reply
    FROM emails WHERE {mine} AND email_id <= {last}
),
named AS (
    SELECT email_id, message_id AS name FROM mine
    UNION ALL SELECT email_id, unnest(reference_ids) FROM mine
    UNION ALL SELECT email_id, gmail_thread FROM mine WHERE gmail_thread <> ''
),
by_name AS (SELECT email_id, min(email_id) OVER (PARTITION BY name) AS other FROM named),
people AS (
    SELECT DISTINCT email_id, address_id FROM {parties}
    WHERE role <> 'owner' AND address_id NOT IN ({own})
),
by_subject AS (
    SELECT email_id, lag(email_id) OVER earlier AS other, is_reply,
        sent_at - lag(sent_at) OVER earlier AS gap
    FROM mine JOIN people USING (email_id) WHERE bare_subject <> '' AND gmail_thread = ''
    WINDOW earlier AS (PARTITION BY bare_subject, address_id ORDER BY email_id)
)
SELECT email_id, other FROM by_name WHERE other <> email_id
UNION
SELECT email_id, other FROM by_subject WHERE is_reply AND gap <= to_days({days})
"""


def bare_subject(subject: str) -> str:
    """A subject in lower case without the prefixes of replies and forwards."""
    # The one letter whose lower case is two characters: a shorter subject had a prefix.
    return _PREFIX.sub("", subject.replace("\u0130", "i").lower())


def threads_of(
    execute: Execute, ids: list[int], mine: str, parties: str, own: str
) -> list[list[int]]:
    """The places in `ids`, the inbox's mails in order, of all mails of each one's thread. `mine` is
    the condition of these mails in SQL, `parties` their parties, `own` the ids of the inbox's own
    addresses."""
    if not ids:
        return []
    sql = _LINKS.format(mine=mine, last=ids[-1], parties=parties, own=own, days=DAYS)
    place_of = {email_id: place for place, email_id in enumerate(ids)}
    first = list(range(len(ids)))

    def root(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]
            place = first[place]
        return place

    for email_id, other in execute(sql).fetchall():
        one, two = sorted((root(place_of[email_id]), root(place_of[other])))
        first[two] = one
    members: list[list[int]] = [[] for _ in ids]
    for place in range(len(ids)):
        members[root(place)].append(place)
    return [members[root(place)] for place in range(len(ids))]


def added_texts(bodies: Sequence[str]) -> list[str]:
    """The text of each mail of a thread, oldest first, without lines that an earlier one holds. A
    line is left out if all its words stand in runs of `QUOTED_WORDS` words or more of earlier
    mails, wherever these break their lines; `LEFT_OUT` stands for it."""
    seen: set[tuple[str, ...]] = set()
    added = []
    for body in bodies:
        lines = body.split("\n")
        placed = [(number, word) for number, line in enumerate(lines) for word in tokens(line)]
        named = [word for _, word in placed]
        runs = list(zip(*(named[at:] for at in range(QUOTED_WORDS)), strict=False))
        held = {at + n for at, run in enumerate(runs) if run in seen for n in range(QUOTED_WORDS)}
        new = {number for at, (number, _) in enumerate(placed) if at not in held}
        for number in {number for number, _ in placed} - new:
            lines[number] = LEFT_OUT
        seen.update(runs)
        added.append(_SEVERAL_LEFT_OUT.sub(LEFT_OUT, "\n".join(lines)))
    return added
