"""The card of an exported model: what it is, which heads it kept, what was measured, how it loads.

In: a cut model, the directory that it is written to, and the record of what `prune` measured. Out:
Markdown, which model hubs show as the model's page.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from headwise.pruning.plain import public_class
from headwise.watching.cut_models import BLOCK

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


def model_card(
    model: PreTrainedModel,
    part: Path,
    *,
    source: Path | None,
    auto: Mapping[str, str],
    measured: str = "",
) -> str:
    """The card of a model that is written in `part`; `auto` names classes by their loaders."""
    kept = (getattr(model.config, BLOCK, None) or {"kept": {}})["kept"]
    origin = "/".join(Path(model.config.name_or_path or source or "a nameless model").parts[-2:])
    name = public_class(model).__name__
    loader = next((one for one, of in auto.items() if of == name), "AutoModel")
    is_sentence = (part / "modules.json").exists()
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
            "It loads from this directory in either way:",
            "",
            "```python",
            *load_lines(
                loader, is_plain=not (part / f"{CODE}.py").exists(), is_sentence=is_sentence
            ),
            "```",
            "",
        ]
    )


def kept_lines(kept: Mapping[str, list[int]]) -> list[str]:
    """Which heads each layer kept."""
    rows = [f"| {layer} | {', '.join(map(str, own)) or 'none'} |" for layer, own in kept.items()]
    return [
        "Heads are numbered anew from 0 in every layer. Layers that are not in this table kept all "
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
    """What `prune` measured, as a table and a sentence on where it comes from."""
    before, after = record["sizes"]["before"], record["sizes"]["after"]
    quality, held = record["quality"], record["text"]["measured_on"]
    unit = quality["unit"]
    rows = [
        f"| {words} | {before[name]:,} | {after[name]:,} |"
        for name, words in SIZES.items()
        if before[name]
    ]
    now = quality["refitted"] or quality["cut"]
    scores = " | ".join(
        "unknown" if one is None else f"{one:.4f}" for one in (quality["uncut"][unit], now[unit])
    )
    whose = "text of its maker" if record["text"]["source"] == "given" else record["text"]["source"]
    chance = quality["random_mean"][unit]
    return "\n".join(
        [
            "| | before | after |",
            "|---|---|---|",
            *rows,
            f"| {unit} | {scores} |",
            "",
            f"Heads were chosen by the method {record['method']}"
            f"{', and what is left was refitted' if quality['refitted'] else ''}. The {unit} is of "
            f"{held['tokens']:,} tokens of {whose} that nothing was chosen or fitted on"
            + ("" if chance is None else f"; with as many heads cut at random it is {chance:.4f}")
            + ". `prune.json` holds every figure, `plan.json` the heads that went.",
        ]
    )
