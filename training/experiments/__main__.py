"""`python -m training.experiments seeds|ablations|hack --out DIR`: the README's experiments.

Each makes the training runs that are missing in DIR, one after the other, and writes what came
out as a page of Markdown and a picture; run again after a kill it goes on. Knows nothing of
what is compared.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from art_e.errors import UserError
from art_e.text import printable
from training.experiments.ablations import run_ablations
from training.experiments.hack import run_hack
from training.experiments.seeds import run_seeds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment that `arguments` name; the exit code."""
    chosen = _parser().parse_args(arguments)
    out, recipe, changes = chosen.out, chosen.recipe, chosen.set
    try:
        out.mkdir(parents=True, exist_ok=True)
        if chosen.experiment == "seeds":
            page = run_seeds(out, recipe, chosen.seeds, changes)
        elif chosen.experiment == "ablations":
            page = run_ablations(out, recipe, chosen.seeds, changes, chosen.start)
        else:
            page = run_hack(out, recipe, chosen.seed, changes, chosen.start, chosen.lists)
    except (UserError, OSError) as error:
        sys.stderr.write(f"Error: {printable(str(error))}\n")
        return 2
    sys.stdout.write(page)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.experiments", description=__doc__)
    kinds = parser.add_subparsers(dest="experiment", required=True)
    seeds = kinds.add_parser("seeds", help="what training gains, over seeds")
    ablations = kinds.add_parser("ablations", help="the reward with a part left out")
    hack = kinds.add_parser("hack", help="a reward hack replayed, and closed")
    for each in (seeds, ablations, hack):
        each.add_argument("--out", type=Path, required=True, metavar="DIR")
        each.add_argument("--recipe", default="nano", metavar="NAME|FILE")
        each.add_argument(
            "--set", action="append", default=[], metavar="TABLE.FIELD=VALUE", help="for all runs"
        )
    seeds.add_argument("--seeds", type=_numbers, default=[0, 1, 2], metavar="0,1,2")
    ablations.add_argument("--seeds", type=_numbers, default=[0], metavar="0,1,2")
    hack.add_argument("--seed", type=int, default=0)
    hack.add_argument("--lists", type=float, default=0.05, help="share of the expert's episodes")
    for each in (ablations, hack):
        each.add_argument("--start", type=Path, metavar="DIR", help="a run of sft to begin from")
    return parser


def _numbers(text: str) -> list[int]:
    found = [int(each) for each in text.split(",")]
    if len(set(found)) < len(found) or min(found) < 0:
        raise ValueError(text)
    return found


if __name__ == "__main__":
    sys.exit(main())
