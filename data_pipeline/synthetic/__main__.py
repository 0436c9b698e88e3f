"""Write a synthetic world as a folder of .eml files and a questions.jsonl.

python -m data_pipeline.synthetic --size 5000 --seed 0 --out DIR
"""

import argparse
import sys
from pathlib import Path

from art_e.errors import UserError
from data_pipeline.synthetic.world import WorldConfig, write_world


def main() -> int:
    """Read the arguments, write the world; 2 for a user error."""
    parser = argparse.ArgumentParser(prog="python -m data_pipeline.synthetic", description=__doc__)
    parser.add_argument("--size", type=int, default=5000, help="mails, 1,000 to 500,000")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same world")
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--short", action="store_true", help="bodies of one or two sentences")
    parser.add_argument("--vocabulary", type=int, help="bound on distinct words of the world")
    parser.add_argument("--names", type=int, help="worlds of the same number share names")
    given = parser.parse_args()
    config = WorldConfig(given.size, given.seed, given.short, given.vocabulary, given.names)
    try:
        write_world(config, given.out)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
