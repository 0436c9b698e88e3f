"""ART-E: an agent that answers questions about an inbox by searching and reading it."""

__version__ = "0.1.0"
