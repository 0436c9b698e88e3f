"""A limit on what all calls of a policy may cost together.

Before a call its upper bound is reserved, after it the actual cost is settled, so
that calls made at the same time can't pass the limit together. Knows nothing of
how a call is made.
"""

import math
import threading
from fractions import Fraction

from art_e.errors import UserError
from art_e.policies.base import PolicyError
from art_e.policies.prices import Price, prices_file


class Budget:
    """What is spent and reserved of `max_cost_usd`; None: it is counted and not limited.

    Safe to use from several threads and tasks. Raises `UserError` where there is a limit
    and no price to keep it by.
    """

    def __init__(self, max_cost_usd: float | None, price: Price | None, model: str) -> None:
        if max_cost_usd is not None:
            if not (math.isfinite(max_cost_usd) and max_cost_usd >= 0):
                raise UserError(f"--max-cost {max_cost_usd} is no sum; write USD, such as 0.50")
            if price is None:
                raise UserError(
                    f"--max-cost can't be kept: the price of {model} is not known;"
                    f' add [models."{model}"] with usd_per_million_prompt and'
                    f" usd_per_million_completion to {prices_file()}"
                )
        self._price = price
        # Fractions, because sums of floats drift.
        self._limit = None if max_cost_usd is None else Fraction(max_cost_usd)
        self._spent = Fraction(0)
        self._reserved = Fraction(0)
        self._refused = False
        self._lock = threading.Lock()

    @property
    def spent(self) -> float:
        """USD settled so far. Where no price is known, what was settled at no known cost is 0."""
        return float(self._spent)

    @property
    def exhausted(self) -> bool:
        """Whether a call was refused, for it could have passed the limit."""
        return self._refused

    def reserve(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Set aside the most that a call of so many tokens can cost; the USD, to settle with.

        Raises `PolicyError` of the kind "budget" where that could pass the limit.
        """
        most = 0.0 if self._price is None else self._price.most(prompt_tokens, completion_tokens)
        with self._lock:
            if (
                self._limit is not None
                and self._spent + self._reserved + Fraction(most) > self._limit
            ):
                self._refused = True
                pending = f" and ${float(self._reserved):.4f} under way" if self._reserved else ""
                raise PolicyError(
                    "budget",
                    f"the next call could pass the limit of ${float(self._limit):.4f}"
                    f" (${self.spent:.4f} spent{pending}, up to ${most:.4f} more);"
                    " --max-cost sets it",
                )
            self._reserved += Fraction(most)
        return most

    def settle(self, reserved: float, actual: float | None) -> None:
        """Count a call that has ended at `actual` USD, or what was reserved if that is None."""
        with self._lock:
            self._reserved -= Fraction(reserved)
            self._spent += Fraction(reserved if actual is None else actual)
