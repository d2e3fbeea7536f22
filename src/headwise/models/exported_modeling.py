"""Cut modeling: gives a new transformers model the shape of a model whose heads were cut.

This module imports only torch and transformers, because it is copied into exported directories. The
shape comes from the block that `cut` wrote into the model's config. The block is plain JSON, and
its paths are relative to `model.base_model`:

    format      1
    parameters  new shape of every parameter or buffer that became smaller, and of added biases
    attributes  new values for modules' attributes: numbers of heads, sizes
    configs     numbers of heads for modules that read them from their config
    biased      modules that receive a bias for all heads of the uncut model, and their own heads
    emptied     modules without heads, and what they compute instead of attention
    kept        heads that remain in each changed layer, by their numbers in the uncut model
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, EncoderDecoderCache


class CutMixin:
    """Mixin for a transformers model class: builds the cut model that the config describes."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        block = getattr(config, "headwise", None)
        if block:
            reshape(self, block)

    @classmethod
    def is_custom_code(cls) -> bool:
        """False: transformers would otherwise leave some buffers of its own classes unset."""
        return False

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # transformers searches the class's source file, which would be this file
        return bool(plain_class(cls)._can_set_attn_implementation())

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return bool(plain_class(cls)._can_set_experts_implementation())


def plain_class(cut: type) -> Any:
    """The transformers class that a cut class is based on."""
    return next(base for base in cut.__mro__ if not issubclass(base, CutMixin))


def reshape(model: Any, block: dict[str, Any]) -> None:
    """Give an uncut model the shapes, attributes and emptied layers that the block describes.

    Changed parameters are uninitialised. The model may be on the meta device.
    """
    base = model.base_model
    fitted = fit_paths(base, block)
    if fitted is not block:
        block = model.config.headwise = fitted
    for path, shape in block["parameters"].items():
        owner, _, name = path.rpartition(".")
        module = base.get_submodule(owner)
        old = tensor_to_replace(module, name)
        replace_tensor(module, name, torch.empty(shape, dtype=old.dtype, device=old.device))
    apply_block(base, block)


def fit_paths(base: nn.Module, block: dict[str, Any]) -> dict[str, Any]:
    """The block with paths in `base`, if they begin with the name of `base` in a larger model.

    In Llama 4, the model with a prediction head is its own `base_model`.
    """
    parts = ("parameters", "attributes", "configs", "biased", "emptied")
    paths = [path for part in parts for path in block[part]]
    outer = paths[0].partition(".")[0] if paths else ""
    if hasattr(base, outer) or not all(path.startswith(f"{outer}.") for path in paths):
        return block
    return block | {
        part: {path.removeprefix(f"{outer}."): value for path, value in block[part].items()}
        for part in parts
    }


def tensor_to_replace(module: nn.Module, name: str) -> Tensor:
    """A module's parameter or buffer; its weight if `name` is a bias that it does not have."""
    old = getattr(module, name)
    tensor: Tensor = module.weight if old is None else old  # type: ignore[assignment]
    return tensor


def replace_tensor(module: nn.Module, name: str, new: Tensor) -> None:
    """Replace a parameter or buffer with `new`, or add a bias; `requires_grad` stays as it was."""
    old = tensor_to_replace(module, name)
    if isinstance(old, nn.Parameter):
        new = nn.Parameter(new, requires_grad=old.requires_grad)
    setattr(module, name, new)


def apply_block(base: nn.Module, block: dict[str, Any]) -> None:
    """Set the attributes, configs and forward functions that the block describes."""
    for path, values in block["attributes"].items():
        for name, value in values.items():
            setattr(base.get_submodule(path), name, value)
    for path, values in block["configs"].items():
        module: Any = base.get_submodule(path)
        module.config = OwnConfig(getattr(module.config, "shared", module.config), values)
    for path, parts in block["biased"].items():
        module = base.get_submodule(path)
        module.forward = functools.partial(attend_with_part, module, parts)
    for path, facts in block["emptied"].items():
        module = base.get_submodule(path)
        module.forward = functools.partial(attend_to_nothing, module, facts)


class OwnConfig:
    """A module's own values for some settings, and the model's config for all others."""

    def __init__(self, shared: Any, values: dict[str, Any]) -> None:
        self.shared = shared
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """A setting from the model's config, but not the config's own attention implementation."""
        if name.startswith("__") or name in ("shared", "_attn_implementation_internal"):
            raise AttributeError(name)
        return getattr(self.shared, name)


