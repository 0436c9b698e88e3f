"""What a run leaves for others: its model card, and an adapter merged into a whole model."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from art_e.errors import UserError
from art_e.models import checkpoint as checkpoints
from art_e.models.checkpoint import EPISODE, TOKENIZER
from art_e.publish import Own, is_hub_id, public_name, template
from training.recipe import Setting

# ---- The model card: README.md, in the form of the Hugging Face hub.


def card(setting: Setting, metrics: Mapping[str, Any]) -> str:
    """The text of a run's card; `metrics` is its `metrics.json`, without paths."""
    recipe = setting.recipe
    # No license: that of the base is not known here.
    front_matter = ModelCardData(
        base_model=recipe.model.base if is_hub_id(recipe.model.base or "") else None,
        language="en",
        library_name="transformers" if recipe.model.lora is None else "peft",
        pipeline_tag="text-generation",
        tags=["art-e", "email", "agent", "retrieval", setting.kind],
    )
    text = template("training", "card.md.j2").render(
        metrics,
        front_matter=Own(front_matter.to_yaml()),
        kind=setting.kind,
        recipe=recipe,
        seed=str(setting.seed),
        base=public_name(recipe.model.base or ""),
        questions=public_name(recipe.data.questions or ""),
        checkpoint=Own(f"RUN/{metrics['best_checkpoint'] or 'checkpoints/CHECKPOINT'}"),
        figure=_figure,
    )
    return f"{text.rstrip()}\n"


def _figure(value: Any) -> str:
    """A count or an estimate as text."""
    if isinstance(value, int):
        return f"{value:,}"
    if value["value"] is None:
        return "not measured"
    interval = "" if value["low"] is None else f"{value['low']:.3f} to {value['high']:.3f}, "
    return f"{value['value']:.3f} ({interval}n = {value['n']:,})"


# ---- A checkpoint with an adapter, merged into a whole model.


def merge(checkpoint: Path, out: Path) -> float:
    """Write the model of `checkpoint` (or of a run's best), its adapter folded in, to the new
    folder `out`, which is there whole or not at all.

    The weights keep the number format of the base model, and the tokenizer is the checkpoint's
    own, or the base model's. Returns what rounding leaves of the adapter (`kept_of`). Raises
    `UserError` if there is nothing to merge, or no room at `out`.
    """
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out} is there already; name a new folder with --out")
    chosen = checkpoints.meant_checkpoint(checkpoint)
    base = checkpoints.base_of(chosen)
    if base is None:
        raise UserError(
            f"{chosen} holds no adapter: name a training run with one, or if it is a whole model,"
            f" use it as --model local:{chosen}"
        )
    checkpoints.require_train_extra()
    from transformers import AutoConfig

    from art_e.models.loading import load_checkpoint, load_tokenizer

    base_folder = checkpoints.checkpoint_folder(base)
    own = chosen if (chosen / TOKENIZER).is_file() else base_folder
    tokenizer = load_tokenizer(own, str(own))
    loaded = load_checkpoint(base, str(chosen))
    adapted: Any = loaded.model
    saved = AutoConfig.from_pretrained(base_folder, trust_remote_code=False).dtype
    kept = kept_of(adapted, saved or next(adapted.parameters()).dtype)
    model = adapted.merge_and_unload()
    model = model if saved is None else model.to(saved)
    model.generation_config = loaded.generation_config
    partial = out.parent / f".{out.name}.partial"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)  # of a merge that was killed
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        if (chosen / EPISODE).is_file():
            shutil.copyfile(chosen / EPISODE, partial / EPISODE)
        partial.replace(out)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        why = error.strerror or error
        raise UserError(f"can't write {out}: {why}; name another --out") from None
    return kept


def kept_of(adapted: Any, dtype: Any) -> float:
    """The share of an adapter's change that weights of `dtype` keep: its projection on the change
    before rounding, over all layers. Young adapters change a weight by less than bfloat16 can."""
    changed = left = 0.0
    for module in adapted.modules():
        if hasattr(module, "get_delta_weight"):
            weight = module.get_base_layer().weight.data.float()
            delta = module.get_delta_weight("default").detach().float()
            rounded = (weight + delta).to(dtype).float() - weight.to(dtype).float()
            changed += float((delta * delta).sum())
            left += float((rounded * delta).sum())
    return left / changed if changed else 1.0
