"""Mean correction: keep what the cut heads output on average.

In: an uncut model, the cut one, the heads that were cut, and examples. Out: the cut model, in which
the mean output of the cut heads is part of the output projections' biases. Of all corrections this
one transfers best to other text, because it fits only one vector per layer.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.heads import HeadId
from headwise.objectives.evaluation import count_heads
from headwise.objectives.objective import Sample
from headwise.pruning.refit.refit import projection_at
from headwise.pruning.surgery.output_biases import add_output_biases
from headwise.watching.hooks import record
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.sites import Site, find_sites, output_weight


def add_mean_outputs(
    cut: nn.Module, uncut: nn.Module, heads: Sequence[HeadId], samples: Sequence[Sample]
) -> None:
    """Add the mean output of `heads` in the uncut model to the cut model's biases, in place.

    Projections without a bias get one, unless all would be zero.
    """
    biases = add_output_biases(cut)
    counts = count_heads(uncut, samples[0].inputs)
    projections = {site.layer_name: projection_at(site) for site in find_sites(cut)}
    lost_heads: dict[str, list[int]] = {}
    for head in heads:
        lost_heads.setdefault(head.layer_name, []).append(head.head)
    sites = [site for site in find_sites(uncut) if site.layer_name in lost_heads]
    for site, mean in zip(sites, _mean_inputs(uncut, sites, samples), strict=True):
        by_head = mean.view(counts[site.layer_name][0], -1)
        lost = torch.zeros_like(by_head)
        numbers = lost_heads[site.layer_name]
        lost[numbers] = by_head[numbers]
        bias = projections[site.layer_name].bias
        assert isinstance(bias, Tensor)
        bias.data.add_((lost.flatten() @ output_weight(projection_at(site)).double()).to(bias))
    biases.remove_if_zero()


@torch.no_grad()
def _mean_inputs(
    model: nn.Module, sites: Sequence[Site], samples: Sequence[Sample]
) -> list[Float[Tensor, " concat"]]:
    """The mean input to each site's output projection, over all tokens that are not padding."""
    modules = {site.layer_name: projection_at(site) for site in sites}
    sums, rows = dict[str, Tensor](), Counter[str]()
    for sample in samples:
        with record(modules) as calls:
            forward_batch(model, sample.inputs)
        inputs = {call.name: call.input for call in calls}
        for site in sites:
            values = inputs[site.layer_name]
            real = values[real_queries(model, sample.inputs, site.stack, values)].double()
            sums[site.layer_name] = sums.get(site.layer_name, 0.0) + real.sum(0)
            rows[site.layer_name] += len(real)
    return [sums[site.layer_name] / max(1, rows[site.layer_name]) for site in sites]
