"""Makes of a training run a small adapter: that which ART-E comes with, `art_e/models/smol`.

    python -m tests.ship_smol RUN

The matrices are rounded to bfloat16, which halves the file. Paths of the machine that trained it
are taken out: of the recipe only what an episode depends on is used later. The card is the run's,
with the hash of the file.
"""

import argparse
import hashlib
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from art_e.models.checkpoint import ADAPTER_CONFIG, TOKENIZER, meant_checkpoint
from art_e.models.smol import ADAPTER, BASE, RECIPE, TEMPLATE, WEIGHTS
from training.export import CARD
from training.recipe import load_recipe

MOST_BYTES = 10_000_000


def main() -> None:
    """Write the folder and print what is in it."""
    parser = argparse.ArgumentParser(prog="python -m tests.ship_smol")
    parser.add_argument("run", type=Path, help="a training run, or a checkpoint in it")
    ship(parser.parse_args().run, ADAPTER)
    for each in sorted(ADAPTER.iterdir()):
        print(f"{each.stat().st_size:>10,} {each.name}")


def ship(run: Path, folder: Path) -> None:
    """Write the adapter of `run` to `folder`. Raises `ValueError` if it is too large."""
    checkpoint = meant_checkpoint(run)
    folder.mkdir(exist_ok=True)
    matrices = load_file(checkpoint / WEIGHTS)
    rounded = {name: each.to(torch.bfloat16).contiguous() for name, each in matrices.items()}
    save_file(rounded, folder / WEIGHTS)
    size = (folder / WEIGHTS).stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"the adapter has {size:,} bytes, and may have {MOST_BYTES:,}")
    for name in (TOKENIZER, TEMPLATE):
        shutil.copy(checkpoint / name, folder)
    config = json.loads((checkpoint / ADAPTER_CONFIG).read_text("utf-8"))
    config["base_model_name_or_path"] = BASE
    _write_json(folder / ADAPTER_CONFIG, config)
    row = json.loads((checkpoint / RECIPE).read_text("utf-8"))["recipe"]
    own = load_recipe("smol").to_row()
    for name in ("questions", "db"):
        row["data"][name] = own["data"][name]
    row["model"]["base"] = BASE
    _write_json(folder / RECIPE, {"recipe": row})
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    card = run / CARD
    text = card.read_text("utf-8").rstrip() if card.is_file() else "# smol"
    (folder / CARD).write_text(
        f"{text}\n\n`{WEIGHTS}`: {size:,} bytes, SHA-256 {digest}\n", "utf-8"
    )


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