def attend_to_nothing(module: Any, facts: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Output of an attention module without heads: as if all its heads were silent.

    Before dropout, residual sum and norm, the output is the output projection's bias, or a tensor
    of width 0 if that projection is outside the module.
    """
    hidden = args[0] if args else kwargs[facts["input"]]
    output = hidden.new_zeros(*hidden.shape[:-1], 0)
    if facts["projection"] is not None:
        projection: Any = module.get_submodule(facts["projection"])
        bias = projection.bias
        if bias is None:
            bias = hidden.new_zeros(projection.weight.shape[0])
        output = bias.expand(*hidden.shape[:-1], -1)
    for name in facts.get("after", ()):
        output = getattr(module, name)(output)
    if "residual" in facts:
        output = (hidden, *args[1:])[facts["residual"]] + nn.functional.dropout(
            output, p=module.hidden_dropout, training=module.training
        )
    if "norm" in facts:
        output = getattr(module, facts["norm"])(hidden + output)
    passed_on = []
    if "passes" in facts:  # computed before the cache grows
        passed_on = [bias_of_all_heads(module, facts["passes"], args, kwargs)]
    num_keys, weights = count_keys(module, hidden, args, kwargs), None
    if getattr(getattr(module, "config", None), "_attn_implementation", "eager") == "eager":
        weights = hidden.new_zeros(len(hidden), 0, hidden.shape[1], num_keys)
    if not facts.get("returns", 2):
        return output
    results = (output, *passed_on, weights)
    return results + (None,) * (facts.get("returns", 2) - len(results))


def count_keys(module: Any, hidden: Tensor, args: Any, kwargs: dict[str, Any]) -> int:
    """Number of keys that the module would see if it had heads.

    Also adds one number per token to the cache, because models derive positions from its length.
    """
    for name in ("key_value_states", "encoder_hidden_states"):
        if kwargs.get(name) is not None:  # no position depends on an encoder's length
            num_states: int = kwargs[name].shape[1]
            return num_states
    caches = [value for value in (*args, *kwargs.values()) if isinstance(value, Cache)]
    count = hidden.new_zeros(len(hidden), 1, hidden.shape[1], 1)
    for cache in caches:
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        number = module.layer_idx if hasattr(module, "layer_idx") else module.layer_id
        count, _ = cache.update(count, count, int(number))
    return count.shape[2]


def attend_with_part(
    module: Any,
    parts: list[dict[str, Any]],
    *args: Any,
    output_attentions: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Run the module's attention with its remaining heads' part of each bias for all heads."""
    if output_attentions is not None:  # in the signature, because callers look for it there
        kwargs["output_attentions"] = output_attentions
    passed_on = None
    for facts in parts:
        bias = bias_of_all_heads(module, facts, args, kwargs)
        if facts["is_passed_on"]:
            passed_on = bias
        place, axis = facts["place"], facts["axis"]
        if bias is None or bias.shape[axis] % facts["total"]:  # a mask that all heads share
            continue
        heads = torch.tensor(facts["heads"], device=bias.device)
        by_head = bias.unflatten(axis, (-1, facts["total"]))  # some have examples on this axis too
        part = by_head.index_select(axis + 1, heads).flatten(axis, axis + 1)
        if len(args) > place:
            args = (*args[:place], part, *args[place + 1 :])
        else:
            kwargs = {**kwargs, facts["argument"]: part}
    outputs = type(module).forward(module, *args, **kwargs)
    return outputs if passed_on is None else (outputs[0], passed_on, *outputs[2:])


def bias_of_all_heads(module: Any, facts: dict[str, Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """The bias for all heads of the uncut model: passed in, or computed as in T5's first layer."""
    place = facts["place"]
    bias = args[place] if len(args) > place else kwargs.get(facts["argument"])
    if bias is not None or not facts["is_passed_on"]:
        return bias
    hidden: Tensor = args[0]
    states, length = kwargs.get("key_value_states"), hidden.shape[1]
    if states is not None or not module.has_relative_attention_bias:
        keys = length if states is None else states.shape[1]
        return hidden.new_zeros(1, facts["total"], length, keys)
    cache, number = kwargs.get("past_key_values"), module.layer_idx
    keys = length if cache is None else cache.get_mask_sizes(length, number)[0]
    seen = 0 if cache is None else cache.get_seq_length(number)
    return module.compute_bias(length, keys, device=hidden.device, past_seen_tokens=seen)
