"""Cut modeling: gives a new transformers model the shape of one whose heads were cut.

In: a model, and the block that `cut` wrote into its config. Out: the same model with the shapes,
attributes and emptied layers of the cut one, ready for its weights. Imports only torch and
transformers, never headwise: this file is copied into exported model directories.

The block is plain JSON; its paths are those of `model.base_model`:

    format      1
    parameters  every parameter or buffer that is smaller now, and its shape
    attributes  new values of module attributes: numbers of heads, sizes
    configs     new config values of modules that read numbers of heads from their config
    biased      modules that get a bias for all heads of the uncut model, and the heads they have
    emptied     modules that have no head left, and what they do instead of attention
    kept        the heads that changed layers still have, by their numbers in the uncut model
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, EncoderDecoderCache


class CutMixin:
    """Mixin before a model class of transformers: builds the model cut as its config says."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        """Build the plain model, then reshape it if its config has a block."""
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        block = getattr(config, "headwise", None)
        if block:
            reshape(self, block)

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # transformers searches the source file of the class, which here is this one.
        return bool(plain_class(cls)._can_set_attn_implementation())

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return bool(plain_class(cls)._can_set_experts_implementation())


def plain_class(cut: type) -> Any:
    """The model class of transformers that a cut class is based on."""
    return next(one for one in cut.__mro__ if not issubclass(one, CutMixin))


def reshape(model: Any, block: dict[str, Any]) -> None:
    """Give an uncut model the shapes, attributes and emptied layers that the block describes.

    Changed parameters are uninitialised, on the meta device too.
    """
    base = model.base_model
    for path, shape in block["parameters"].items():
        resize(base, path, shape)
    settle(base, block)


def resize(base: nn.Module, path: str, shape: list[int]) -> None:
    """Replace a parameter or buffer by an uninitialised tensor of this shape."""
    owner, _, name = path.rpartition(".")
    module = base.get_submodule(owner)
    old = getattr(module, name)
    replace_tensor(module, name, torch.empty(shape, dtype=old.dtype, device=old.device))


def replace_tensor(module: nn.Module, name: str, new: Tensor) -> None:
    """Replace a parameter, keeping its `requires_grad`, or a buffer by a tensor."""
    old = getattr(module, name)
    if isinstance(old, nn.Parameter):
        new = nn.Parameter(new, requires_grad=old.requires_grad)
    setattr(module, name, new)


def settle(base: nn.Module, block: dict[str, Any]) -> None:
    """Set the attributes, configs and forwards that the block describes; tensors do not change."""
    for path, values in block["attributes"].items():
        for name, value in values.items():
            setattr(base.get_submodule(path), name, value)
    for path, values in block["configs"].items():
        module: Any = base.get_submodule(path)
        module.config = OwnConfig(getattr(module.config, "shared", module.config), values)
    for path, facts in block["biased"].items():
        module = base.get_submodule(path)
        module.forward = functools.partial(attend_with_part, module, facts)
    for path, facts in block["emptied"].items():
        module = base.get_submodule(path)
        module.forward = functools.partial(attend_to_nothing, module, facts)


class OwnConfig:
    """A module's own values for some config entries; all others are the model's."""

    def __init__(self, shared: Any, values: dict[str, Any]) -> None:
        """Keep the model's config, and this module's own values."""
        self.shared = shared
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Look up the model's config, except its attribute for the attention implementation."""
        if name.startswith("__") or name in ("shared", "_attn_implementation_internal"):
            raise AttributeError(name)
        return getattr(self.shared, name)


