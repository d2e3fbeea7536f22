"""Models built without memory, and the parameters of their attention."""

from torch import nn

from headwise.watching.sites import find_sites


def attention_parameters(model: nn.Module) -> list[int]:
    """Parameters of each layer's attention, the output projection's included."""
    found = []
    for place in find_sites(model):
        assert place.output_projection is not None
        own = [*place.module.parameters(), *place.output_projection.parameters()]
        found.append(sum(p.numel() for p in {id(p): p for p in own}.values()))
    return found
