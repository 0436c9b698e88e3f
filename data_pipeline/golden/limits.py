"""How long the texts of a row may be, whoever wrote them.

Longer ones are no questions a user asks and no facts to judge answers by: of the 73 public
questions at hand the longest has 92 characters, and the longest answer 286. Rules and
searches take time with the length, so that a few texts of megabytes would hold up a set.
"""

MAX_QUESTION_CHARS = 500
MAX_ANSWER_CHARS = 2_000
