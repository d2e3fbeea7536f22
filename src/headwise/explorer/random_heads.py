"""Random heads: what changing as many heads does if they are drawn at random.

In: the same as for `compare_gated`. Out: a RandomAnswer with one value per draw, as a control for
heads that a reader or a search chose.
"""

import math
import random
from collections.abc import Mapping, Sequence

import torch

from headwise.errors import OptionError
from headwise.explorer.api_types import RandomAnswer
from headwise.explorer.what_if import (
    Baselines,
    Factors,
    Prompt,
    gated_outputs,
    likeliest_outputs,
    output_name,
    unchanged_output,
)
from headwise.heads import HeadId, check_head
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import Progress, no_progress

STAGE = "Switching random heads"
TRIES = 200
"""Draws to try for each set that is kept, before drawing fewer sets."""


@torch.inference_mode()
def compare_random(
    scored: ScoredModel,
    texts: Sequence[str],
    factors: Factors,
    num_heads: Mapping[str, int],
    *,
    draws: int = 10,
    baselines: Baselines | None = None,
    progress: Progress = no_progress,
) -> RandomAnswer:
    """Outputs with the same factors on random heads, `draws` times.

    Reports the probability of every prediction that `compare_gated` reports, the likeliest before
    and after the change first; for an embedding model, the cosine of every pair of texts.
    """
    if not factors:
        raise OptionError("gates is empty: switch off or scale at least one head")
    for head in factors:
        check_head(head, num_heads)
    sets = draw_heads(factors, num_heads, draws)
    prompt = Prompt.read(scored, texts)
    before = unchanged_output(scored, prompt, baselines)
    values = list(factors.values())
    changes = [dict(zip(heads, values, strict=True)) for heads in sets]
    (after,) = gated_outputs(scored, prompt, [factors], num_heads, progress, STAGE)
    outputs = gated_outputs(scored, prompt, changes, num_heads, progress, STAGE)
    heads = [[str(head) for head in drawn] for drawn in sets]
    if prompt.position is None:
        pairs = [[one, other] for other in range(len(before)) for one in range(other)]
        cosines = [
            [round(float(output[one] @ output[other]), 4) for output in outputs]
            for one, other in pairs
        ]
        return RandomAnswer(heads, [], pairs, cosines, [])
    tops = likeliest_outputs(before, after)
    likeliest = list(dict.fromkeys((int(before.argmax()), int(after.argmax()), *tops)))
    return RandomAnswer(
        heads=heads,
        names=[output_name(scored, len(before), number) for number in likeliest],
        pairs=[],
        values=[
            [round(float(output[number].exp()), 5) for output in outputs] for number in likeliest
        ],
        likeliest=[output_name(scored, len(before), int(output.argmax())) for output in outputs],
    )


def draw_heads(
    chosen: Factors, num_heads: Mapping[str, int], draws: int
) -> list[tuple[HeadId, ...]]:
    """Different sets of as many heads as are chosen, none of them the chosen set.

    There may be fewer than `draws`. The draws are the same in every call with as many heads.
    """
    heads = [
        HeadId.parse(f"{layer}H{number}")
        for layer, count in num_heads.items()
        for number in range(count)
    ]
    size, generator = len(chosen), random.Random(len(chosen))
    most = min(draws, math.comb(len(heads), size) - 1)
    kept: dict[frozenset[HeadId], tuple[HeadId, ...]] = {}
    for _ in range(TRIES * draws):
        if len(kept) == most:
            break
        drawn = tuple(generator.sample(heads, size))
        if frozenset(drawn) != frozenset(chosen):
            kept.setdefault(frozenset(drawn), drawn)
    return list(kept.values())
