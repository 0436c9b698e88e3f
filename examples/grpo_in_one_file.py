"""GRPO in one file, to be read from top to bottom: nano's training in plain torch.

    art-e train sft --recipe nano --out start
    python examples/grpo_in_one_file.py start --out trained
    art-e ask -m local:trained --recipe start --db INBOX "QUESTION"

`art-e train grpo --recipe nano --init start` does the same with TRL; a test compares the first
steps of both. Inbox, episode, judge and reward are the project's own. What else a long run needs
is left out: resuming, validations, alarms, several GPUs, vLLM (see `training/grpo.py`).

A batch has G questions, and the model plays N episodes of each with its current weights. An episode
earns a reward R. Its advantage compares it with the other episodes of its question:

    A = (R - mean of the question's N rewards) / (std of all G N rewards + 1e-4)

If A > 0, the tokens that the model wrote in the episode become likelier, otherwise less likely.
What the tools returned is context and carries no loss. A batch serves several optimizer steps, so
from the second one on, the weights differ from those that played the episodes. Let the importance
ratio r be a token's probability now, divided by its probability when it was sampled. A step on T
sampled tokens minimizes (DAPO, Yu et al., arXiv:2503.14476)

    L = -1/T sum over these tokens of min(min(r, 3) A, clip(r, 0.8, 1.2) A)

The clip removes the gradient of tokens that have moved far enough in the direction of A. For A < 0
it sets no upper bound on r; the 3 does ("dual clip", Ye et al., arXiv:1912.09729)."""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from peft import get_peft_model
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence
from torch.optim import AdamW
from transformers import get_cosine_schedule_with_warmup

from art_e.agent import episode_record
from art_e.episode import Episode, EpisodeForm
from art_e.models.tool_formats import parse_reply
from evals.judges import choose_judge
from evals.scored import Scored, judge_episode
from training.cli import load_material
from training.optimizer import BETAS, FLAT
from training.recipe import Recipe, load_recipe
from training.reward import RewardWeights
from training.roller import rewarded
from training.rollout import Material, Transcript, in_groups, in_passes
from training.start import Start, adapter_config, load_start

CLIP = 0.2  # of r, on either side of 1
RATIO_CAP = 3.0  # upper bound of r, needed if A < 0
EPSILON = 1e-4  # keeps A finite if all rewards are equal


class Batch(NamedTuple):
    """Episodes as tensors of [episodes, tokens], padded on the right; `advantages`: [episodes]."""

    ids: Tensor
    mask: Tensor  # 0 for padding
    own: Tensor  # True for tokens that the model wrote
    old: Tensor  # log-probabilities by the model that sampled them
    advantages: Tensor

    def rows(self, places: Tensor) -> "Batch":
        return Batch(*(values[places] for values in self))


# ---- 1. Play: the model and the tools take turns, for all episodes at once.


def play(
    start: Start, form: EpisodeForm, episodes: Sequence[Episode], *, greedy: bool = False
) -> list[Transcript]:
    """Play all episodes to their ends. Return their tokens, with those of the model marked."""
    tokens = start.tokens
    transcripts = [tokens.begin(episode.messages) for episode in episodes]
    going = list(zip(episodes, transcripts, strict=True))
    while going:
        prompts = [transcript.ids for _, transcript in going]
        turns = generate(start, prompts, form.turn_tokens, greedy=greedy)
        for (episode, transcript), turn in zip(going, turns, strict=True):
            transcript.add(turn, sampled=True)
            # The episode carries out the calls of the turn: a search, a read, or the final answer.
            message = parse_reply(tokens.text_of(turn), episode.rubric.turns)
            results = episode.step(message)
            if not episode.done:
                cut = turn[-1] != tokens.end_id
                context = tokens.between(results, cut=cut)
                if len(transcript.ids) + len(context) + form.turn_tokens > form.episode_tokens:
                    episode.cut_off()  # no room for another turn
                else:
                    transcript.add(context, sampled=False)
        going = [pair for pair in going if not pair[0].done]
    return transcripts


