"""What leaves a training run: its model card, a merged model, and a checkpoint for others.

Only files on a list may leave: no optimizer, no trainer state, no episodes. Settings lose the
paths of this machine, and a path that is left in a file is an error.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import ModelCardData
from safetensors import safe_open

from art_e.errors import UserError
from art_e.models.checkpoint import (
    ADAPTER_CONFIG,
    CHECKPOINTS,
    CONFIG,
    METRICS,
    TOKENIZER,
    base_of,
    checkpoint_folder,
    json_object,
    load_checkpoint,
    load_tokenizer,
    meant_checkpoint,
    require_train_extra,
)
from art_e.publish import Own, is_hub_id, public_model, public_name, public_settings, template
from art_e.storage import write_whole
from data_pipeline.sharing import replacing
from training.recipe import (
    RECIPE,
    EpisodeForm,
    Recipe,
    Vllm,
    load_recipe,
    named_recipe,
    recipe_names,
)
from training.run import Setting

CARD = "README.md"
# What a tokenizer may be saved as; a folder has some of them.
TOKENIZER_FILES = (
    TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
)  # fmt: skip

# ---- The model card: README.md, in the form of the Hugging Face hub.

UNKNOWN = "not measured"
# The figures of a card that were measured, in order.
_LABELS = {
    "n": "questions asked",
    "correct": "handled right (right answers and right abstentions)",
    "accuracy": "accuracy (answerable questions)",
    "unanswerable_accuracy": "accuracy (unanswerable questions)",
    "hallucination": "hallucination (wrong answers, all questions)",
    "hallucination_unanswerable": "hallucination (unanswerable questions)",
    "abstention": "abstention (all questions)",
    "turns": "turns an episode",
    "effort": "effort an episode",
    "turns_when_correct": "turns, answer right",
    "effort_when_correct": "effort, answer right",
    "format_errors": "format errors an episode",
    "reward": "reward, by its own judge",
}
_BEST = re.compile(r"checkpoints/checkpoint-(\d+)", re.ASCII)
_BASELINE = ("n", "accuracy", "unanswerable_accuracy", "hallucination", "abstention", "turns")


class Copy(NamedTuple):
    """A shared checkpoint: its name in the run, whether it is the `best`, and the hub id of the
    model that its adapter needs; None for a whole model."""

    checkpoint: str
    best: bool
    adapter_to: str | None


class CardTable(NamedTuple):
    """Columns by their titles, and rows of a label with a cell for each column."""

    columns: list[str]
    rows: list[tuple[str, list[str]]]

    @property
    def intervals(self) -> bool:
        """Whether a cell has an interval."""
        return any(" to " in each for _, cells in self.rows for each in cells)


def write_card(folder: Path, setting: Setting, metrics: Mapping[str, Any]) -> None:
    """Write README.md into a run's folder."""
    write_whole(folder / CARD, card(setting, metrics))


def card(setting: Setting, metrics: Mapping[str, Any], copy: Copy | None = None) -> str:
    """The text of the card of a run, or of a checkpoint that is shared. `metrics` is the run's
    `metrics.json`; the setting's `baseline` is that of an `art-e eval run`."""
    recipe, baseline = setting.recipe, setting.baseline
    best = _BEST.fullmatch(str(metrics.get("best_checkpoint")))
    own = load_recipe(recipe.name) if recipe.name in recipe_names() else None
    adapter_to = None if copy is None else copy.adapter_to
    base = adapter_to or recipe.model.base
    is_adapter = adapter_to is not None or (copy is None and recipe.model.lora is not None)
    usual = EpisodeForm()
    seconds, usd = metrics.get("seconds"), metrics.get("cost_usd")
    models = {public_model(name): of for name, of in (baseline or {"models": {}})["models"].items()}
    text = template("training", "card.md.j2").render(
        front_matter=Own(_front_matter(setting.kind, base, is_adapter=is_adapter)),
        kind=setting.kind,
        recipe=recipe,
        seed=str(setting.seed),
        base=None if base is None else public_name(base),
        questions=None if recipe.data.questions is None else public_name(recipe.data.questions),
        recipe_option=Own(recipe.name if own is not None else "RECIPE.toml"),
        own_recipe=own is not None,
        changed=own is not None and own != recipe,
        has_best=best is not None,
        copy=copy,
        adapter_to=adapter_to and Own(adapter_to),
        recipe_file=Own("config.json" if copy is None else "recipe.json"),
        checkpoint=Own(f"RUN/{best[0] if best else 'checkpoints/CHECKPOINT'}"),
        validation=_validation(metrics.get("validation") or [], int(best[1]) if best else None),
        test=_table(metrics.get("test") or {}, list(_LABELS)),
        baseline=_table(models, _BASELINE),
        baseline_given=baseline is not None,
        hours=UNKNOWN
        if seconds is None
        else f"{seconds / 3600:.2f} hours ({seconds:,.0f} seconds)",
        tokens=_figure(metrics.get("tokens")),
        money=UNKNOWN if usd is None else f"{usd:,.2f} USD",
        alarms=metrics.get("alarms"),
        own_form=(recipe.episode.view, recipe.episode.prompt, recipe.episode.max_turns)
        != (usual.view, usual.prompt, usual.max_turns),
        unknown=UNKNOWN,
    )
    return f"{text.rstrip()}\n"


