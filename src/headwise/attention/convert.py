"""Conversion from a textbook class, and from and to `torch.nn.MultiheadAttention`.

Each function returns a new module with the same weights and the same output, or raises OptionError
if the other kind of module lacks an option that is in use.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from headwise.attention.layer import PROJECTIONS, MultiHeadAttention
from headwise.errors import OptionError


def from_textbook(module: nn.Module, *, num_heads: int | None = None) -> MultiHeadAttention:
    """A layer with the weights of a module that has four linear layers named Wq, Wk, Wv and Wo.

    Case and underscores in the names are ignored (`W_q`, `wq`). `num_heads` defaults to the
    module's own. The module's dropout becomes the layer's dropout on attention weights.
    """
    kind, projections = type(module).__name__, _find_projections(module)
    Wq, Wk, Wv, _ = projections.values()
    heads = getattr(module, "num_heads", None) if num_heads is None else num_heads
    if not isinstance(heads, int):
        raise OptionError(f"{kind} has no num_heads: pass num_heads=...")
    if heads < 1 or Wq.out_features % heads:
        raise OptionError(f"{heads} heads cannot share the {Wq.out_features} rows of Wq evenly")
    d_key = Wq.out_features // heads
    kv_heads, remainder = divmod(Wk.out_features, d_key)
    if remainder or kv_heads < 1 or Wv.out_features % kv_heads:
        raise OptionError(
            f"Wk has {Wk.out_features} rows and Wv {Wv.out_features}: that is not a whole number "
            f"of heads of size {d_key}"
        )
    d_value = Wv.out_features // kv_heads
    needed = {"Wv": (Wk.in_features, Wv.out_features), "Wo": (heads * d_value, Wq.in_features)}
    for name, features in needed.items():
        linear = projections[name]
        if (linear.in_features, linear.out_features) != features:
            raise OptionError(
                f"{name} maps {linear.in_features} features to {linear.out_features}: to match the "
                f"other projections it must map {features[0]} to {features[1]}"
            )
    dropouts = {
        name: child.p
        for name, child in module.named_children()
        if isinstance(child, nn.Dropout) and child.p
    }
    if len(dropouts) > 1:
        raise OptionError(
            f"{kind} has dropouts {', '.join(dropouts)}: MultiHeadAttention has only one, on the "
            "weights"
        )
    layer = MultiHeadAttention(
        Wq.in_features,
        heads,
        num_kv_heads=kv_heads,
        d_key=d_key,
        d_value=d_value,
        d_context=Wk.in_features,
        bias=[name for name, linear in projections.items() if linear.bias is not None],
        dropout=next(iter(dropouts.values()), 0.0),
        device=Wq.weight.device,
        dtype=Wq.weight.dtype,
    )
    for name, linear in projections.items():
        target: nn.Linear = getattr(layer, name)
        target.load_state_dict(linear.state_dict())
        for key, parameter in linear.named_parameters():
            target.get_parameter(key).requires_grad_(parameter.requires_grad)
    return layer.train(module.training)


def _find_projections(module: nn.Module) -> dict[str, nn.Linear]:
    """Wq, Wk, Wv and Wo; raises OptionError if one is missing or there are other parameters."""
    linears = {
        name.replace("_", "").lower(): child
        for name, child in module.named_children()
        if isinstance(child, nn.Linear)
    }
    missing = [name for name in PROJECTIONS if name.lower() not in linears]
    if missing:
        raise OptionError(
            f"{type(module).__name__} has no linear layer {', '.join(missing)}; "
            f"it has {', '.join(name for name, _ in module.named_children()) or 'none'}"
        )
    projections = {name: linears[name.lower()] for name in PROJECTIONS}
    known = {id(tensor) for linear in projections.values() for tensor in linear.parameters()}
    others = [name for name, tensor in module.named_parameters() if id(tensor) not in known]
    if others:
        raise OptionError(
            f"{type(module).__name__} has {', '.join(others)} besides its four projections: "
            "MultiHeadAttention has only these four"
        )
    return projections


def from_torch(module: nn.MultiheadAttention) -> MultiHeadAttention:
    """A layer with the weights of a `torch.nn.MultiheadAttention`; the layer is batch-first."""
    if module.bias_k is not None or module.add_zero_attn:
        raise OptionError("add_bias_kv and add_zero_attn have no counterpart in MultiHeadAttention")
    if module.kdim != module.vdim:
        raise OptionError(
            f"kdim {module.kdim} and vdim {module.vdim} differ: MultiHeadAttention computes keys "
            "and values from the same context"
        )
    layer = MultiHeadAttention(
        module.embed_dim,
        module.num_heads,
        d_context=module.kdim,
        bias=module.in_proj_bias is not None,
        dropout=module.dropout,
        device=module.out_proj.weight.device,
        dtype=module.out_proj.weight.dtype,
    )
    with torch.no_grad():
        for own, torchs in _input_parameters(layer, module):
            own.copy_(torchs)
    layer.Wo.load_state_dict(module.out_proj.state_dict())
    return layer.train(module.training)


def _input_parameters(
    layer: MultiHeadAttention, module: nn.MultiheadAttention
) -> Iterator[tuple[Tensor, Tensor]]:
    """Weights and biases of the layer's Wq, Wk and Wv, each with its counterpart in torch's."""
    linears = (layer.Wq, layer.Wk, layer.Wv)
    separate = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    weights = module.in_proj_weight.chunk(3) if module._qkv_same_embed_dim else separate
    yield from zip((linear.weight for linear in linears), weights, strict=True)
    if module.in_proj_bias is not None:
        biases = module.in_proj_bias.chunk(3)
        yield from zip((linear.bias for linear in linears), biases, strict=True)


def to_torch(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    """A batch-first `torch.nn.MultiheadAttention` with the layer's weights.

    Torch's layer has no causal setting: pass `is_causal` and a mask to each call.
    """
    has_bias = {getattr(layer, name).bias is not None for name in PROJECTIONS}
    uses = {
        "grouped KV heads": layer.num_kv_heads != layer.num_heads,
        "free head sizes": {layer.d_key, layer.d_value} != {layer.d_model / layer.num_heads},
        "biases per projection": len(has_bias) > 1,
        "window": layer.window is not None,
        "positions": layer.position is not None,
        "softcap": layer.softcap is not None,
        "query and key norms": layer.q_norm is not None,
        "sinks": layer.sinks is not None,
    }
    obstacles = [name for name, is_used in uses.items() if is_used]
    if obstacles:
        raise OptionError(f"torch.nn.MultiheadAttention has no {', '.join(obstacles)}")
    module = nn.MultiheadAttention(
        layer.d_model,
        layer.num_heads,
        dropout=layer.dropout,
        bias=layer.Wq.bias is not None,
        kdim=layer.d_context,
        vdim=layer.d_context,
        batch_first=True,
        device=layer.Wo.weight.device,
        dtype=layer.Wo.weight.dtype,
    )
    with torch.no_grad():
        for own, torchs in _input_parameters(layer, module):
            torchs.copy_(own)
    module.out_proj.load_state_dict(layer.Wo.state_dict())
    return module.train(layer.training)
