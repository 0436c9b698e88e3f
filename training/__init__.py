"""Training the agent: a warm start (SFT), then reinforcement learning (GRPO), over real episodes.

A recipe says everything (`recipe.py`, `tables.py`); it asks the questions of a golden set or of
made-up companies (`material.py`) and begins from a checkpoint or a new model (`start.py`).

    sft.py    imitates conversations (`examples.py`), of a scripted agent that knows the answers
              and errs (`expert.py`), or the best that runs have stored
    grpo.py   a step: groups of episodes are rolled out (`roller.py`, `rollout.py`) by whoever
              generates (`engine.py`), judged (`judging.py`, `scoring.py`), paid (`reward.py`),
              and handed to TRL's trainer as tokens (`tokens.py`), the model's own marked

Both are trainers of TRL with the same company (`callbacks.py`): held-out questions decide which
checkpoint is kept (`validation.py`), alarms tell what goes wrong (`alarms.py`), and the run's
folder (`run.py`) is such that a run killed at any moment goes on with the same figures. At the
end the test is asked once (`evaluation.py`), and a card says what came of it (`card.py`).

`planning` counts what a recipe takes before it is run, `launch` has the scripts for GPUs, and
`experiments` repeats what the README tells. `export.py` and `merge.py` are for those who use a
model elsewhere. Models are TRL's, transformers' and peft's: what is here is what they have no
place for.
"""
