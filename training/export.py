"""What a training run leaves for others: its model card, without paths of this machine, and an
adapter merged into a whole model."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from art_e.errors import UserError
from art_e.models.checkpoint import (
    ADAPTER_CONFIG,
    CONFIG,
    TOKENIZER,
    base_of,
    checkpoint_folder,
    load_checkpoint,
    load_tokenizer,
    meant_checkpoint,
    require_train_extra,
)
from art_e.publish import Own, is_hub_id, public_name, template
from art_e.storage import write_whole
from training.recipe import ModelTable, Setting

CARD = "README.md"
# What a tokenizer may be saved as; a folder has some of them.
TOKENIZER_FILES = (
    TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json",
)  # fmt: skip

# ---- The model card: README.md, in the form of the Hugging Face hub.

UNKNOWN = "not measured"
_BEST = re.compile(r"checkpoints/checkpoint-(\d+)", re.ASCII)


def write_card(folder: Path, setting: Setting, metrics: Mapping[str, Any]) -> None:
    """Write README.md into a run's folder."""
    write_whole(folder / CARD, card(setting, metrics))


def card(setting: Setting, metrics: Mapping[str, Any]) -> str:
    """The text of a run's card; `metrics` is the run's `metrics.json`."""
    recipe = setting.recipe
    best = _BEST.fullmatch(str(metrics.get("best_checkpoint")))
    base, questions = (
        each and public_name(each) for each in (recipe.model.base, recipe.data.questions)
    )
    seconds, usd = metrics.get("seconds"), metrics.get("cost_usd")
    text = template("training", "card.md.j2").render(
        front_matter=Own(_front_matter(setting.kind, recipe.model)),
        kind=setting.kind,
        recipe=recipe,
        seed=str(setting.seed),
        base=base,
        questions=questions,
        has_best=best is not None,
        checkpoint=Own(f"RUN/{best[0] if best else 'checkpoints/CHECKPOINT'}"),
        validation=_validation(metrics.get("validation") or [], int(best[1]) if best else None),
        test=_table(metrics.get("test") or {}),
        hours=UNKNOWN if seconds is None else f"{seconds / 3600:.2f} hours",
        tokens=_figure(metrics.get("tokens")),
        money=UNKNOWN if usd is None else f"{usd:,.2f} USD",
        alarms=metrics.get("alarms"),
        unknown=UNKNOWN,
    )
    return f"{text.rstrip()}\n"


def _front_matter(kind: str, model: ModelTable) -> str:
    """What the hub reads. No license: that of the base is not known here."""
    data = ModelCardData(
        base_model=model.base if is_hub_id(model.base or "") else None,
        language="en",
        library_name="transformers" if model.lora is None else "peft",
        pipeline_tag="text-generation",
        tags=["art-e", "email", "agent", "retrieval", kind],
    )
    return str(data.to_yaml())


def _validation(rows: Sequence[Mapping[str, Any]], best: int | None) -> dict[str, Any]:
    """The first, the best and the last of the validations; `best` is the step of the best."""
    chosen = [("first", each) for each in rows[:1]]
    chosen += [("best", each) for each in rows if each["step"] == best]
    chosen += [("last", each) for each in rows[-1:]]
    return _table({f"{name} (step {row['step']:,})": row for name, row in chosen})


def _table(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The titles of the columns, and a row for each figure of the parts."""
    names = dict.fromkeys(name for part in parts.values() for name in part if name != "step")
    rows = [
        (name.replace("_", " "), [_figure(part.get(name)) for part in parts.values()])
        for name in names
    ]
    return {"columns": list(parts), "rows": rows}


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
    base = base_of(chosen)
    if base is None and not (chosen / CONFIG).is_file():
        raise UserError(
            f"{chosen} is no checkpoint: it has neither {ADAPTER_CONFIG} nor {CONFIG}; name a"
            " training run's folder, or a checkpoint in it"
        )
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
