"""The card of an exported model: what it is, which heads it kept, what was measured, how it loads.

In: a cut model, the directory that it is written to, and the record of what `prune` measured. Out:
Markdown, which model hubs show as the model's page.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from headwise.formats import join_words
from headwise.models.cut_models import BLOCK
from headwise.pruning.export.plain_config import public_class

CODE = "modeling_headwise"
"""The module, in an exported directory, that transformers runs if it is trusted."""
SIZES = {
    "heads": "heads",
    "kv_heads": "KV heads",
    "parameters": "parameters",
    "cache_bytes_per_token": "bytes of KV cache for a token",
    "attention_multiply_adds": "multiply-adds of attention",
}
"""Sizes that a card shows, by their names in the record."""
MEANT = {"cosine": "cosine to the uncut model's embeddings"}
"""Units that do not say for themselves what they are of."""


def model_card(
    model: PreTrainedModel,
    part: Path,
    *,
    source: Path | None,
    loaders: Mapping[str, str],
    measured: str = "",
) -> str:
    """The card of a model that is written in `part`; `auto` names classes by their loaders."""
    kept = (getattr(model.config, BLOCK, None) or {"kept": {}})["kept"]
    origin = "/".join(Path(model.config.name_or_path or source or "a nameless model").parts[-2:])
    name = public_class(model).__name__
    loader = next((loader for loader, kind in loaders.items() if kind == name), "AutoModel")
    is_sentence = (part / "modules.json").exists()
    is_plain = not (part / f"{CODE}.py").exists()
    return "\n".join(
        [
            "---",
            f"library_name: {'sentence-transformers' if is_sentence else 'transformers'}",
            "tags: [headwise]",
            "---",
            "# A model with fewer attention heads" if kept else "# A model with all its heads",
            "",
            f"{name}, written by headwise from {origin}; {model.num_parameters():,} parameters.",
            "Its licence and its limits are those of the model that it was made from.",
            "",
            *(kept_lines(kept) if kept else []),
            *([measured, ""] if measured else []),
            "It loads from this directory in each of these ways:",
            "",
            "```python",
            *load_lines(loader, is_plain=is_plain, is_sentence=is_sentence),
            "```",
            "",
            *([] if is_plain else [WARNING, ""]),
        ]
    )


WARNING = (
    "Without `trust_remote_code=True` transformers raises, because the sizes are not those of its "
    "own class. `ignore_mismatched_sizes`, which it then advises, would load random weights."
)


def kept_lines(kept: Mapping[str, list[int]]) -> list[str]:
    """Which heads each layer kept."""
    rows = [f"| {layer} | {', '.join(map(str, own)) or 'none'} |" for layer, own in kept.items()]
    return [
        "Heads have new numbers, from 0 in every layer. Layers that are not in this table kept all "
        "their heads.",
        "",
        "| layer | heads kept, by their numbers in the uncut model |",
        "|---|---|",
        *rows,
        "",
    ]


def load_lines(loader: str, *, is_plain: bool, is_sentence: bool) -> list[str]:
    """Python that loads the model."""
    trust = "" if is_plain else ", trust_remote_code=True"
    lines = [f"from transformers import {loader}", f'{loader}.from_pretrained("."{trust})', ""]
    if is_sentence:
        lines += ["from sentence_transformers import SentenceTransformer"]
        lines += [f'SentenceTransformer("."{trust})', ""]
    return [*lines, "import headwise", 'headwise.load(".")']


def measured_lines(record: Mapping[str, Any]) -> str:
    """What `prune` measured: a table, and where its figures come from."""
    before, after = record["sizes"]["before"], record["sizes"]["after"]
    quality, unit = record["quality"], record["quality"]["unit"]
    now = quality["refitted"] or quality["cut"]
    rows = [(words, f"{before[name]:,}", f"{after[name]:,}") for name, words in SIZES.items()]
    rows = [row for row in rows if row[1] != "0"]
    if before["kv_heads"] == before["heads"]:
        rows = [row for row in rows if row[0] != SIZES["kv_heads"]]
    rows.append((MEANT.get(unit, unit), written(quality["uncut"][unit]), written(now[unit])))
    table = [f"| {' | '.join(row)} |" for row in (("", "before", "after"), ("---",) * 3, *rows)]
    return "\n".join([*table, "", sources(record)])


def sources(record: Mapping[str, Any]) -> str:
    """How heads were chosen, and on what the figures were measured."""
    quality, text = record["quality"], record["text"]
    method = record["method"]
    is_named = method == "named"
    chosen = "Its maker named the heads" if is_named else f"Heads were chosen by {method}"
    refitted = ", and what is left was refitted" if quality["refitted"] else ""
    whose = "its maker's own data" if text["source"] == "given" else text["source"]
    model, versions = record["model"], record["versions"]
    source = f" ({model['source']})" if model.get("source") else ""
    return (
        f"Made from {model['model']}{source} by headwise {versions['headwise']}. "
        f"{chosen}{refitted}. The {quality['unit']} was measured on "
        f"{text['measured_on']['amount']} of {whose}, on which no head was chosen and "
        f"nothing fitted. {without_refit(quality)}"
        f"With as many heads cut at random, and none refitted, it is "
        f"{written(quality['random_mean'][quality['unit']])}. {decided(record)}"
        "`prune.json` holds every figure, `plan.json` the heads that went."
    )


def without_refit(quality: Mapping[str, Any]) -> str:
    """What the cut alone scores, to be held against random cuts; nothing where that was said."""
    if not quality["refitted"]:
        return ""
    return f"Without the refit this cut has {written(quality['cut'][quality['unit']])}. "


def decided(record: Mapping[str, Any]) -> str:
    """What the measured examples decided all the same; nothing where they did not."""
    found = ["how much was cut"] if "max_loss" in record["amount"] else []
    if record["quality"]["refitted"] or record["quality"]["refit_dropped"]:
        found.append("whether the refit stays")
    return f"The same examples decided {join_words(found)}. " if found else ""


def written(value: float | None) -> str:
    """A figure; JSON has none for what is infinite."""
    return "unknown" if value is None else f"{value:.4f}"
