"""The judges of training by their names, what they cost, and signs of reward hacking.

offline, f1     no model (`evals.judges`)
anything else   a litellm name: a model, which costs fees
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from art_e.errors import UserError
from art_e.models.base import Usage
from art_e.models.prices import expected_cost
from art_e.models.structured import StructuredModel
from art_e.privacy import load_env
from art_e.storage import home
from evals.hacking import detect
from evals.judges import choose_judge, needs_model
from evals.scored import Scored
from training.progress import TrainingAlarm
from training.ranking import CHARS, PROMPT, RelativeJudge
from training.recipe import Grpo, Judging, Recipe, Sft
from training.run import Judges

# Tokens of a judge's two calls about an answer: whether it is right, and whether it is grounded in
# the mails read. Assumed: both replies, and the share of episodes that give an answer (abstentions
# cost no call).
CORRECT_TOKENS, GROUNDED_TOKENS, MAIL_TOKENS, REPLY_TOKENS, ANSWERED = 684, 411, 622, 90, 0.75
# Of a call that compares rollouts, and of its score for each, with its reason (assumed).
RANKING_TOKENS, SCORE_TOKENS = round((len(PROMPT) + CHARS) / 4.34), 30


def judges_of(
    table: Judging, limit: float | None = None, *, spent: float = 0.0, processes: int = 1
) -> Judges:
    """Return the judges of a recipe. `limit` caps their fees in the run, in USD; the processes and
    the paid judges share what is left of it after `spent`. Raises `UserError` for a judge that
    can't be used, and if nothing is left."""
    if limit is not None and limit <= spent and spent > 0:
        raise UserError(
            f"the run's judges have cost ${spent:,.2f}, and may cost ${limit:,.2f}: resume with a"
            " higher --max-cost"
        )
    names = (table.reward, table.validation)
    paid = sum(map(needs_model, names)) + (table.relative is not None)
    share = None if limit is None else (limit - spent) / processes / max(1, paid)
    reward, validation = (choose_judge(name, max_cost_usd=share) for name in names)
    relative = None
    if table.relative is not None:
        load_env()
        cache = home() / "cache" / "rankings"
        relative = RelativeJudge(table.relative, max_cost_usd=share, cache=cache)
    models = [each for each in (reward, validation, relative) if isinstance(each, StructuredModel)]

    return Judges(
        reward,
        validation,
        lambda: sum(each.spent.cost_usd or 0.0 for each in models),
        lambda: any(each.exhausted for each in models),
        hacking_alarms,
        relative.rank if relative else None,
    )


@dataclass(frozen=True)
class JudgeFee:
    """What a judge is expected to cost for its verdicts; `usd` is None for an unknown price."""

    judge: str
    episodes: int
    usd: float | None


def judge_fees(recipe: Recipe, mails: float) -> list[JudgeFee]:
    """Return what the judges that are models will cost if an episode reads so many `mails`: both
    judge validations and test, the reward's also all episodes of GRPO, whose groups the relative
    one compares."""
    grpo, judging = recipe.grpo, recipe.judging
    held_out = sum(held_out_episodes(recipe, each) for each in (recipe.sft, grpo) if each)
    groups = 0 if grpo is None else grpo.questions * grpo.batches
    trained = 0 if grpo is None else groups * grpo.rollouts
    prompts = CORRECT_TOKENS + GROUNDED_TOKENS + round(mails * MAIL_TOKENS)
    verdict = Usage(prompt_tokens=prompts, completion_tokens=REPLY_TOKENS)
    judges = [
        (judging.reward, trained + held_out, verdict, round((trained + held_out) * ANSWERED)),
        (judging.validation, held_out, verdict, round(held_out * ANSWERED)),
    ]
    if grpo is not None and judging.relative is not None:
        ranking = Usage(RANKING_TOKENS, completion_tokens=SCORE_TOKENS * grpo.rollouts)
        judges.append((judging.relative, trained, ranking, groups))
    return [
        JudgeFee(judge, episodes, expected_cost(judge, [usage], calls))
        for judge, episodes, usage, calls in judges
        if needs_model(judge)
    ]


def held_out_episodes(recipe: Recipe, stage: Sft | Grpo) -> int:
    """Return the number of episodes of all validations (before the first step, at intervals and at
    the end, in SFT at the end of each stage) and of the test, which is asked twice."""
    steps = {*range(stage.validate_every, stage.steps, stage.validate_every), stage.steps}
    if isinstance(stage, Sft):
        steps.update(accumulate(each.steps for each in stage.stages))
    return (1 + len(steps)) * recipe.judging.questions + 2 * recipe.judging.test_questions


def hacking_alarms(scored: Sequence[Scored]) -> list[TrainingAlarm]:
    """Return the alarms of `evals.hacking` on all episodes so far, one kind for each detector. It
    takes seconds: call it at validations, not at steps."""
    return [
        TrainingAlarm(
            f"hacking: {each.detector}",
            f"{each.message}; look at its episodes with art-e runs show RUN --episode ID"
            + (f" (such as {each.episodes[0]})" if each.episodes else "")
            + "; if the answers are not honest, fix what judging.reward accepts",
        )
        for each in detect(scored)
    ]
