"""Drop-in for `torch.nn.MultiheadAttention`, and `swap`, which installs it in an existing model.

Arguments and results are those of torch's layer. In its bool masks True means blocked, the opposite
of the rest of headwise.
"""

import math
from copy import copy
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from headwise.attention.attend import attend
from headwise.attention.prepare import CALL_PAIRS, can_be_read, is_transformed
from headwise.attention.rules import Rules
from headwise.errors import OptionError

Inputs = tuple[Tensor, Tensor, Tensor]
Mask = Tensor | None


class MultiheadAttention(torch.nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention`, with zeros instead of NaN for a query that may see no key.

    Constructor, parameters, `state_dict`, arguments, errors and results are torch's.

    >>> layer = MultiheadAttention(8, 2, batch_first=True).requires_grad_(False)
    >>> tokens, padding = torch.ones(1, 2, 8), torch.tensor([[True, True]])
    >>> layer(tokens, tokens, tokens, key_padding_mask=padding)[1]
    tensor([[[0., 0.],
             [0., 0.]]])
    """

    @wraps(torch.nn.MultiheadAttention.__init__)  # type: ignore[misc] # mypy cannot see through
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _keep_forward_called(self)

    @classmethod
    def from_torch(cls, module: torch.nn.MultiheadAttention) -> "MultiheadAttention":
        """A drop-in that shares the parameters of `module` and copies its hooks and mode."""
        if type(module) not in (torch.nn.MultiheadAttention, cls):
            raise OptionError(
                f"module is a {type(module).__name__}: pass a torch.nn.MultiheadAttention itself; "
                "a subclass may have its own forward"
            )
        twin: MultiheadAttention = _copy_sharing_parameters(module)
        twin.out_proj = _copy_sharing_parameters(module.out_proj)
        twin.__class__ = cls
        _keep_forward_called(twin)
        return twin

    def forward(  # noqa: PLR0913 - the signature is torch's
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Output in the layout of `query`, and the weights after dropout if `need_weights`."""
        if is_causal and attn_mask is None:  # torch's fast path would silently attend to every key
            raise RuntimeError(
                "Need attn_mask if specifying the is_causal hint. You may use the Transformer "
                "module method `generate_square_subsequent_mask` to create this mask."
            )
        inputs = (query, key, value)
        has_own_keys = self.bias_k is not None or self.add_zero_attn  # which no mask can hide
        is_torchs = need_weights and not _may_have_empty_rows(key_padding_mask, attn_mask)
        if is_torchs or has_own_keys or not _can_compute(self, inputs, key_padding_mask, attn_mask):
            # Without empty rows torch's result is right, and as fast if it returns all weights.
            # Torch also raises its own errors for bad input; nested tensors come without masks.
            rest = (key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
            return super().forward(query, key, value, *rest)
        # Both masks as [#batch #heads #query key].
        padding, pairs = key_padding_mask, attn_mask
        if padding is not None:
            padding = padding[:, None, None] if padding.dim() == 2 else padding[None, None, None]
        if pairs is not None:
            pairs = (
                pairs[None, None] if pairs.dim() == 2 else pairs.unflatten(0, (-1, self.num_heads))
            )
        if not need_weights:
            return _compute_output(self, inputs, padding, pairs, is_causal), None
        output, weights = _compute_with_weights(self, inputs, padding, pairs)
        weights = weights.mean(1) if average_attn_weights else weights
        return output, weights if query.dim() == 3 else weights[0]


def swap(model: torch.nn.Module) -> int:
    """Replace every `torch.nn.MultiheadAttention` in the model in place; return how many.

    Subclasses of torch's layer may have their own forward, so they are not replaced.

    >>> swap(torch.nn.TransformerDecoderLayer(8, 2))
    2
    """
    layers = [layer for layer in model.modules() if type(layer) is torch.nn.MultiheadAttention]
    for module in layers:
        # The same object gets a new class, so that no parameter, hook or attribute is lost, and
        # every other reference (a second parent, a list, a closure) sees the drop-in too. This
        # works because the drop-in adds no state.
        module.__class__ = MultiheadAttention
        _keep_forward_called(module)
    return len(layers)


def _keep_forward_called(layer: torch.nn.MultiheadAttention) -> None:
    """Make `nn.TransformerEncoderLayer` call the layer's forward in eval mode too.

    Its fast path passes the parameters to a C++ function, unless a module inside it has a forward
    hook. `out_proj` is never called (only its parameters are read), so a hook there is free.
    """
    layer.out_proj.register_forward_pre_hook(_do_nothing)


def _do_nothing(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """Serve as a hook that can be pickled, because it is defined at module level."""


def _copy_sharing_parameters(module: torch.nn.Module) -> Any:
    """A copy of a module: the same parameters and submodules, in new dictionaries."""
    twin = copy(module)
    for name, value in vars(module).items():
        if isinstance(value, dict | set):
            vars(twin)[name] = value.copy()
    return twin


def _can_compute(
    layer: MultiheadAttention, inputs: Inputs, key_padding_mask: Mask, attn_mask: Mask
) -> bool:
    """Whether the inputs and masks are dense tensors with the right dtypes and shapes."""
    query, key, value = inputs
    axes = query.dim()
    if query.is_nested or key.is_nested or value.is_nested or not 2 <= axes == key.dim() <= 3:
        return False
    dtypes = {query.dtype, key.dtype, value.dtype, layer.out_proj.weight.dtype}
    position = 1 if axes == 3 and layer.batch_first else 0
    pairs = (query.shape[position], key.shape[position])
    batch = 1 if axes == 2 else query.shape[1 - position]
    tokens = pairs[1:] if axes == 2 else (batch, *pairs[1:])
    pair_shapes = (pairs, (batch * layer.num_heads, *pairs))
    masks = ((key_padding_mask, (tokens,)), (attn_mask, pair_shapes))
    return (
        (len(dtypes) == 1 or torch.is_autocast_enabled(query.device.type))
        and query.shape[-1] == layer.embed_dim
        and key.shape == (*(tokens if position else tokens[::-1]), layer.kdim)
        and value.shape == (*key.shape[:-1], layer.vdim)
        and all(
            mask is None or (mask.shape in shapes and mask.dtype in (torch.bool, query.dtype))
            for mask, shapes in masks
        )
    )


def _project_inputs(
    layer: MultiheadAttention, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, ...]:
    """Queries, keys and values `[batch heads position d_key]`; identical inputs share a product."""
    weight: Tensor | None = layer.in_proj_weight
    bias: Tensor | None = layer.in_proj_bias
    if weight is not None and query is key and key is value:
        return _split_product(layer, F.linear(query, weight, bias), 3)
    parts = (1, 2) if weight is not None and key is value else (1, 1, 1)
    sections = [part * layer.embed_dim for part in parts]
    separate = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    weights = separate if weight is None else weight.split(sections)
    biases = (None, None, None) if bias is None else bias.split(sections)
    products = map(F.linear, (query, key, value), weights, biases)
    return sum((_split_product(layer, *each) for each in zip(products, parts, strict=True)), ())


def _split_product(
    layer: MultiheadAttention, product: Tensor, parts: int
) -> tuple[Float[Tensor, "batch heads position d_key"], ...]:
    is_batch_first = layer.batch_first
    if product.dim() == 2:
        product, is_batch_first = product[None], True
    split = product.view(*product.shape[:2], parts, layer.num_heads, layer.head_dim)
    return split.permute((2, 0, 3, 1, 4) if is_batch_first else (2, 1, 3, 0, 4)).unbind()


def _join_heads(
    layer: MultiheadAttention, mixed: Float[Tensor, "batch heads query d_key"], axes: int
) -> Tensor:
    is_batch_first = layer.batch_first or axes == 2
    concat = mixed.permute((0, 2, 1, 3) if is_batch_first else (2, 0, 1, 3)).flatten(2)
    output = F.linear(concat, layer.out_proj.weight, layer.out_proj.bias)
    return output if axes == 3 else output[0]


def _compute_output(
    layer: MultiheadAttention, inputs: Inputs, padding: Mask, pairs: Mask, is_causal: bool
) -> Tensor:
    queries, keys, values = _project_inputs(layer, *inputs)
    dtype, axes = inputs[0].dtype, inputs[0].dim()
    dropout = layer.dropout if layer.training else 0.0
    can_pay = queries.shape[1:3].numel() * keys.shape[2] > CALL_PAIRS
    if not dropout and (can_pay or is_transformed()):
        # With padding, torch uses the mask itself and ignores the hint.
        is_causal = is_causal and (padding is None or _is_triangle(pairs))
        rules = _masks_as_rules(padding, None if is_causal else pairs, is_causal, dtype)
        return _join_heads(layer, attend(queries, keys, values, rules=rules), axes)
    # Torch's own function is fastest on short input, and its dropout draws torch's random numbers.
    is_causal = is_causal and padding is None
    bias = _joint_bias(padding, None if is_causal else pairs, dtype)
    mixed = F.scaled_dot_product_attention(queries, keys, values, bias, dropout, is_causal)
    return _join_heads(layer, mixed, axes)


def _compute_with_weights(
    layer: MultiheadAttention, inputs: Inputs, padding: Mask, pairs: Mask
) -> tuple[Tensor, Float[Tensor, "batch heads query key"]]:
    """The output and all weights after dropout; zeros in rows that see no key."""
    queries, keys, values = _project_inputs(layer, *inputs)
    bias = _joint_bias(padding, pairs, inputs[0].dtype)
    assert bias is not None, "without a mask `forward` calls torch's layer"
    empty = (bias == -math.inf).all(-1, keepdim=True)
    scores = (queries * math.sqrt(1 / layer.head_dim)) @ keys.mT
    finite = bias.masked_fill(empty, 0).to(scores.dtype)
    weights = (scores + finite).softmax(-1).masked_fill(empty, 0)
    if layer.training and layer.dropout:
        weights = F.dropout(weights, layer.dropout)
    return _join_heads(layer, weights @ values, inputs[0].dim()), weights


def _joint_bias(
    padding: Mask, pairs: Mask, dtype: torch.dtype
) -> Float[Tensor, "#batch #heads #query key"] | None:
    """Sum of both masks as a bias on the scores."""
    other = F._none_or_dtype(pairs)
    padding = F._canonical_mask(padding, "key_padding_mask", other, "attn_mask", dtype)
    pairs = F._canonical_mask(pairs, "attn_mask", None, "", dtype)
    if padding is None or pairs is None:
        return pairs if padding is None else padding
    return padding + pairs


def _masks_as_rules(padding: Mask, pairs: Mask, is_causal: bool, dtype: torch.dtype) -> Rules:
    """Rules that express padding as lengths, if the padding is known now and only at the end."""
    lengths = None
    if padding is not None and _only_blocks(padding):
        blocked = _is_blocked(padding[:, 0, 0])
        if not (blocked[:, :-1] > blocked[:, 1:]).any():
            lengths, padding = (~blocked).sum(1) if blocked.any() else None, None
    mask = _joint_bias(padding, pairs, dtype)
    offset = 0 if is_causal else None  # top-left, as torch interprets its hint
    return Rules(is_causal=is_causal, offset=offset, lengths=lengths, mask=mask)


def _is_triangle(pairs: Mask) -> bool:
    """Whether the mask is known now and blocks exactly the keys after each query's own position."""
    if pairs is None or pairs.shape[:2] != (1, 1) or not _only_blocks(pairs):
        return False
    blocked = _is_blocked(pairs)
    return torch.equal(blocked, torch.ones_like(blocked).triu(1))


def _only_blocks(mask: Tensor) -> bool:
    """Whether the mask is known now and does not change the scores that it does not block."""
    if not _can_read_at_once(mask) or mask.requires_grad:
        return False
    return not (mask.is_floating_point() and mask.masked_fill(_is_blocked(mask), 0).any())


def _may_have_empty_rows(key_padding_mask: Mask, attn_mask: Mask) -> bool:
    """Whether some query may see no key; also True if that cannot be read from a single mask."""
    mask = attn_mask if key_padding_mask is None else key_padding_mask
    if mask is None:
        return False
    if (mask is not attn_mask and attn_mask is not None) or not _can_read_at_once(mask):
        return True
    return bool(_is_blocked(mask).all(-1).any())


def _is_blocked(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask == -math.inf


def _can_read_at_once(tensor: Tensor) -> bool:
    """Whether the values are known now, without waiting for a device."""
    return tensor.device.type == "cpu" and can_be_read(tensor)
