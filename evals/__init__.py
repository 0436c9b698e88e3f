"""Judging answers, measuring models, reporting."""
