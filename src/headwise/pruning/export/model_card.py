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
from headwise.pruning.record import PruneRecord, Score

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
CORRECTIONS = {
    "bias": "the cut heads' mean outputs were added to the biases",
    "full": "output projections were refitted",
    "wide": "output projections and feed-forward layers were refitted",
}
"""Corrections in words, by their names in `Quality.correction`."""
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
    text, model, scores = record.text, record.model, quality.scores
    unit = MEANT.get(quality.unit, quality.unit)
    whose = "its maker's own data" if text.is_given else f"{join_words(text.report.registers)}"
    rows.append((f"{unit}, on {whose}", _figure(scores.uncut), _figure(scores.final)))
    if quality.other is not None:
        other = quality.other
        rows.append((f"{unit}, on other text", _figure(other.uncut), _figure(other.final)))
    is_named = record.method == "named"
    chosen = "Its maker named the heads" if is_named else f"Heads were chosen by {record.method}"
    source = f" ({model.about['source']})" if model.about.get("source") else ""
    corrected = without = ""
    if quality.correction != "none":
        corrected = f", and the rest was corrected ({CORRECTIONS[quality.correction]})"
        without = f"Without the correction it is {_figure(scores.cut)}. "
    median = quality.random_median
    random = "" if median is None else f"With as many heads cut at random it is {_figure(median)}. "
    return (
        f"{Table('', ('', 'before', 'after'), tuple(rows)).to_markdown()}\n\n"
        f"Made from {model.name}{source} by headwise {record.versions['headwise']}. "
        f"{chosen}{corrected}. The {quality.unit} was measured on {text.report.size} that decided "
        f"nothing; ± is a standard error. {without}{random}"
        "`prune.json` has every figure; `plan.json` has the heads that were cut."
    )


def _figure(score: Score) -> str:
    return score.text if math.isfinite(score.value) else "unknown"
