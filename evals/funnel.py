"""Where each episode ended: right, or the step at which it went wrong.

    failed                  an outside reason ended it
    lost_to_format          too many wrong calls in a row
    out_of_turns            no answer in its turns
    unjudged                the judge gave no verdict
    judges_disagree         an answer that one judge found right and another wrong
    right                   the right answer; on an unanswerable question, abstention
    made_up                 an answer to an unanswerable question
    gold_unknown            wrong or abstained, and which mail holds the answer is not known
    not_found               wrong or abstained; no search showed all the gold mail
    found_not_read          ... it was shown, and not all of it was read
    abstained_though_read   abstained, and it was all read
    read_but_wrong          the answer is wrong, and it was all read

The first that holds, in this order. Each episode is counted once. Knows nothing of intervals.
"""

from collections import Counter
from collections.abc import Iterable

from evals.scored import Scored

STEPS = (
    "right",
    "not_found",
    "found_not_read",
    "read_but_wrong",
    "judges_disagree",
    "abstained_though_read",
    "gold_unknown",
    "made_up",
    "out_of_turns",
    "lost_to_format",
    "failed",
    "unjudged",
)


def funnel(scored: Iterable[Scored]) -> dict[str, int]:
    """How many episodes ended at each step, in the order of `STEPS`, zeros too."""
    counted = Counter(map(ended_at, scored))
    return {step: counted[step] for step in STEPS}


def ended_at(scored: Scored) -> str:
    """The step at which the episode ended."""
    rubric = scored.trajectory.rubric
    judges = range(len(scored.verdicts))
    disputed = any(map(scored.correct_by, judges)) and any(map(scored.wrong_by, judges))
    holds = {
        "failed": scored.trajectory.error is not None,
        "lost_to_format": rubric["lost_to_format"],
        "out_of_turns": not scored.ended,
        "unjudged": scored.unjudged,
        "judges_disagree": disputed,
        "right": scored.correct,
        "made_up": not scored.question.answerable,
        "gold_unknown": rubric["read_gold"] is None,
        # A mail can be read without a search, by an id that another mail names.
        "not_found": not (rubric["found_gold"] or rubric["read_gold"]),
        "found_not_read": not rubric["read_gold"],
        "abstained_though_read": rubric["abstained"],
        "read_but_wrong": True,
    }
    return next(step for step in holds if holds[step])