@torch.no_grad()
def generate(
    start: Start, prompts: Sequence[list[int]], limit: int, *, greedy: bool
) -> list[list[int]]:
    """Sample a turn of at most `limit` tokens for each prompt, with the end token if reached."""
    rows = [torch.tensor(prompt) for prompt in prompts]
    ids = pad_sequence(rows, True, start.pad_id, "left")  # [prompts, longest], ends aligned
    mask = pad_sequence([torch.ones_like(row) for row in rows], True, 0, "left")
    model: Any = start.model.eval()
    whole = model.generate(  # [prompts, longest + new tokens]
        input_ids=ids, attention_mask=mask, max_new_tokens=limit, do_sample=not greedy,
        **({} if greedy else {"temperature": 1.0, "top_k": 0, "top_p": 1.0}),
    )  # fmt: skip
    model.train()
    turns = whole[:, ids.size(1) :].tolist()
    return [turn[: [*turn, start.end_id].index(start.end_id) + 1] for turn in turns]


# ---- 2. Reward: a judge compares answers with the gold ones; the reward weighs its verdicts.


async def judge_all(episodes: Sequence[Episode], name: str) -> list[Scored]:
    """Return the episodes' records with the verdicts of the judge of that name."""
    judge = choose_judge(name)
    return [
        await judge_episode(
            Scored(episode.question, episode_record(episode, "one-file", "nano", {})),
            [judge], episode.tools.inbox,
        )
        for episode in episodes
    ]  # fmt: skip


def rewards_of(
    episodes: Sequence[Episode], records: Sequence[Scored], weights: RewardWeights
) -> Tensor:
    """Return the episodes' rewards: a right answer earns most, then "I don't know", then a wrong
    answer; needless turns and malformed calls cost."""
    rewards = []
    for episode, record in zip(episodes, records, strict=True):
        reward = rewarded(weights, record, episode.rubric).trajectory.reward
        assert reward is not None, "this file's judges don't fail; training/roller.py has the rest"
        rewards.append(reward["total"])
    return torch.tensor(rewards)  # [episodes]


def groups_with_spread(rewards: Tensor, group: int, count: int) -> Tensor:
    """Return the places of the episodes in the first `count` groups whose rewards differ, filled up
    with other groups: if all rollouts of a question earn the same, A = 0 and nothing is learned."""
    of_questions = rewards.view(-1, group)  # [questions, rollouts]
    flat = of_questions.amax(1) - of_questions.amin(1) < FLAT  # [questions]
    places = torch.arange(len(rewards)).view(-1, group)
    return places[flat.int().argsort(stable=True)[:count].sort().values].flatten()  # flat ones last


def advantages_of(rewards: Tensor, group: int) -> Tensor:
    """Return A of each episode; `group` consecutive ones are about the same question."""
    of_questions = rewards.view(-1, group)  # [questions, rollouts]
    above_mean = of_questions - of_questions.mean(1, keepdim=True)
    return above_mean.flatten() / (rewards.std() + EPSILON)  # std over all groups, with n - 1


# ---- 3. Learn: tokens of good episodes become likelier, within the clip.


def log_probabilities(model: Any, batch: Batch) -> Tensor:
    """Return the log-probability of each token given those before it: [episodes, tokens]."""
    logits = model(input_ids=batch.ids, attention_mask=batch.mask).logits
    # Logits [episodes, tokens, vocabulary] at place t predict token t + 1, so the first has none.
    of_next = -cross_entropy(logits[:, :-1].transpose(1, 2), batch.ids[:, 1:], reduction="none")
    return torch.cat([torch.zeros_like(of_next[:, :1]), of_next], 1)  # the first token's is 0


def loss_of(model: Any, batch: Batch) -> Tensor:
    """Return the sum of the losses of the batch's own tokens."""
    ratio = (log_probabilities(model, batch) - batch.old).exp()  # r: [episodes, tokens]
    advantage = batch.advantages[:, None]  # [episodes, 1]: all tokens of an episode share A
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP) * advantage
    return -(torch.min(ratio.clamp(max=RATIO_CAP) * advantage, clipped) * batch.own).sum()


