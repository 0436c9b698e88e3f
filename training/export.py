"""A checkpoint as others load it: weights, tokenizer, card and recipe, and nothing else.

    art-e train export RUN --to shared

Files leave by a list of those that may; optimizers, states of the trainer and episodes have no
place on it. Settings lose the paths of this machine, and a path that is left in a file is an
error. Knows nothing of the hub.
"""

import json
import re
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.policies.checkpoint import ADAPTER_CONFIG, CONFIG
from art_e.public import is_hub_id, public_name, public_settings
from data_pipeline.contents import Addresses, Contents
from data_pipeline.export_folder import replacing
from training.card import CARD, Copy, card
from training.checkpoints import (
    ADAPTER_WEIGHTS,
    CHECKPOINTS,
    METRICS,
    TOKENIZER_FILES,
    base_of,
    content_of,
    meant_checkpoint,
    no_checkpoint,
)
from training.forms import RECIPE, named_recipe
from training.recipe import Recipe
from training.tables import Vllm

SCHEMA = "art-e/model/1"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SHARDS = "model-?????-of-?????.safetensors"
_GENERATION = "generation_config.json"
# What may leave, as patterns; on the hub a new version takes the place of all of these.
FILES = (
    ADAPTER_CONFIG, ADAPTER_WEIGHTS, CONFIG, _GENERATION, _WEIGHTS, _INDEX, _SHARDS,
    *TOKENIZER_FILES, RECIPE, CARD,
)  # fmt: skip
# Settings of a model; what they say of where it was loaded from is left out.
_SETTINGS = (ADAPTER_CONFIG, CONFIG, _GENERATION, "tokenizer_config.json")
_ORIGIN = ("_name_or_path", "name_or_path")
# Too long to be looked through, and of words or numbers alone.
_VOCABULARY = frozenset({"tokenizer.json", "vocab.json", "merges.txt"})
# What stands before a mark in the card that is to be no markup.
_ESCAPE = re.compile(r"\\(?=[^\w\s])")
# A shorter path, such as "/", stands in innocent text.
_LEAST_PATH_CHARS = 5


class Source(NamedTuple):
    """What is exported: a checkpoint, and the run that made it; `adapter_to` as in `Copy`."""

    checkpoint: Path
    run: Path
    adapter_to: str | None


def find_source(named: Path, run: Path | None = None, base_id: str | None = None) -> Source:
    """The checkpoint that `named` means, a run's best one or itself, and its run.

    `run` is the run of a checkpoint that does not lie in its folder, `base_id` the hub id of
    the model under an adapter. Raises `UserError` where one of them is missing: an adapter
    must not leave with a path of this machine in place of its model.
    """
    checkpoint = meant_checkpoint(named)
    base = base_of(checkpoint)
    if base is None and not (checkpoint / CONFIG).is_file():
        raise no_checkpoint(checkpoint)
    return Source(checkpoint, _run_of(checkpoint, run), _hub_base(named, base, base_id))


def export(source: Source, to: Path) -> Contents:
    """Write the checkpoint to the folder `to`; what is in it.

    An earlier export there is replaced, whole or not at all. Raises `UserError` where a file
    names a path of this machine, or the folder holds something else or can't be written.
    """
    config = content_of(source.run / "config.json")
    recipe = public_recipe(named_recipe(str(source.run)))
    kind, seed = str(config.get("kind")), int(config.get("seed") or 0)
    metrics_file = source.run / METRICS
    metrics = content_of(metrics_file) if metrics_file.is_file() else {}
    best = metrics.get("best_checkpoint") == f"{CHECKPOINTS}/{source.checkpoint.name}"
    copy = Copy(source.checkpoint.name, best, source.adapter_to)
    facts = {
        "schema": SCHEMA,
        "made_by": f"art-e {metadata.version('art-e')}",
        "kind": kind,
        "seed": seed,
        "checkpoint": copy.checkpoint,
        "adapter_to": copy.adapter_to,
        "recipe": recipe.to_row(),
    }
    text = card(
        recipe=recipe,
        kind=kind,
        seed=seed,
        metrics=metrics,
        baseline=config.get("baseline"),
        copy=copy,
    )
    with replacing(to, RECIPE, SCHEMA, _is_file) as folder:
        for file in _files(source.checkpoint):
            if file.name in _SETTINGS:
                _write_json(folder / file.name, _settings(file, source.adapter_to))
            else:
                shutil.copyfile(file, folder / file.name)
        _write_json(folder / RECIPE, facts)
        (folder / CARD).write_text(text, "utf-8")
        _check_paths(folder, source)
        return _contents(folder, recipe, copy, bool(metrics.get("alarms")))


