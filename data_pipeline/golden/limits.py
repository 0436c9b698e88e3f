"""How long the texts of a row may be, and how realistic it may call itself, whoever wrote them.

Longer texts are no questions a user asks and no facts to judge answers by: of the 73 public
questions at hand the longest has 92 characters, and the longest answer 286. Rules and
searches take time with the length, so that a few texts of megabytes would hold up a set.
"""

MAX_QUESTION_CHARS = 500
MAX_ANSWER_CHARS = 2_000


def check_realism(how_realistic: float | None) -> None:
    """Raise `ValueError` for what is no share."""
    if how_realistic is not None and not 0 <= how_realistic <= 1:
        raise ValueError("how_realistic: it is not from 0 to 1")
