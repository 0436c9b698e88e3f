"""Groups an inbox's mails into threads, and recognizes the headers of quoted mail.

Mails are linked by the message ids that they name (References, In-Reply-To), by Gmail's thread id,
or else by subject: a reply or forward follows the latest mail of that subject, within `DAYS`, that
shares a person with it other than the inbox's owner. Mail outside the open inbox is not used."""

import re

from art_e.inbox.mail import Execute
from art_e.inbox.schema import statement

DAYS = 60
# One or more prefixes of replies and forwards, in the languages of mail programs.
_PREFIX = re.compile(
    r"^((re|fw|fwd|aw|wg|sv|vs|antw|doorst|tr|rif|r|i|odp|pd|res|enc|vb)"
    r"(\[\d+\]|\(\d+\))?\s*[:：]\s*)+"
)

# The names of quoted mail's headers in the languages of mail programs, by meaning.
HEADERS = {
    "by": "from|von|de|da|van|från|fra",
    "at": "sent|date|gesendet|datum|enviado|fecha|envoyé|data|inviato|verzonden|skickat|sendt|dato",
    "to": "to|cc|bcc|an|kopie|para|aan|till|til|sent by|please respond to|reply-to|importance",
    "subject": "subject|betreff|asunto|assunto|objet|oggetto|onderwerp|ämne|emne",
}
HEADER = rf"\*?({'|'.join(HEADERS.values())})\*?\s?:\*?(?!//)"
WROTE = (
    r"(?:on|am|le|el|il|op|em|den)\b.{4,120}"
    r"(?:wrote|schrieb|écrit|escribió|scritto|schreef|escreveu|skrev).{0,40}:$"
)
FRAME = re.compile(rf"[\s>]*(?:$|-{{3}}|{HEADER}|{WROTE})", re.IGNORECASE)

_MANY = 200  # with more candidates than this, `thread_candidates` gives up


def bare_subject(subject: str) -> str:
    """Return a subject in lower case without the prefixes of replies and forwards."""
    # This one letter gets longer in lower case. Callers take a shorter subject for a prefixed one.
    return _PREFIX.sub("", subject.replace("\u0130", "i").lower())


def threads_of(
    execute: Execute, ids: list[int], mails: str, parties: str, owner: str
) -> list[list[int]]:
    """Return for each of `ids`, the inbox's mails in order, the indexes of all mails of its thread.
    In SQL, `mails` is the condition of these mails, `parties` their parties, `owner` the inbox's
    addresses."""
    if not ids:
        return []
    sql = statement("links", mine=mails, last=ids[-1], parties=parties, own=owner, days=DAYS)
    place_of = {email_id: place for place, email_id in enumerate(ids)}
    first = list(range(len(ids)))  # union-find: the parent of each index, a root its own

    def root(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]  # path halving keeps the trees flat
            place = first[place]
        return place

    for email_id, other in execute(sql).fetchall():
        one, two = sorted((root(place_of[email_id]), root(place_of[other])))
        first[two] = one
    members: list[list[int]] = [[] for _ in ids]
    for place in range(len(ids)):
        members[root(place)].append(place)
    return [members[root(place)] for place in range(len(ids))]


def thread_candidates(execute: Execute, ids: list[int], last: int, mails: str) -> list[int] | None:
    """Return the mails up to `last` that may be in the threads of `ids`; None if there are many."""
    before: list[int] = []
    while len(ids) > len(before):
        before = ids
        listed = ", ".join(map(str, ids)) or "NULL"
        sql = statement("near", ids=listed, mine=mails, last=last)
        ids = [email_id for (email_id,) in execute(sql).fetchall()]
        if len(ids) > _MANY:
            return None
    return ids
