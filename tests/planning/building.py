"""Attention parameters of models that are built on the meta device."""

from torch import nn

from headwise.watching.sites import find_sites


def attention_parameters(model: nn.Module) -> list[int]:
    """Parameters of each layer's attention, the output projection's included."""
    counts = []
    for site in find_sites(model):
        assert site.output_projection is not None
        parameters = [*site.module.parameters(), *site.output_projection.parameters()]
        counts.append(sum(p.numel() for p in {id(p): p for p in parameters}.values()))
    return counts
