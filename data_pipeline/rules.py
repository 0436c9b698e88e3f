"""The rules that each format is ingested under when the user asks for none.

Sources of the public data sets get the reference's filters, so that results can
be compared; a user's own mail is kept as it is. Knows nothing of how formats are read.
"""

from data_pipeline.batch import Rules
from data_pipeline.sources.detect import Format

MAX_BODY_CHARS = 5_000
MAX_RECIPIENTS = 30

_PUBLIC: tuple[Format, ...] = ("enron", "csv", "hf")


def default_rules(source_format: Format) -> Rules:
    """The rules for one format: the reference's for enron, csv and hf, none for the others."""
    if source_format in _PUBLIC:
        return Rules(max_body_chars=MAX_BODY_CHARS, max_recipients=MAX_RECIPIENTS, any_id=True)
    return Rules()
