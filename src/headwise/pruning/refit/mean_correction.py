"""Mean correction: keep what the cut heads output on average, or a share of it.

In: an uncut model, the cut one, the heads that were cut, and examples. Out: the cut model, in which
a share of the cut heads' mean output is part of the output projections' biases. Of all corrections
this one transfers best to other text, because it fits only one vector per layer.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headwise.heads import HeadId
from headwise.objectives.evaluation import count_heads
from headwise.objectives.objective import Sample
from headwise.objectives.registers import RegisterEvaluation
from headwise.pruning.refit.refit import projection_at
from headwise.pruning.refit.shrinkage import choose_share
from headwise.pruning.surgery.output_biases import add_output_biases
from headwise.watching.hooks import record
from headwise.watching.running import forward_batch, real_queries
from headwise.watching.sites import Site, find_sites, output_weight


def add_mean_outputs(
    cut: nn.Module,
    uncut: nn.Module,
    heads: Sequence[HeadId],
    samples: Sequence[Sample],
    *,
    shrink: RegisterEvaluation | None = None,
) -> float:
    """Add a share of the mean output of `heads` in the uncut model to the cut model's biases.

    Changes `cut` in place and returns the share: the one that helps most in the register of
    `shrink` that it helps least, 0 if none helps there, or 1 if `shrink` is None. Projections
    without a bias get one, unless all would be zero.
    """
    biases = add_output_biases(cut)
    sites = {site.layer_name: site for site in find_sites(cut)}
    changes = []
    for layer, mean in _lost_outputs(uncut, heads, samples).items():
        bias = projection_at(sites[layer]).bias
        assert isinstance(bias, Tensor)
        changes.append((bias, bias.detach().clone(), mean.to(bias)))

    def add_share(share: float) -> None:
        for bias, before, mean in changes:
            bias.data.copy_(before + share * mean)

    best = 1.0
    if shrink is not None and changes:
        best = choose_share(shrink.with_model(cut), add_share)
    add_share(best)
    biases.remove_if_zero()
    return best


def _lost_outputs(
    uncut: nn.Module, heads: Sequence[HeadId], samples: Sequence[Sample]
) -> dict[str, Float[Tensor, " d_model"]]:
    """The mean output of `heads`, after the output projection, for each layer that has any.

    If layers share a module, only for the first of them, as a mean over all.
    """
    counts = count_heads(uncut, samples[0].inputs)
    numbers: dict[str, list[int]] = {}
    for head in heads:
        numbers.setdefault(head.layer_name, []).append(head.head)
    sites = [
        site for site in find_sites(uncut) if site.layer_name in numbers and not site.call_index
    ]  # layers that share a module have one bias
    outputs = {}
    for site, mean in zip(sites, _mean_inputs(uncut, sites, samples), strict=True):
        name = site.layer_name
        by_head = mean.view(counts[name][0], -1)
        lost = torch.zeros_like(by_head)
        lost[numbers[name]] = by_head[numbers[name]]
        outputs[name] = lost.flatten() @ output_weight(projection_at(site)).double()
    return outputs


@torch.no_grad()
def _mean_inputs(
    model: nn.Module, sites: Sequence[Site], samples: Sequence[Sample]
) -> list[Float[Tensor, " concat"]]:
    """The mean input to each site's output projection, over all tokens that are not padding."""
    modules = {site.layer_name: projection_at(site) for site in sites}
    stacks = {site.layer_name: site.stack for site in sites}
    sums, rows = dict[str, Tensor](), Counter[str]()
    for sample in samples:
        with record(modules) as calls:
            forward_batch(model, sample.inputs)
        for call in calls:
            values, stack = call.input, stacks[call.name]
            real = values[real_queries(model, sample.inputs, stack, values)].double()
            sums[call.name] = sums.get(call.name, 0.0) + real.sum(0)
            rows[call.name] += len(real)
    return [sums[site.layer_name] / max(1, rows[site.layer_name]) for site in sites]
