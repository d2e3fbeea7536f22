"""Attention maps for the report: the strongest heads of each role on one sentence.

Where no head has a role, the sharpest heads are drawn instead.

In: a head table, which names its model, and a text. Out: a map a head, or the reason why the model
could not be asked. A model other than the scanned one is not drawn.
"""

import math
from typing import TYPE_CHECKING, Any

from headwise.drawing.heatmap import HeatMap
from headwise.errors import HeadwiseError, ModelError, OptionError
from headwise.heads import HeadId, HeadTable
from headwise.report.data import AttentionMaps, dict_of
from headwise.views.heads import strongest_of

if TYPE_CHECKING:
    from headwise.models.loaded import LoadedModel

SENTENCE = "The teacher lost her red pen, so the teacher bought a new one."
"""Has a pronoun and what it stands for, an adjective, objects of verbs, and a phrase twice."""
MAPS_A_ROLE, MAPS_WITHOUT_ROLES = 2, 4
SHARPNESS = "normalised_entropy"
MOST_TOKENS = 40
"""A map has a cell for every two tokens: with more, a page of a dozen maps passes 4 MB."""


def draw_maps(
    table: HeadTable, text: str = SENTENCE, model: "LoadedModel | None" = None
) -> AttentionMaps:
    """Maps of the heads that are worth a look; the model is loaded by its name unless given.

    A text that no map can show is the caller's mistake, and raises.
    """
    if not text.strip():
        raise OptionError("the text is empty: give some words")
    heads = chosen_heads(table)
    if not heads:
        return AttentionMaps(text, reason="no head has a role, and no entropy was measured")
    try:
        loaded = model or load_scanned(table)
        if loaded.tokenizer is None:
            raise ModelError(f"{loaded.name} reads no text")
    except HeadwiseError as error:
        return AttentionMaps(text, reason=str(error))
    check_length(text, loaded.tokenizer)
    try:
        found = maps_of(loaded, text, heads)
    except HeadwiseError as error:
        return AttentionMaps(text, reason=str(error))
    return AttentionMaps(
        text, {map_.name: map_ for map_, _ in found}, {map_.name: map_ for _, map_ in found}
    )


def chosen_heads(table: HeadTable) -> list[HeadId]:
    """The heads that are drawn, each once, in the order of the table."""
    if not table.held_roles:
        return sharpest_heads(table)
    rows = [row for role in table.held_roles for row in strongest_of(table, role, MAPS_A_ROLE)]
    return sorted({HeadId.parse(str(row.name)) for row in rows})


def sharpest_heads(table: HeadTable) -> list[HeadId]:
    """The heads whose rows have the least entropy; none where it was not measured."""
    if SHARPNESS not in table.df:
        return []
    entropies = zip(table.df[SHARPNESS], table.heads, strict=True)
    known = sorted((value, head) for value, head in entropies if math.isfinite(value))
    return [head for _, head in known[:MAPS_WITHOUT_ROLES]]


def load_scanned(table: HeadTable) -> "LoadedModel":
    """The model that was scanned; raises where there is none, or another, under its name."""
    about = table.about
    name = about.get("model")
    if not name:
        raise ModelError("the scan does not name its model")
    from headwise.models.loading import LoadOptions, load_model

    known = dict_of(about, "loaded")
    dtype, revision = known.get("dtype") or "float32", about.get("revision")
    loaded = load_model(str(name), LoadOptions(dtype=str(dtype), revision=revision))
    for fact in ("class", "sha256", "commit"):
        if known.get(fact) is not None and known[fact] != loaded.about.get(fact):
            raise ModelError(
                f"{name} is not what was scanned: its {fact} is {loaded.about.get(fact)}, and "
                f"was {known[fact]}"
            )
    return loaded


def check_length(text: str, tokenizer: Any) -> None:
    """Refuse a text of more tokens than a map can show."""
    tokens = len(tokenizer(text)["input_ids"])
    if tokens > MOST_TOKENS:
        raise OptionError(
            f"the text has {tokens} tokens, too many for a map: give at most {MOST_TOKENS}"
        )


def maps_of(loaded: "LoadedModel", text: str, heads: list[HeadId]) -> list[tuple[HeatMap, HeatMap]]:
    """Two maps for each head: of all tokens, and of those that are not special."""
    from headwise.tracing.trace import trace
    from headwise.views.trace import heat_maps

    by_layer: dict[tuple[str, int], list[int]] = {}
    for head in heads:
        by_layer.setdefault((head.stack, head.layer), []).append(head.head)
    found: list[tuple[HeatMap, HeatMap]] = []
    for (stack, layer), numbers in by_layer.items():
        traced = trace(loaded, text, layer=layer, stack=stack or None, heads=numbers)
        both = (heat_maps(traced.maps(special=special)) for special in (True, False))
        found += zip(*both, strict=True)
    return found
