"""Training the agent with GRPO."""
