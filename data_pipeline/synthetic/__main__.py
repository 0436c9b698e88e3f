"""Write a synthetic world as a folder of .eml files and a questions.jsonl.

python -m data_pipeline.synthetic --size 5000 --seed 0 --out DIR
"""

import argparse
import json
import sys
from pathlib import Path

from art_e.errors import UserError
from data_pipeline.synthetic.world import WorldConfig, messages, questions

_FILES_A_FOLDER = 1_000


def main() -> int:
    """Read the arguments, write the world; 2 for a user error."""
    parser = argparse.ArgumentParser(prog="python -m data_pipeline.synthetic", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--size", type=int, default=5000, help="mails, 1,000 to 500,000")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same world")
    parser.add_argument("--short", action="store_true", help="bodies of one or two sentences")
    parser.add_argument("--vocabulary", type=int, help="limit on distinct words of the world")
    parser.add_argument("--names", type=int, help="worlds of the same number share names")
    settings = vars(parser.parse_args())
    try:
        write_world(settings.pop("out"), WorldConfig(**settings))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def write_world(directory: Path, config: WorldConfig) -> None:
    """Write `mail/0000/0000001.eml` ... (1,000 a folder) and `questions.jsonl`.

    Raises UserError where `directory` holds mail already: leftovers would mix with the world.
    """
    mails = messages(config)
    if (directory / "mail").exists():
        raise UserError(f"{directory} holds mail already; remove it or choose another folder")
    for index, message in enumerate(mails):
        folder = directory / "mail" / f"{index // _FILES_A_FOLDER:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / Path(message.source).name).write_bytes(message.data)
    rows = [json.dumps(each.to_row(), ensure_ascii=False) + "\n" for each in questions(config)]
    (directory / "questions.jsonl").write_text("".join(rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
