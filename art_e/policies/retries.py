"""When a call that failed is made again, how long is waited before, and when it is given up.

Exponential backoff with full jitter, or what the provider's Retry-After asks for.
Knows nothing of providers: whoever makes the call says with `CallError` what its
failure means.
"""

import asyncio
import datetime as dt
import email.utils
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from art_e.policies.base import PolicyError

T = TypeVar("T")


class CallError(Exception):
    """One call failed. `kind` and message are those of the `PolicyError` if it is given up.

    `again`: it may go well if made again, but not before `retry_after` seconds where the
    provider said so. `may_be_billed`: the provider may have done the work.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        again: bool,
        retry_after: float | None = None,
        may_be_billed: bool = False,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.again = again
        self.retry_after = retry_after
        self.may_be_billed = may_be_billed


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call is made at most, and how long the waits between are, in seconds."""

    tries: int = 8
    base_s: float = 0.5
    longest_s: float = 30.0
    # A provider that asks for more is asked again after this; a day's quota is not waited for.
    longest_asked_s: float = 60.0

    def wait_s(self, failed: int, asked: float | None) -> float:
        """Seconds to wait after `failed` failures, drawn anew each time."""
        if asked is not None:
            # Never earlier than asked; calls that were refused together come apart.
            return min(asked, self.longest_asked_s) + random.uniform(0, self.base_s)
        return random.uniform(0, min(self.longest_s, self.base_s * 2 ** (failed - 1)))


@dataclass(frozen=True, slots=True)
class Made(Generic[T]):
    """What a call returned at last, and how many failed before it."""

    result: T
    retries: int


async def make(call: Callable[[], Awaitable[T]], retries: Retries) -> Made[T]:
    """Make `call` until it returns. Raises `PolicyError` where it is given up."""
    failed = 0
    while True:
        try:
            return Made(await call(), failed)
        except PolicyError as error:
            raise PolicyError(error.kind, str(error), failed) from None
        except CallError as error:
            if not error.again or failed + 1 >= retries.tries:
                raise PolicyError(error.kind, str(error), failed) from None
            failed += 1
            wait = retries.wait_s(failed, error.retry_after)
        await asyncio.sleep(wait)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The seconds that a Retry-After header asks for, given as a number or a date.

    None where it is missing or neither; never below 0. Names in `headers` are lower case.
    """
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value)) if math.isfinite(float(value)) else None
    except ValueError:
        pass
    try:
        date = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=dt.UTC)
    return max(0.0, (date - dt.datetime.now(dt.UTC)).total_seconds())
