"""Mail as a Hugging Face data set of the shape of `corbt/enron-emails`.

A hub id, a Parquet file or a folder of Parquet files, streamed by `datasets`.
Columns: message_id, subject, from, to, cc, bcc, date, body, file_name.
"""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from data_pipeline.mail.dates import parse_date
from data_pipeline.records import MailFields
from data_pipeline.sources.files import printable, reading

_NEEDED = ("message_id", "subject", "from", "to", "date", "body")
_BATCH = 1_000


def read(path_or_id: str) -> Iterator[MailFields]:
    """The mails of a data set, all its splits. `source` is file_name, else name and row.

    Raises `UserError` where it can't be loaded or has other columns.
    """
    path = Path(path_or_id)
    batches = _local_batches(path) if path.exists() else _hub_batches(path_or_id)
    name = printable(path.name if path.exists() else path_or_id)
    count = 0
    for batch in batches:
        missing = [column for column in _NEEDED if column not in batch]
        if missing:
            raise UserError(
                f"{path_or_id} lacks the columns {', '.join(missing)}: "
                "it needs the shape of corbt/enron-emails"
            )
        for row in _rows(batch):
            count += 1
            yield _mail(row, f"{name}#{count}")
    if count == 0:
        raise UserError(f"{path_or_id} holds no mail: give a Parquet file, a folder or a hub id")


def _local_batches(path: Path) -> Iterator[Mapping[str, Sequence[Any]]]:
    from datasets import load_dataset

    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise UserError(f"{path} holds no .parquet files: give a folder that does")
    names = [str(file) for file in files]
    with reading(path):
        try:
            rows = load_dataset("parquet", data_files=names, split="train", streaming=True)
            yield from rows.iter(batch_size=_BATCH)
        except (ValueError, RuntimeError, TypeError) as error:
            raise UserError(f"{path} isn't readable Parquet: write or download it again") from error


def _hub_batches(hub_id: str) -> Iterator[Mapping[str, Sequence[Any]]]:
    from datasets import load_dataset

    try:
        splits = load_dataset(hub_id, streaming=True)
        for split in sorted(splits):
            yield from splits[split].iter(batch_size=_BATCH)
    except (OSError, ValueError, RuntimeError) as error:
        detail = " ".join(str(error).split())[:200]
        raise UserError(
            f"there is no file or folder {hub_id}, and the Hugging Face data set of that name "
            f"can't be loaded ({detail}): check the name and the network, "
            "or download its Parquet files and give their folder"
        ) from error


def _rows(batch: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    names = list(batch)
    for values in zip(*(batch[name] for name in names), strict=True):
        yield dict(zip(names, values, strict=True))


def _mail(row: Mapping[str, Any], fallback_source: str) -> MailFields:
    return MailFields(
        source=_text(row.get("file_name")) or fallback_source,
        message_id=_text(row["message_id"]),
        subject=_text(row["subject"]),
        sender=_text(row["from"]),
        to=_texts(row["to"]),
        cc=_texts(row.get("cc")),
        bcc=_texts(row.get("bcc")),
        date=_date(row["date"]),
        body=_text(row["body"]),
    )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _texts(value: object) -> list[str]:
    """A list of addresses; None and single strings occur, too."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_text(item) for item in value if item]
    return [_text(value)] if value else []


def _date(value: object) -> dt.datetime | None:
    if isinstance(value, dt.datetime):
        return value
    return parse_date(value) if isinstance(value, str) else None
