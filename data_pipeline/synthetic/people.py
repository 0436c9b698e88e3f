"""The people of a world: names, nicknames, roles and two addresses each.

People are made on demand from their number, so a world of any size holds only
those it needs. Knows nothing of mail or stories.
"""

from dataclasses import dataclass

from data_pipeline.synthetic.names import NamePools, ascii_fold
from data_pipeline.synthetic.rfc822 import mailbox

_OFFSETS = (-480, -480, -420, -360, -360, -300, -300, 0, 60, 60, 120, 330, 540)
_FREE_HOSTS = ("postbox.example", "mailhive.example", "quickmail.example", "homenet.example")


@dataclass(frozen=True, slots=True)
class Person:
    """One person. `utc_offset` is in minutes; `header` and `other_header` are encoded mailboxes."""

    number: int
    given: str
    family: str
    nick: str
    role: str
    primary: str
    header: str
    other_header: str
    utc_offset: int
    owner: bool

    @property
    def full(self) -> str:
        """Given and family name."""
        return f"{self.given} {self.family}"

    @property
    def signs(self) -> str:
        """What the person writes under a mail."""
        return self.nick if self.number % 3 else self.given


class Directory:
    """Makes person number `i`; the first `owners` are those whose inboxes are asked about."""

    def __init__(self, pools: NamePools, *, domain: str, old_domain: str, owners: int) -> None:
        self._pools = pools
        self._domain = domain
        self._old_domain = old_domain
        self._owners = owners
        self._roles = pools.wording.common.get("roles", ("Staff",))

    def person(self, number: int, *, domain: str | None = None) -> Person:
        """Person `number`; with `domain`, an outsider who writes from there."""
        given, family = self._pools.people[number]
        nick = self._pools.short_forms.get(given, given)
        folded_given, folded_family = ascii_fold(given), ascii_fold(family)
        # The number keeps private addresses apart where people share an initial.
        hosts = (self._old_domain, *_FREE_HOSTS)
        host = hosts[number % len(hosts)]
        other = f"{folded_given[0]}{folded_family}{number}@{host}"
        primary = f"{folded_given}.{folded_family}@{domain or self._domain}"
        styles = (
            f"{given} {family}",
            f"{given} {family}",
            f"{family}, {given}",
            f"{nick} {family}",
            "",
        )
        return Person(
            number=number,
            given=given,
            family=family,
            nick=nick,
            role=self._roles[number * 7 % len(self._roles)],
            primary=primary,
            header=mailbox(styles[number % 5], primary),
            other_header=mailbox(styles[(number + 1) % 4], other),
            utc_offset=_OFFSETS[number * 5 % len(_OFFSETS)],
            owner=number < self._owners,
        )