def attend_to_nothing(module: Any, facts: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Output of an attention module without heads: as if all of them were silent."""
    hidden = args[0] if args else kwargs["hidden_states"]
    output = finish_output(module, facts, silent_output(module, facts, hidden), (hidden, *args[1:]))
    passed_on = []
    if "passes" in facts:  # made before the cache grows
        passed_on = [whole_bias(module, facts["passes"], args, kwargs)]
    num_keys = keep_count(module, hidden, args, kwargs)
    return (output, *passed_on, no_weights(module, hidden, num_keys))


def no_weights(module: Any, hidden: Tensor, num_keys: int) -> Tensor | None:
    """Weights of zero heads, if the module returns weights."""
    config = getattr(module, "config", None)
    if getattr(config, "_attn_implementation", "eager") != "eager":
        return None
    return hidden.new_zeros(len(hidden), 0, hidden.shape[1], num_keys)


def silent_output(module: Any, facts: dict[str, Any], hidden: Tensor) -> Tensor:
    """Bias of the output projection; an empty concat if the projection is outside the module."""
    if facts["projection"] is None:
        return hidden.new_zeros(*hidden.shape[:-1], 0)
    projection: Any = module.get_submodule(facts["projection"])
    if projection.bias is None:
        return hidden.new_zeros(*hidden.shape[:-1], projection.weight.shape[0])
    bias: Tensor = projection.bias
    return bias.expand(*hidden.shape[:-1], -1)


def finish_output(module: Any, facts: dict[str, Any], output: Tensor, args: Any) -> Tensor:
    """The projected output after the module's own dropout, residual sum and norm."""
    for name in facts.get("after", ()):
        output = getattr(module, name)(output)
    if "residual" in facts:
        output = args[facts["residual"]] + nn.functional.dropout(
            output, p=module.hidden_dropout, training=module.training
        )
    if "norm" in facts:
        output = getattr(module, facts["norm"])(args[0] + output)
    return output


def keep_count(module: Any, hidden: Tensor, args: Any, kwargs: dict[str, Any]) -> int:
    """Put one number per token in the cache, whose length gives positions.

    Returns the number of keys that a head would have.
    """
    states = next((kwargs[name] for name in CROSS_STATES if kwargs.get(name) is not None), None)
    if states is not None:  # the length of an encoder's output is not read from a cache
        memory: int = states.shape[1]
        return memory
    caches = [one for one in (*args, *kwargs.values()) if isinstance(one, Cache)]
    count = hidden.new_zeros(len(hidden), 1, hidden.shape[1], 1)
    for cache in caches:
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        count, _ = own.update(count, count, layer_number(module))
    return count.shape[2]


CROSS_STATES = ("key_value_states", "encoder_hidden_states")
"""Arguments with an encoder's output, in cross attention."""


def layer_number(module: Any) -> int:
    """Index of a module's keys in the cache."""
    return int(module.layer_idx if hasattr(module, "layer_idx") else module.layer_id)


def attend_with_part(
    module: Any,
    facts: dict[str, Any],
    *args: Any,
    output_attentions: bool | None = None,
    **kwargs: Any,
) -> Any:
    """The module's own forward, with its heads' part of a bias that is made for all heads."""
    if output_attentions is not None:  # a named parameter, so that its signature shows it
        kwargs["output_attentions"] = output_attentions
    whole = whole_bias(module, facts, args, kwargs)
    if whole is None:
        return type(module).forward(module, *args, **kwargs)
    place, name = facts["place"], facts["argument"]
    part = bias_of_heads(whole, facts)
    if len(args) > place:
        args = (*args[:place], part, *args[place + 1 :])
    else:
        kwargs = {**kwargs, name: part}
    outputs = type(module).forward(module, *args, **kwargs)
    if facts["is_passed_on"]:
        return outputs[0], whole, *outputs[2:]
    return outputs


def bias_of_heads(whole: Tensor, facts: dict[str, Any]) -> Tensor:
    """Bias of some heads; one axis of `whole` is all heads, perhaps times the batch."""
    axis = facts["axis"]
    heads = torch.tensor(facts["heads"], device=whole.device)
    apart = whole.unflatten(axis, (-1, facts["total"]))
    part: Tensor = apart.index_select(axis + 1, heads).flatten(axis, axis + 1)
    return part


def whole_bias(
    module: Any, facts: dict[str, Any], args: Any, kwargs: dict[str, Any]
) -> Tensor | None:
    """Bias for all heads of the uncut model: the argument, or computed as in T5's first layer."""
    place = facts["place"]
    given: Tensor | None = args[place] if len(args) > place else kwargs.get(facts["argument"])
    if given is not None or not facts["is_passed_on"]:
        return given
    hidden: Tensor = args[0]
    states, length = kwargs.get("key_value_states"), hidden.shape[1]
    if states is not None or not module.has_relative_attention_bias:
        keys = length if states is None else states.shape[1]
        return hidden.new_zeros(1, facts["total"], length, keys)
    cache, number = kwargs.get("past_key_values"), module.layer_idx
    keys = length if cache is None else cache.get_mask_sizes(length, number)[0]
    seen = 0 if cache is None else cache.get_seq_length(number)
    bias: Tensor = module.compute_bias(length, keys, device=hidden.device, past_seen_tokens=seen)
    return bias
