"""The judges of training, chosen by name, and their fees.

offline, f1     no model (`evals.judges`)
anything else   a litellm name: a model, which costs fees"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from art_e.errors import UserError
from art_e.models.base import PolicyError, Usage
from art_e.models.prices import expected_cost
from art_e.storage import home
from art_e.text import cut_line, prompt_text
from art_e.trajectory import Exchange, exchanges
from evals.judges import choose_judge, needs_model
from evals.scored import Judge, Scored
from evals.structured import StructuredModel, UnparseableError
from training.recipe import Grpo, Judging, Recipe, Sft

# ---- The relative judge.

# This is RULER (OpenPipe, 2025): ranking rollouts is easier than grading one. The score is the
# reward's component `relative`, which moves an episode only within its outcome's band: it can't
# lift a wrong answer above "I don't know".

# Maximum characters of all rollouts in a call, and the least to which a text is cut.
CHARS, FEWEST_CHARS = 24_000, 160
PROMPT = prompt_text(__package__, "ranking")


class Score(BaseModel):
    """The score of one rollout, relative to the others."""

    attempt: int
    reason: str
    score: Annotated[float, Field(ge=0, le=1)]


class Scores(BaseModel):
    """A score for each rollout."""

    scores: list[Score]


class RelativeJudge(StructuredModel):
    """Asks a model to compare the rollouts of a question, one call per group."""

    async def rank(self, group: Sequence[Scored]) -> list[float] | None:
        """Return a score from 0 to 1 for each rollout; None if the call failed."""
        try:
            reply = await self.ask(PROMPT, prompt_input(group), Scores)
        except (PolicyError, UnparseableError):
            return None
        scores = {each.attempt: each.score for each in reply.scores}
        numbers = range(1, len(group) + 1)
        return [scores[each] for each in numbers] if scores.keys() == set(numbers) else None


def prompt_input(group: Sequence[Scored]) -> dict[str, Any]:
    """Return the rollouts for the prompt: shared steps once, about `CHARS` characters in all."""
    attempts = [exchanges(each.trajectory.messages) for each in group]
    columns = zip(*attempts, strict=False)
    same = itertools.takewhile(lambda steps: steps.count(steps[0]) == len(steps), columns)
    shared = sum(1 for _ in same)
    parts = [attempts[0][:shared], *(each[shared:] for each in attempts)]
    texts = sum(1 + len(exchange.calls) for part in parts for exchange in part)
    room = max(FEWEST_CHARS, CHARS // max(1, texts))
    first, *others = ([_step(each, room) for each in part] for part in parts)
    return {
        "question": group[0].question.question,
        "shared": first,
        "attempts": [{"attempt": place, "steps": steps} for place, steps in enumerate(others, 1)],
    }


def _step(exchange: Exchange, room: int) -> Mapping[str, Any]:
    def cut(value: Any) -> str:
        return cut_line(str(value), room)

    calls = [
        {"tool": call.tool, "arguments": cut(call.arguments), "result": cut(call.results)}
        for call in exchange.calls
    ]
    step = {"says": cut(exchange.says), "calls": calls, "reply": cut(exchange.replies)}
    return {name: value for name, value in step.items() if value or name == "calls"}


# ---- The judges of a recipe, and their fees.

# Tokens of a judge's two prompts about an answer (is it right? is it grounded in the mails read?),
# and of a mail. Assumed: the tokens of both replies, and the share of episodes that answer.
CORRECT_TOKENS, GROUNDED_TOKENS, MAIL_TOKENS, REPLY_TOKENS, ANSWERED = 684, 411, 622, 90, 0.75
# Tokens of a call that compares rollouts, and (assumed) of a score with its reason.
RANKING_TOKENS, SCORE_TOKENS = round((len(PROMPT) + CHARS) / 4.34), 30  # 4.34 characters a token


class Judges(NamedTuple):
    """The judges of rewards and of validations, and the one, if any, that compares rollouts."""

    reward: Judge
    validation: Judge
    relative: RelativeJudge | None = None

    @property
    def models(self) -> list[StructuredModel]:
        return [each for each in self if isinstance(each, StructuredModel)]

    def cost_usd(self) -> float:
        return sum(each.spent.cost_usd or 0.0 for each in self.models)

    def exhausted(self) -> bool:
        return any(each.exhausted for each in self.models)


def ask_again(judges: Iterable[object]) -> bool:
    """Reset judges that failed too often. Return False if one would only fail again."""
    models = [each for each in judges if isinstance(each, StructuredModel)]
    return False not in [each.try_again() for each in models]


def judges_of(
    table: Judging, limit: float | None = None, *, spent: float = 0.0, processes: int = 1
) -> Judges:
    """Return the judges of a recipe. Processes and paid judges share the budget of `limit - spent`
    USD equally. Raises `UserError` for an unusable judge or an empty budget."""
    if limit is not None and limit <= spent and spent > 0:
        fees = f"the run's judges have cost ${spent:,.2f}, and may cost ${limit:,.2f}"
        raise UserError(f"{fees}: resume with a higher --max-cost")
    names = (table.reward, table.validation)
    paid = sum(map(needs_model, names)) + (table.relative is not None)
    share = None if limit is None else (limit - spent) / processes / max(1, paid)  # USD per judge
    reward, validation = (choose_judge(name, max_cost_usd=share) for name in names)
    relative = None
    if table.relative is not None:
        cache = home() / "cache" / "rankings"
        relative = RelativeJudge(table.relative, max_cost_usd=share, cache=cache)
    return Judges(reward, validation, relative)


@dataclass(frozen=True)
class JudgeFee:
    """A judge's expected fees; `usd` is None for an unknown price."""

    judge: str
    episodes: int
    usd: float | None


def judge_fees(recipe: Recipe, mails: float) -> list[JudgeFee]:
    """Return the expected fees of judges that are models, if an episode reads `mails` mails. Both
    judges judge held-out episodes, the reward's also GRPO's, which the relative judge compares."""
    grpo, judging = recipe.grpo, recipe.judging
    held_out = sum(held_out_episodes(recipe, each) for each in (recipe.sft, grpo) if each)
    held_out *= recipe.runs
    groups = 0 if grpo is None else grpo.asked * grpo.batches * recipe.runs  # with spare ones
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
    """Return the number of episodes in all validations (at step 0, at intervals and at the end; in
    SFT also after each stage) and in the test, which is asked twice."""
    steps = {*range(stage.validate_every, stage.steps, stage.validate_every), stage.steps}
    if isinstance(stage, Sft):
        steps.update(itertools.accumulate(each.steps for each in stage.stages))
    return (1 + len(steps)) * recipe.judging.questions + 2 * recipe.judging.test_questions
