"""One door to all sources: a path and its format in, messages out."""

from collections.abc import Iterator
from pathlib import Path

from data_pipeline.records import MailFields, RawMessage
from data_pipeline.sources import eml, enron, huggingface, kaggle, maildir, mbox, synthetic
from data_pipeline.sources.detect import Format, missing


def open_source(path: str, format: Format) -> Iterator[RawMessage | MailFields]:  # noqa: A002
    """The messages of `path` (a path, a hub id, or `synthetic:...`), one at a time.

    Raises `UserError` for a path that doesn't exist at once, and for what can't
    be read when the reading gets there.
    """
    if format == "synthetic":
        return synthetic.read(path)
    if format == "hf":
        return huggingface.read(path)
    place = Path(path)
    if not place.exists():
        raise missing(path)
    readers = {
        "enron": enron.read,
        "maildir": maildir.read,
        "mbox": mbox.read,
        "eml": eml.read,
        "csv": kaggle.read,
    }
    return readers[format](place)
