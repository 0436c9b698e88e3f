"""Training the agent: a warm start (SFT), then reinforcement learning (GRPO), over real episodes.

A recipe (`recipe.py`) holds all settings. Its questions come from a golden set or from synthetic
companies (`cli.py`); training begins from a checkpoint or a new model (`start.py`). Trainers are
TRL's, models transformers', adapters peft's. `docs/architecture.md` shows one step of GRPO."""
