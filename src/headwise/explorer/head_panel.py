"""Figures: what is said of one head beside its map.

In: a reading and a head. Out: its measures, roles with their evidence, where it looks by distance,
and what it adds before and after the output projection; and the strongest links of some tokens. All
as JSON can hold it.
"""

import math
from typing import Any

import torch

from headwise.explorer.maps import TILE, MapOptions, axes_of, weights_between
from headwise.explorer.text_analysis import TextAnalysis
from headwise.heads import HeadId, HeadTable
from headwise.measures.sequence_view import lengths_after
from headwise.roles import ROLES
from headwise.scans.tables import column_meanings

REACH = 16
"""Offsets to either side that a profile shows."""
LINKS = 3
"""Links of each row: its largest weights, however small."""
MOST_ROWS = TILE
"""Rows whose links are given at once, and about twice as many that a profile is the mean of."""


def head_figures(reading: TextAnalysis, head: HeadId, table: HeadTable | None) -> dict[str, Any]:
    """Everything that is said of one head; roles from a scan's table where there is one."""
    reading.checked(head)
    return {
        "head": str(head),
        "measures": measures_of(reading.table, head),
        "roles": roles_of(reading.table if table is None else table, head),
        "is_scanned": table is not None,
        "profile": profile(reading, head),
        "contribution": contribution(reading, head),
        "served_by": kv_head(reading, head),
    }


def measures_of(table: HeadTable, head: HeadId) -> list[dict[str, Any]]:
    """Every number that a table has of a head, with what it means, but those that judge roles."""
    row, words = table[head], column_meanings()
    return [
        {"name": name, "value": float(row[name]), "meaning": words[name]}
        for name in table.df
        if name in words and isinstance(row[name], float) and math.isfinite(row[name])
    ]


def roles_of(table: HeadTable, head: HeadId) -> list[dict[str, Any]]:
    """Each role that was measured: its score, what it is held against, and whether it is held."""
    row = table[head]
    found = []
    for role in ROLES:
        score = row.get(f"{role}_score")
        if isinstance(score, float) and math.isfinite(score):
            found.append(
                {
                    "role": role,
                    "is_held": role in row["roles"],
                    "score": score,
                    "threshold": finite(row[f"{role}_threshold"]),
                    "baseline": finite(row[f"{role}_baseline"]),
                    "detail": str(row[f"{role}_detail"]),
                    "meaning": ROLES[role].meaning,
                }
            )
    return sorted(found, key=lambda one: (not one["is_held"], -one["score"]))


def finite(value: float) -> float | None:
    """The number, or None for what JSON cannot hold."""
    return float(value) if math.isfinite(value) else None


@torch.inference_mode()
def profile(reading: TextAnalysis, head: HeadId) -> dict[str, Any]:
    """Mean weight at each distance, over rows that have a key there; of a long text, some rows."""
    call = reading.call(head.layer_name)
    sequence = reading.sequence(head.layer_name)
    shift = sequence.band.offset
    step = max(1, sequence.num_queries // (2 * MOST_ROWS))
    offsets, means = [], []
    for offset in range(-REACH, REACH + 1):
        queries = torch.arange(0, sequence.num_queries, step, device=sequence.mixed.device)
        keys = queries + shift + offset
        inside = (keys >= 0) & (keys < sequence.num_keys)
        if inside.any():
            found = call.weight_at(queries[inside], keys[inside])[0, head.head]
            offsets.append(offset)
            means.append(float(found.float().mean()))
    return {"offsets": offsets, "means": means}


def links(
    reading: TextAnalysis, head: HeadId, look: MapOptions, rows: slice
) -> list[list[int | float]]:
    """The strongest keys of some rows: row, key, weight; none that may not be seen."""
    row_axis, key_axis = axes_of(reading.labels(head.layer_name), look)
    start, stop, _ = rows.indices(len(row_axis))
    part = slice(start, min(stop, start + MOST_ROWS))
    plain = MapOptions(look.is_by_word, look.hides_special, look.drops_sink)
    whole, layer = slice(0, len(key_axis)), head.layer_name
    mine = weights_between(reading, layer, plain, part, whole, head=head.head)[0]
    values, places = mine.topk(min(LINKS, mine.shape[1]), dim=1)
    return [
        [start + row, int(place), weight]
        for row, (some, where) in enumerate(zip(values, places, strict=True))
        for value, place in zip(some, where, strict=True)
        if (weight := round(float(value), 4)) > 0
    ]


@torch.inference_mode()
def contribution(reading: TextAnalysis, head: HeadId) -> dict[str, Any] | None:
    """Length of what the head gives at each token, before and after the output projection."""
    roots = reading.roots(head.layer_name)
    if roots is None:
        return None
    mixed = reading.sequence(head.layer_name).mixed
    after = lengths_after(mixed, roots)
    share = after / after.sum(0).clamp(min=1e-12)
    return {
        "before": rounded(mixed[head.head].norm(dim=-1)),
        "after": rounded(after[head.head]),
        "share": rounded(share[head.head]),
        "mean_share": float(share[head.head].mean()),
        "equal_share": 1 / len(after),
    }


def rounded(values: torch.Tensor) -> list[float]:
    """Numbers short enough to send."""
    return [round(value, 4) for value in values.tolist()]


def kv_head(reading: TextAnalysis, head: HeadId) -> dict[str, int] | None:
    """Which KV head serves a head of a grouped-query layer; None where each has its own."""
    keys = getattr(reading.call(head.layer_name), "keys", None)
    num_heads = reading.call(head.layer_name).num_heads
    if keys is None or keys.shape[1] == num_heads:
        return None
    group = num_heads // keys.shape[1]
    return {"kv_head": head.head // group, "kv_heads": keys.shape[1]}