def batch_of(model: Any, transcripts: Sequence[Transcript], advantages: Tensor, size: int) -> Batch:
    """Return the transcripts as a batch, with the log-probabilities of the model that sampled them,
    computed for `size` episodes at a time."""
    whole = [torch.tensor(each.ids) for each in transcripts]
    own = [torch.tensor([False] * len(each.prompt_ids) + each.sampled) for each in transcripts]
    ids = pad_sequence(whole, True)
    mask = pad_sequence([torch.ones_like(row) for row in whole], True)
    batch = Batch(ids, mask, pad_sequence(own, True), torch.zeros(ids.shape), advantages)
    places = torch.split(torch.arange(len(ids)), size)
    with torch.no_grad():
        scores = [log_probabilities(model, batch.rows(part)) for part in places]
    return batch._replace(old=torch.cat(scores))


# ---- The loop.


def train(
    start: Start, recipe: Recipe, material: Material, seed: int
) -> Iterator[dict[str, float]]:
    """Train the start's model. Yield the figures of each optimizer step."""
    table = recipe.grpo
    assert table is not None
    model: Any = start.model
    optimizer = AdamW(model.parameters(), table.rate, BETAS, weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, table.warmup, table.steps)
    questions = in_passes(material.questions, table.batches * table.asked, f"{seed}/grpo")
    for number, asked in enumerate(in_groups(questions, table.asked)):
        torch.manual_seed(seed + number)
        episodes = [
            material.episode(question, recipe.episode)
            for question in asked for _ in range(table.rollouts)
        ]  # fmt: skip
        transcripts = play(start, recipe.episode, episodes)
        records = asyncio.run(judge_all(episodes, recipe.judging.reward))
        rewards = rewards_of(episodes, records, recipe.reward)
        chosen = groups_with_spread(rewards, table.rollouts, table.questions)
        advantages = advantages_of(rewards[chosen], table.rollouts)  # A: [questions * rollouts]
        kept = [transcripts[place] for place in chosen]
        batch = batch_of(model, kept, advantages, table.micro_batch)
        own_tokens = batch.own.sum() / table.minibatches  # T, as the mean of the batch's steps
        for places in torch.randperm(len(kept)).chunk(table.minibatches):
            loss = 0.0
            # Accumulate gradients over passes of `micro_batch` episodes, which fit into memory.
            for part in torch.split(places, table.micro_batch):
                part_loss = loss_of(model, batch.rows(part)) / own_tokens
                torch.autograd.backward(part_loss)
                loss += part_loss.item()
            norm = clip_grad_norm_(model.parameters(), table.max_grad_norm)  # before clipping
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            yield {
                "loss": loss, "grad_norm": norm.item(), "reward": rewards.mean().item(),
                "right": fmean(record.correct for record in records),
                "turns": fmean(episode.rubric.turns for episode in episodes),
            }  # fmt: skip


def share_right(start: Start, recipe: Recipe, material: Material) -> float:
    """Return the share of held-out questions that are answered right, greedily."""
    questions = material.held_out(recipe.judging.questions)
    episodes = [material.episode(question, recipe.episode) for question in questions]
    play(start, recipe.episode, episodes, greedy=True)
    records = asyncio.run(judge_all(episodes, recipe.judging.validation))
    return fmean(record.correct for record in records)


def main() -> None:
    """Train on nano's training questions, and ask held-out ones before and after."""
    parser = argparse.ArgumentParser(description="GRPO in one file, on the recipe nano.")
    parser.add_argument("start", help="the run of art-e train sft")
    parser.add_argument("--out", type=Path, required=True, help="folder of the trained checkpoint")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    recipe = load_recipe("nano")
    start = load_start(options.start, recipe.model)
    if adapter := adapter_config(recipe.model, start):
        model: Any = start.model
        start = start._replace(model=get_peft_model(model, adapter))
    held_out = load_material(recipe.data, "validation")
    print(f"before: {share_right(start, recipe, held_out):.1%} of the held-out questions right")
    steps = train(start, recipe, load_material(recipe.data, "train"), options.seed)
    for number, figures in enumerate(steps, 1):
        print(f"step {number}:", *(f"{name} {value:.3f}" for name, value in figures.items()))
    print(f"after: {share_right(start, recipe, held_out):.1%} of the held-out questions right")
    start.model.save_pretrained(options.out)
    start.tokenizer.save_pretrained(options.out)


if __name__ == "__main__":
    main()
