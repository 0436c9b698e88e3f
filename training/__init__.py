"""Training the agent: a warm start (SFT), then reinforcement learning (GRPO), over real episodes.

A recipe (`recipe.py`) says everything. Its questions come from a golden set or from made-up
companies (`cli.py`); training begins from a checkpoint or a new model (`start.py`). Models are
TRL's, transformers' and peft's. `docs/architecture.md` shows one step of GRPO, file by file."""
