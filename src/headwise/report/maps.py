"""Attention maps for the report: the strongest heads of each role on one sentence.

If no head has a role, the sharpest heads are drawn. If the model has changed since the scan,
nothing is drawn.
"""

import math
from typing import Any

from headwise.drawing.heatmap import HeatMap
from headwise.errors import HeadwiseError, ModelError, OptionError
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.models.loaded import LoadedModel
from headwise.models.loading import LoadOptions, load_model
from headwise.report.data import AttentionMaps
from headwise.tracing.trace import trace
from headwise.views.heads import dict_in, strongest_of
from headwise.views.trace import heat_maps

SENTENCE = "The teacher lost her red pen, so the teacher bought a new one."
"""Has a pronoun with its antecedent, an adjective, objects of verbs, and a repeated phrase."""
MAPS_PER_ROLE, MAPS_WITHOUT_ROLES = 2, 4
SHARPNESS = "normalised_entropy"
MOST_TOKENS = 40
"""A map has a cell per pair of tokens: with more tokens, a page of a dozen maps exceeds 4 MB."""


def draw_maps(
    table: HeadTable, text: str | None = None, model: LoadedModel | None = None
) -> AttentionMaps:
    """Maps of the heads in `map_heads(table)`; the scanned model is loaded unless `model` is given.

    Without `text`, draws as much of `SENTENCE` as fits. Raises OptionError if `text` is empty or
    too long for a map.
    """
    if text is not None and not text.strip():
        raise OptionError("text is empty: give a sentence", option="text")
    heads = map_heads(table)
    if not heads:
        return AttentionMaps(
            text or SENTENCE, reason="no head has a role, and entropy was not measured"
        )
    try:
        loaded = model or _load_scanned(table)
        if loaded.tokenizer is None:
            raise ModelError(f"{loaded.name} has no tokenizer")
    except HeadwiseError as error:
        return AttentionMaps(text or SENTENCE, reason=str(error))
    if text is None:
        text = _start_of_sentence(loaded.tokenizer)
    check_length(text, loaded.tokenizer)
    try:
        return AttentionMaps(text, *_trace_heads(loaded, text, heads))
    except HeadwiseError as error:
        return AttentionMaps(text, reason=str(error))


def map_heads(table: HeadTable) -> list[HeadId]:
    """The heads to draw, sorted and without duplicates."""
    if not table.held_roles:
        return sharpest_heads(table)
    rows = [row for role in table.held_roles for row in strongest_of(table, role, MAPS_PER_ROLE)]
    return sorted({HeadId.parse(str(row.name)) for row in rows})


def sharpest_heads(table: HeadTable) -> list[HeadId]:
    """The heads with the least entropy; empty if entropy was not measured."""
    if SHARPNESS not in table.df:
        return []
    entropies = zip(table.df[SHARPNESS], table.heads, strict=True)
    ranked = sorted((value, head) for value, head in entropies if math.isfinite(value))
    return [head for _, head in ranked[:MAPS_WITHOUT_ROLES]]


def _load_scanned(table: HeadTable) -> LoadedModel:
    """The scanned model; raises ModelError if the scan does not name it, or if it has changed."""
    about, name = table.about, table.about.get("model")
    if not name:
        raise ModelError("the scan does not name its model")
    scanned = dict_in(about, "loaded")
    dtype, revision = scanned.get("dtype") or "float32", about.get("revision")
    loaded = load_model(str(name), LoadOptions(dtype=str(dtype), revision=revision))
    for fact in ("class", "sha256", "commit"):
        now = loaded.about.get(fact)
        if scanned.get(fact) not in (None, now):
            raise ModelError(
                f"{name} has changed since the scan: its {fact} is {now}, but was {scanned[fact]}"
            )
    return loaded


def check_length(text: str, tokenizer: Any) -> None:
    """Raise OptionError if the text has more tokens than a map can show."""
    tokens = len(tokenizer(text)["input_ids"])
    if tokens > MOST_TOKENS:
        raise OptionError(
            f"text has {tokens} tokens, too many for a map: give at most {MOST_TOKENS}",
            option="text",
        )


def _start_of_sentence(tokenizer: Any) -> str:
    """As many words of `SENTENCE` as fit into a map; some tokenizers have a token per letter."""
    words = SENTENCE.split()
    while len(words) > 1 and len(tokenizer(" ".join(words))["input_ids"]) > MOST_TOKENS:
        words.pop()
    return " ".join(words)


def _trace_heads(
    loaded: LoadedModel, text: str, heads: list[HeadId]
) -> tuple[dict[str, HeatMap], dict[str, HeatMap]]:
    """Maps by head name: first over all tokens, then without special tokens."""
    by_layer: dict[tuple[str, int], list[int]] = {}
    for head in heads:
        by_layer.setdefault((head.stack, head.layer), []).append(head.head)
    by_head: dict[str, HeatMap] = {}
    words_by_head: dict[str, HeatMap] = {}
    for (stack, layer), numbers in by_layer.items():
        traced = trace(loaded, text, layer=layer, stack=stack or None, heads=numbers)
        by_head |= {each.name: each for each in heat_maps(traced.maps())}
        words_by_head |= {each.name: each for each in heat_maps(traced.maps(special=False))}
    return by_head, words_by_head
