"""Policies, which choose the next message: a model, or the offline baseline."""