def _front_matter(kind: str, base: str | None, *, is_adapter: bool) -> str:
    """What the hub reads. No license: that of the base is not known here."""
    data = ModelCardData(
        base_model=base if base is not None and is_hub_id(base) else None,
        language="en",
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["art-e", "email", "agent", "retrieval", kind],
    )
    return str(data.to_yaml())


def _validation(rows: Sequence[Mapping[str, Any]], best: int | None) -> CardTable:
    """The first, the best and the last of the validations; `best` is the step of the best."""
    chosen = [("first", each) for each in rows[:1]]
    chosen += [("best", each) for each in rows if each["step"] == best]
    chosen += [("last", each) for each in rows[-1:]]
    titled = {f"{name} (step {row['step']:,})": row for name, row in chosen}
    return _table(titled, [name for name in _LABELS if name != "unanswerable_accuracy"])


def _table(parts: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> CardTable:
    """A row for each figure of `names` that a part has."""
    rows = [
        (_LABELS[name], [_figure(part.get(name)) for part in parts.values()])
        for name in names
        if any(name in part for part in parts.values())
    ]
    return CardTable(list(parts), rows)


def _figure(value: Any) -> str:
    """A number or an estimate as text."""
    if value is None:
        return UNKNOWN
    if isinstance(value, dict):
        shown = _figure(value["value"])
        if value["low"] is None:
            return shown
        return f"{shown} ({value['low']:.3f} to {value['high']:.3f}, n = {value['n']:,})"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


# ---- A checkpoint with an adapter, merged into a whole model.


def merge(checkpoint: Path, out: Path) -> None:
    """Write the model of `checkpoint` (or of a run's best), its adapter folded in, to the new
    folder `out`, which is there whole or not at all.

    The weights keep the number format of the base model, and the tokenizer is the checkpoint's
    own, or the base model's. Raises `UserError` if there is nothing to merge, or no room at `out`.
    """
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise UserError(f"{out} is there already; name a new folder with --out")
    chosen = meant_checkpoint(checkpoint)
    base = _base_of(chosen)
    if base is None:
        raise UserError(
            f"there is nothing to merge: {chosen} has no adapter, it is whole already;"
            f" use it as --model local:{chosen}"
        )
    require_train_extra()
    from transformers import AutoConfig

    try:
        base_folder = checkpoint_folder(base)
    except UserError as error:
        raise UserError(f"{chosen} is an adapter to {base}: {error}") from None
    own = chosen if (chosen / TOKENIZER).is_file() else base_folder
    load_tokenizer(own, str(own))  # an error before the work
    loaded = load_checkpoint(base, str(chosen))
    adapted: Any = loaded.model
    saved = AutoConfig.from_pretrained(base_folder, trust_remote_code=False).dtype
    model = adapted.merge_and_unload()
    model = model if saved is None else model.to(saved)
    model.generation_config = loaded.generation_config
    partial = out.parent / f".{out.name}.partial"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)  # of a merge that was killed
        model.save_pretrained(partial)
        for name in TOKENIZER_FILES:
            if (own / name).is_file():
                shutil.copyfile(own / name, partial / name)
        partial.replace(out)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(
            f"can't write {out}: {error.strerror or error}; name another --out"
        ) from None


def _base_of(checkpoint: Path) -> str | None:
    """The model under an adapter; None for a whole model. Raises `UserError` for neither."""
    base = base_of(checkpoint)
    if base is None and not (checkpoint / CONFIG).is_file():
        raise UserError(
            f"{checkpoint} is no checkpoint: it has neither {ADAPTER_CONFIG} nor {CONFIG}; name a"
            " training run's folder, or a checkpoint in it"
        )
    return base


# ---- A checkpoint for others: weights, tokenizer, card and recipe.

SCHEMA = "art-e/model/1"
# What may leave, as patterns.
FILES = (
    ADAPTER_CONFIG, "adapter_model.safetensors", CONFIG, "generation_config.json",
    "model.safetensors", "model.safetensors.index.json", "model-?????-of-?????.safetensors",
    *TOKENIZER_FILES, RECIPE, CARD,
)  # fmt: skip
# Settings of a model; those that say where it was loaded from are removed.
_SETTINGS = (ADAPTER_CONFIG, CONFIG, "generation_config.json", "tokenizer_config.json")
_ORIGIN = ("_name_or_path", "name_or_path")
# Too long to search, and made of words or numbers only.
_VOCABULARY = frozenset({"tokenizer.json", "vocab.json", "merges.txt"})
# A shorter path, such as "/", stands in innocent text.
_LEAST_PATH_CHARS = 5


