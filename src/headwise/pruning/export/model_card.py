"""Model card: an exported model's origin, kept heads, measurements and loading code.

In: a cut model, the directory it is written to, and the record of `prune`'s measurements. Out:
Markdown, which model hubs show as the model's page.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from transformers import PreTrainedModel

from headwise.drawing.table import Table
from headwise.formats import join_words
from headwise.models.exported_folder import BLOCK
from headwise.pruning.export.plain_config import public_class
from headwise.pruning.record import OWN_TEXT, PruneRecord

CODE = "modeling_headwise"
"""Name of the module in an exported directory that transformers runs if the user trusts it."""
SIZES = {
    "heads": "heads",
    "kv_heads": "KV heads",
    "parameters": "parameters",
    "cache_bytes_per_token": "bytes of KV cache per token",
    "attention_multiply_adds": "attention multiply-adds",
}
"""Labels of the sizes on a card, by their names in `Sizes`."""
MEANT = {"cosine": "cosine to the uncut model's embeddings"}
"""Descriptions of units whose names do not explain themselves."""


HEADS = (
    "Heads have new numbers, starting from 0 in every layer. Layers that are not in this table "
    "kept all their heads."
)
WARNING = (
    "Without `trust_remote_code=True`, transformers raises an error, because the sizes are not "
    "those of its own class. `ignore_mismatched_sizes`, which it then suggests, would load random "
    "weights."
)


def model_card(
    model: PreTrainedModel,
    part: Path,
    *,
    source: Path | None,
    loaders: Mapping[str, str],
    figures: str = "",
) -> str:
    """The card of the model in `part`; `loaders` maps Auto classes to the classes they load."""
    kept_heads = (getattr(model.config, BLOCK, None) or {"kept": {}})["kept"]
    rows = [(layer, ", ".join(map(str, kept)) or "none") for layer, kept in kept_heads.items()]
    columns = ("layer", "heads kept, by their numbers in the uncut model")
    origin = "/".join(Path(model.config.name_or_path or source or "an unnamed model").parts[-2:])
    name = public_class(model).__name__
    loader = next((loader for loader, kind in loaders.items() if kind == name), "AutoModel")
    is_sentence = (part / "modules.json").exists()
    is_plain = not (part / f"{CODE}.py").exists()
    trust = "" if is_plain else ", trust_remote_code=True"
    lines = [f"from transformers import {loader}", f'{loader}.from_pretrained("."{trust})', ""]
    if is_sentence:
        lines += ["from sentence_transformers import SentenceTransformer"]
        lines += [f'SentenceTransformer("."{trust})', ""]
    lines += ["import headwise", 'headwise.load(".")']
    library = "sentence-transformers" if is_sentence else "transformers"
    sections = [
        f"---\nlibrary_name: {library}\ntags: [headwise]\n---\n"
        f"# A model with {'fewer attention heads' if rows else 'all its heads'}",
        f"{name}, written by headwise from {origin}; {model.num_parameters():,} parameters.\n"
        "Its licence and limits are those of the model it was made from.",
        f"{HEADS}\n\n{Table('', columns, tuple(rows)).to_markdown()}" if rows else "",
        figures,
        "Load it from this directory in any of these ways:",
        "\n".join(["```python", *lines, "```"]),
        "" if is_plain else WARNING,
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def figures_section(record: PruneRecord) -> str:
    """Sizes and quality before and after the cut, how heads were chosen, and the text used."""
    quality, before, after = record.quality, record.before, record.after
    rows = [
        (words, f"{getattr(before, name):,}", f"{getattr(after, name):,}")
        for name, words in SIZES.items()
        if getattr(before, name) and (name != "kv_heads" or before.kv_heads != before.heads)
    ]
    unit = MEANT.get(quality.unit, quality.unit)
    rows.append((unit, _figure(quality.uncut.value), _figure(quality.final.value)))
    text, model = record.text, record.model
    is_named = record.method == "named"
    chosen = "Its maker named the heads" if is_named else f"Heads were chosen by {record.method}"
    whose = "its maker's own data" if text.source == OWN_TEXT else text.source
    source = f" ({model.about['source']})" if model.about.get("source") else ""
    refitted = without_refit = ""
    if quality.refitted:
        refitted = ", and what is left was refitted"
        without_refit = f"Without the refit this cut has {_figure(quality.cut.value)}. "
    decisions = ["how much was cut"] if record.amount.max_loss is not None else []
    if quality.refitted or quality.refit_dropped:
        decisions.append("whether the refit stays")
    decided = f"The same examples decided {join_words(decisions)}. " if decisions else ""
    return (
        f"{Table('', ('', 'before', 'after'), tuple(rows)).to_markdown()}\n\n"
        f"Made from {model.name}{source} by headwise {record.versions['headwise']}. "
        f"{chosen}{refitted}. The {quality.unit} was measured on {text.measured_on.size} of "
        f"{whose}, on which no head was chosen and nothing was fitted. {without_refit}"
        f"With as many heads cut at random and no refit, it is "
        f"{_figure(quality.random_mean.value)}. {decided}"
        "`prune.json` has every figure; `plan.json` has the heads that were cut."
    )


def _figure(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "unknown"
