"""Facts about a head beyond its weights, in one answer.

In: a TextAnalysis and a head. Out: a HeadAnswer.
"""

import math

import torch

from headwise.explorer import api_types as api
from headwise.explorer.maps import TILE
from headwise.explorer.role_details import role_detail
from headwise.explorer.text_analysis import TextAnalysis
from headwise.formats import replace_nonfinite
from headwise.head_table import HeadTable
from headwise.heads import HeadId
from headwise.measures.sequence_view import lengths_after
from headwise.roles import ROLES
from headwise.scans.tables import column_meanings

REACH = 16
"""Largest distance in a profile, in either direction."""
MAX_ROWS = 2 * TILE
"""Approximate largest number of rows that a profile averages over."""


def head_answer(
    analysis: TextAnalysis, head: HeadId, scan_table: HeadTable | None
) -> api.HeadAnswer:
    """Facts about `head`; roles come from `scan_table` if it is given."""
    call, row, meanings = analysis.call(head.layer_name), analysis.table[head], column_meanings()
    keys = getattr(call, "keys", None)
    num_kv_heads = call.num_heads if keys is None else keys.shape[1]
    kv_head = head.head * num_kv_heads // call.num_heads
    return api.HeadAnswer(
        head=str(head),
        stack=call.stack,
        profile=profile(analysis, head),
        contribution=contribution(analysis, head),
        measures=[
            api.MeasureValue(name, float(row[name]), meanings[name])
            for name in analysis.table.df
            if name in meanings and isinstance(row[name], float) and math.isfinite(row[name])
        ],
        roles=role_evidence(analysis.table if scan_table is None else scan_table, head),
        is_scanned=scan_table is not None,
        served_by=api.ServedBy(kv_head, num_kv_heads) if num_kv_heads < call.num_heads else None,
    )


def role_evidence(table: HeadTable, head: HeadId) -> list[api.RoleEvidence]:
    """Evidence for every measured role: the head's own roles first, each part sorted by score."""
    row = table[head]
    evidence = [
        api.RoleEvidence(
            role=name,
            is_held=name in row["roles"],
            score=float(score),
            threshold=replace_nonfinite(float(row[f"{name}_threshold"])),
            baseline=replace_nonfinite(float(row[f"{name}_baseline"])),
            detail=role_detail(name, str(row[f"{name}_detail"])),
            meaning=role.meaning,
        )
        for name, role in ROLES.items()
        if isinstance(score := row.get(f"{name}_score"), float) and math.isfinite(score)
    ]
    return sorted(evidence, key=lambda each: (not each.is_held, -each.score))


@torch.inference_mode()
def profile(analysis: TextAnalysis, head: HeadId) -> api.Profile:
    """Mean weight at each distance, over the rows with a key there; long texts are sampled."""
    sequence = analysis.sequence(head.layer_name)
    device = sequence.mixed.device
    step = max(1, sequence.num_queries // MAX_ROWS)
    rows = torch.arange(0, sequence.num_queries, step, device=device)
    offsets = torch.arange(-REACH, REACH + 1, device=device)
    keys = rows + sequence.band.offset + offsets[:, None]
    which, places = ((keys >= 0) & (keys < sequence.num_keys)).nonzero(as_tuple=True)
    weights = analysis.call(head.layer_name).weight_at(rows[places], keys[which, places])
    sums = torch.zeros(len(offsets), dtype=torch.float64, device=device)
    sums.index_add_(0, which, weights[0, head.head].double())
    counts = which.bincount(minlength=len(offsets))
    has_rows = counts > 0
    means = (sums[has_rows] / counts[has_rows]).tolist()
    return api.Profile(offsets[has_rows].tolist(), means)


@torch.inference_mode()
def contribution(analysis: TextAnalysis, head: HeadId) -> api.Contribution | None:
    """Length of the head's output at each token; None if the output projection is unknown."""
    roots = analysis.roots(head.layer_name)
    if roots is None:
        return None
    mixed = analysis.sequence(head.layer_name).mixed
    after = lengths_after(mixed, roots)
    share = after / after.sum(0).clamp(min=1e-12)
    return api.Contribution(
        before=mixed[head.head].norm(dim=-1).double().round(decimals=4).tolist(),
        after=after[head.head].double().round(decimals=4).tolist(),
        share=share[head.head].double().round(decimals=4).tolist(),
        mean_share=float(share[head.head].mean()),
        equal_share=1 / len(after),
    )