class ExportedCheckpoint(NamedTuple):
    """A checkpoint to export, and the run that made it; `adapter_to` as in `Copy`."""

    checkpoint: Path
    run: Path
    adapter_to: str | None


def find_checkpoint(
    named: Path, run: Path | None = None, base_id: str | None = None
) -> ExportedCheckpoint:
    """The checkpoint at `named`, or the best one of a run there, and its run.

    Raises `UserError` without `run` for a checkpoint outside its run's folder, and without
    `base_id` (a hub id) for an adapter to a model in a folder.
    """
    checkpoint = meant_checkpoint(named)
    base = _hub_base(named, _base_of(checkpoint), base_id)
    return ExportedCheckpoint(checkpoint, _run_of(checkpoint, run), base)


def export(chosen: ExportedCheckpoint, to: Path) -> None:
    """Write the checkpoint to the folder `to`, in place of an earlier export.

    Raises `UserError` if a file names a path of this machine, or `to` can't be replaced."""
    config, metrics_file = json_object(chosen.run / CONFIG), chosen.run / METRICS
    recipe = public_recipe(named_recipe(str(chosen.run)))
    metrics = json_object(metrics_file) if metrics_file.is_file() else {}
    best = metrics.get("best_checkpoint") == f"{CHECKPOINTS}/{chosen.checkpoint.name}"
    copy = Copy(chosen.checkpoint.name, best, chosen.adapter_to)
    setting = Setting(config["kind"], recipe, config["seed"], baseline=config.get("baseline"))
    facts = {
        "schema": SCHEMA,
        "made_by": f"art-e {metadata.version('art-e')}",
        "kind": setting.kind,
        "seed": setting.seed,
        "checkpoint": copy.checkpoint,
        "adapter_to": copy.adapter_to,
        "recipe": recipe.to_row(),
    }
    with replacing(to, RECIPE, SCHEMA, _may_leave) as folder:
        for file in _files(chosen.checkpoint):
            if file.name in _SETTINGS:
                _write_json(folder / file.name, _settings(file, chosen.adapter_to))
            else:
                shutil.copyfile(file, folder / file.name)
        _write_json(folder / RECIPE, facts)
        (folder / CARD).write_text(card(setting, metrics, copy), "utf-8")
        _check_texts(folder, chosen)


def public_recipe(recipe: Recipe) -> Recipe:
    """The recipe without the paths and addresses of this machine; the system prompt, which is
    part of what was trained, stays as it is."""
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
    """The folder `run`, or that of the run in which the checkpoint lies."""
    folder = checkpoint.resolve().parent.parent if run is None else run
    config = folder / CONFIG
    if config.is_file() and isinstance(json_object(config).get("recipe"), dict):
        return folder
    raise UserError(
        f"{folder} is no training run's folder: name the run that made {checkpoint.name} with"
        " --run DIR, for the card and the recipe"
    )


def _hub_base(named: Path, base: str | None, base_id: str | None) -> str | None:
    """The hub id of the model that an adapter needs; None without an adapter."""
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


def _files(checkpoint: Path) -> list[Path]:
    """The checkpoint's files that leave. Raises `UserError` if it has no weights."""
    found = [each for each in sorted(checkpoint.iterdir()) if _may_leave(each.name)]
    if not any(each.suffix == ".safetensors" for each in found):
        raise UserError(
            f"{checkpoint} has no weights; save it as safetensors, or name another checkpoint"
        )
    return [each for each in found if each.name not in (RECIPE, CARD)]


def _may_leave(name: str) -> bool:
    return any(Path(name).match(each) for each in FILES)


def _settings(file: Path, adapter_to: str | None) -> dict[str, Any]:
    kept = {name: value for name, value in json_object(file).items() if name not in _ORIGIN}
    if file.name == ADAPTER_CONFIG:
        kept = public_settings({**kept, "base_model_name_or_path": adapter_to})
    return kept


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(f"{json.dumps(content, indent=2, ensure_ascii=False)}\n", "utf-8")


def _check_texts(folder: Path, chosen: ExportedCheckpoint) -> None:
    """Raise `UserError` if a file that leaves names a path of this machine."""
    here = {Path.home(), chosen.run.resolve(), chosen.run.resolve().parent, Path.cwd()}
    paths = [str(each) for each in here if len(str(each)) >= _LEAST_PATH_CHARS]
    for file in sorted(folder.iterdir()):
        if file.name in _VOCABULARY:
            continue
        if file.suffix == ".safetensors":
            with safe_open(file, framework="numpy") as weights:
                text = str(weights.metadata())
        else:
            text = file.read_text("utf-8", "replace")
        path = next((each for each in paths if f"{each}/" in text or f'{each}"' in text), None)
        if path is not None:
            raise UserError(
                f"{file.name} of {chosen.checkpoint} names a path of this machine, {path};"
                " take it out of the file, and export again"
            )
