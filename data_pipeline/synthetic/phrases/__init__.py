"""Phrase banks (TOML): one file a story type, and those that every mail draws from."""
