"""When a call is made again: how often, after what wait, and what is told where it is given up."""

import asyncio
import datetime as dt
import email.utils

import pytest

from art_e.models.base import PolicyError
from art_e.models.hosted import ProviderError, Retries, make, retry_after_s

QUICK = Retries(tries=4, base_s=0.001)


class Call:
    """Fails with the errors of its script in order, then returns "done"."""

    def __init__(self, *script: Exception) -> None:
        self._script = list(script)
        self.made = 0

    async def __call__(self) -> str:
        self.made += 1
        if self._script:
            raise self._script.pop(0)
        return "done"


def passing(kind: str = "provider", retry_after: float | None = None) -> ProviderError:
    return ProviderError(kind, f"{kind} failed", again=True, retry_after=retry_after)


def test_the_wait_that_is_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def record(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("art_e.models.hosted.asyncio.sleep", record)
    asyncio.run(make(Call(passing(retry_after=7.0), passing()), QUICK))
    assert 7.0 <= waits[0] <= 7.0 + QUICK.base_s
    assert waits[1] <= 2 * QUICK.base_s


def test_after_the_last_try_it_is_given_up_with_its_last_failure() -> None:
    call = Call(passing("timeout"), passing("timeout"), passing("timeout"), passing("rate-limit"))
    with pytest.raises(PolicyError) as error:
        asyncio.run(make(call, QUICK))
    assert (error.value.kind, str(error.value)) == ("rate-limit", "rate-limit failed")
    assert error.value.retries == 3
    assert call.made == 4


def test_what_can_not_pass_is_not_tried_again() -> None:
    call = Call(passing(), ProviderError("auth", "no key", again=False))
    with pytest.raises(PolicyError) as error:
        asyncio.run(make(call, QUICK))
    assert (error.value.kind, error.value.retries, call.made) == ("auth", 1, 2)


def test_waits_double_with_full_jitter_up_to_the_longest() -> None:
    retries = Retries(base_s=1.0, longest_s=6.0)
    for failed, most in [(1, 1.0), (2, 2.0), (3, 4.0), (4, 6.0), (9, 6.0)]:
        waits = [retries.wait_s(failed, None) for _ in range(300)]
        assert min(waits) >= 0
        assert max(waits) <= most
        # Spread over the whole of it: calls that failed together do not come back together.
        assert min(waits) < 0.2 * most
        assert max(waits) > 0.8 * most


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 0.25 ", 0.25),
        ("-3", 0.0),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("Sat, 32 Foo 2026 00:00:00 GMT", None),
        ("Sat, 21 Nov 2020 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after(value: str, seconds: float | None) -> None:
    assert retry_after_s({"retry-after": value}) == seconds


@pytest.mark.parametrize("zone", ["GMT", "-0000", "+0100"])
def test_retry_after_a_date(zone: str) -> None:
    at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=90)
    shown = at.astimezone(dt.timezone(dt.timedelta(hours=1))) if zone == "+0100" else at
    value = email.utils.format_datetime(shown).rsplit(" ", 1)[0] + f" {zone}"
    assert 85 < (retry_after_s({"retry-after": value}) or 0) <= 90
