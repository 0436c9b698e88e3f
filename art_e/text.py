"""Text that may come from anywhere: mail, models, the command line. Knows nothing of these."""


def encodable(text: str) -> str:
    """`text` with "?" for each lone surrogate, which a model's JSON may hold and UTF-8 can't."""
    return text.encode("utf-8", "replace").decode("utf-8")