def public_recipe(recipe: Recipe) -> Recipe:
    """The recipe without the paths and addresses of this machine; it can be read like the first.

    The system prompt stays as it is: it is part of what was trained.
    """
    row = recipe.to_row()
    public: dict[str, Any] = public_settings(row)
    public["episode"]["prompt"] = row["episode"]["prompt"]
    for table, field in (("model", "base"), ("data", "questions"), ("data", "db")):
        if row[table].get(field) is not None:
            public[table][field] = public_name(row[table][field])
    if row["sft"]:
        public["sft"]["trajectories"] = [public_name(each) for each in row["sft"]["trajectories"]]
    if row["grpo"] and row["grpo"].get("vllm"):
        public["grpo"]["vllm"]["server"] = Vllm.model_fields["server"].default
    return Recipe.model_validate(public)


def _run_of(checkpoint: Path, run: Path | None) -> Path:
    """The run's folder: that of `run`, or the one in which the checkpoint lies."""
    folder = checkpoint.resolve().parent.parent if run is None else run
    config = folder / "config.json"
    if config.is_file() and isinstance(content_of(config).get("recipe"), dict):
        return folder
    if run is not None:
        raise UserError(f"{run} is no training run: its config.json has no recipe; name another")
    raise UserError(
        f"{checkpoint} lies in no training run's folder: name the run that made it with --run DIR,"
        " for the card and the recipe"
    )


def _hub_base(named: Path, base: str | None, base_id: str | None) -> str | None:
    """The hub id of the model that an adapter stands on; None where there is no adapter."""
    if base is None:
        if base_id is not None:
            raise UserError(f"{named} is whole and stands on no other model; leave out --base-id")
        return None
    hub_id = public_name(base) if base_id is None else base_id
    if is_hub_id(hub_id):
        return hub_id
    if base_id is not None:
        raise UserError(f"--base-id {base_id} is no id of the hub; write it as OWNER/NAME")
    raise UserError(
        f"{named} is an adapter to {base}, a folder of this machine: name that model's id on the"
        f" hub with --base-id OWNER/NAME, or fold it in first: art-e train merge {named} --out DIR"
    )


def _is_file(name: str) -> bool:
    return any(Path(name).match(each) for each in FILES)


def _files(checkpoint: Path) -> Iterator[Path]:
    """The checkpoint's files that leave, weights among them. Raises `UserError` where it has
    none."""
    is_adapter = (checkpoint / ADAPTER_CONFIG).is_file()
    weights = [ADAPTER_WEIGHTS] if is_adapter else [_WEIGHTS, _SHARDS]
    found = [each for pattern in weights for each in sorted(checkpoint.glob(pattern))]
    if not found:
        raise UserError(
            f"{checkpoint} has no {weights[0]}; save it as safetensors, or name another checkpoint"
        )
    yield from found
    settings = (ADAPTER_CONFIG,) if is_adapter else (CONFIG, _GENERATION, _INDEX)
    for name in (*settings, *TOKENIZER_FILES):
        if (checkpoint / name).is_file():
            yield checkpoint / name


def _settings(file: Path, adapter_to: str | None) -> dict[str, Any]:
    content = content_of(file)
    kept = {name: value for name, value in content.items() if name not in _ORIGIN}
    if file.name == ADAPTER_CONFIG:
        kept = public_settings({**kept, "base_model_name_or_path": adapter_to})
    return kept


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(f"{json.dumps(content, indent=2, ensure_ascii=False)}\n", "utf-8")


def _check_paths(folder: Path, source: Source) -> None:
    """Raise `UserError` where a file says where on this machine something lies."""
    from safetensors import safe_open

    here = {Path.home(), source.run.resolve(), source.run.resolve().parent, Path.cwd()}
    paths = {str(each) for each in here if len(str(each)) >= _LEAST_PATH_CHARS}
    for file in sorted(folder.iterdir()):
        if file.name in _VOCABULARY:
            continue
        if file.suffix == ".safetensors":
            with safe_open(file, framework="numpy") as weights:
                text = str(weights.metadata())
        else:
            text = file.read_text("utf-8", "replace")
        for path in paths:
            if f"{path}/" in text or f'{path}"' in text:
                raise UserError(
                    f"{file.name} of {source.checkpoint} names a path of this machine, {path}; take"
                    " it out of the file, and export again"
                )


def _contents(folder: Path, recipe: Recipe, copy: Copy, alarmed: bool) -> Contents:
    addresses = Addresses()
    for file in folder.iterdir():
        if file.name not in _VOCABULARY and file.suffix != ".safetensors":
            text = file.read_text("utf-8", "replace")
            addresses.add(_ESCAPE.sub("", text) if file.name == CARD else text)
    if copy.adapter_to is None:
        notes = [f"whole weights, of {copy.checkpoint}"]
    else:
        notes = [f"the weights of an adapter to {copy.adapter_to}, of {copy.checkpoint}"]
    if recipe.data.worlds is not None:
        notes.append("they have learnt from made-up mail")
    else:
        notes.append(
            f"they have learnt from the mail of the golden set {recipe.data.questions or 'at home'}"
            " and may have kept some of it"
        )
        if recipe.model.scratch is not None:
            notes.append("the tokenizer's words are of that mail")
    if alarmed:
        notes.append("the card tells the alarms of training, which may quote an answer")
    return Contents(addresses=len(addresses), notes=tuple(notes))
