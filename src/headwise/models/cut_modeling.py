"""Standalone: a freshly built transformers model takes the shape of one whose heads were cut.

In: a model, and the block that `cut` wrote into its config. Out: the same model with the shapes,
attributes and emptied layers of the cut one, ready for its weights. It imports torch and
transformers alone, never headwise: its text is copied into exported model directories.

The block is plain JSON; its paths are those of `model.base_model`:

    format      1
    parameters  every parameter or buffer that is smaller now, and its shape
    attributes  what modules say of themselves: numbers of heads, sizes
    configs     of modules that ask their config for numbers of heads: what it shall answer
    biased      of modules given a bias for all heads of the uncut model: which of them they have
    emptied     modules that have no head left, and what they do instead of attention
    kept        the heads that changed layers still have, by their numbers in the uncut model
"""

import functools
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, EncoderDecoderCache


class CutMixin:
    """Goes before a model class of transformers: the model comes cut as its config says."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
        """Build the plain model, then give it the shape of the cut one, if there is a block."""
        super().__init__(config, *args, **kwargs)  # type: ignore[call-arg]
        block = getattr(config, "headwise", None)
        if block:
            reshape(self, block)

    @classmethod
    def _can_set_attn_implementation(cls) -> bool:
        # transformers looks for the answer in the source file of the class: in this one, here.
        return bool(plain_class(cls)._can_set_attn_implementation())

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return bool(plain_class(cls)._can_set_experts_implementation())


def plain_class(cut: type) -> Any:
    """The model class of transformers behind one that comes cut."""
    return next(one for one in cut.__mro__ if not issubclass(one, CutMixin))


def reshape(model: Any, block: dict[str, Any]) -> None:
    """Give an uncut model the shapes, attributes and emptied layers that the block describes.

    Parameters that change are left uninitialised, also on the meta device.
    """
    base = model.base_model
    for path, shape in block["parameters"].items():
        resize(base, path, shape)
    settle(base, block)


def resize(base: nn.Module, path: str, shape: list[int]) -> None:
    """Put an uninitialised tensor of that shape in the place of a parameter or buffer."""
    owner, _, name = path.rpartition(".")
    module = base.get_submodule(owner)
    old = getattr(module, name)
    replace_tensor(module, name, torch.empty(shape, dtype=old.dtype, device=old.device))


def replace_tensor(module: nn.Module, name: str, new: Tensor) -> None:
    """Put a tensor in the place of a parameter, as one that learns if that did, or of a buffer."""
    old = getattr(module, name)
    if isinstance(old, nn.Parameter):
        new = nn.Parameter(new, requires_grad=old.requires_grad)
    setattr(module, name, new)


def settle(base: nn.Module, block: dict[str, Any]) -> None:
    """Let the modules say and do what the block has for them; tensors stay as they are."""
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
    """Some answers of a module's own; all others, and the attention to use, are the model's."""

    def __init__(self, shared: Any, values: dict[str, Any]) -> None:
        """Keep the model's config, and what this module shall hear instead."""
        self.shared = shared
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """What the model's config says; not where it keeps the attention that is set for all."""
        if name.startswith("__") or name in ("shared", "_attn_implementation_internal"):
            raise AttributeError(name)
        return getattr(self.shared, name)


def attend_to_nothing(module: Any, facts: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """What an attention module gives when all its heads are silent; it has none."""
    hidden = args[0] if args else kwargs["hidden_states"]
    output = finished(module, facts, silent_output(module, facts, hidden), (hidden, *args[1:]))
    passed_on = []
    if "passes" in facts:  # made before the cache grows
        passed_on = [whole_bias(module, facts["passes"], args, kwargs)]
    num_keys = keep_count(module, hidden, args, kwargs)
    return (output, *passed_on, no_weights(module, hidden, num_keys))


def no_weights(module: Any, hidden: Tensor, num_keys: int) -> Tensor | None:
    """Weights of no heads, where modules return weights at all."""
    config = getattr(module, "config", None)
    if getattr(config, "_attn_implementation", "eager") != "eager":
        return None
    return hidden.new_zeros(len(hidden), 0, hidden.shape[1], num_keys)


def silent_output(module: Any, facts: dict[str, Any], hidden: Tensor) -> Tensor:
    """The bias of the output projection; an empty concat where the projection lies outside."""
    if facts["projection"] is None:
        return hidden.new_zeros(*hidden.shape[:-1], 0)
    projection: Any = module.get_submodule(facts["projection"])
    if projection.bias is None:
        return hidden.new_zeros(*hidden.shape[:-1], projection.weight.shape[0])
    bias: Tensor = projection.bias
    return bias.expand(*hidden.shape[:-1], -1)


def finished(module: Any, facts: dict[str, Any], output: Tensor, args: Any) -> Tensor:
    """What the module makes of its projected output: dropout, the residual sum, a norm."""
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
    """Put one number a token in the cache, which tells positions by how much is in it.

    How many keys there would be, if there were any.
    """
    states = next((kwargs[name] for name in CROSS_STATES if kwargs.get(name) is not None), None)
    if states is not None:  # nobody asks a cache how long the memory of an encoder is
        memory: int = states.shape[1]
        return memory
    caches = [one for one in (*args, *kwargs.values()) if isinstance(one, Cache)]
    count = hidden.new_zeros(len(hidden), 1, hidden.shape[1], 1)
    for cache in caches:
        own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        count, _ = own.update(count, count, layer_number(module))
    return count.shape[2]


CROSS_STATES = ("key_value_states", "encoder_hidden_states")
"""What modules are given when they attend to an encoder's output."""


def layer_number(module: Any) -> int:
    """The place of a module's keys in the cache."""
    return int(module.layer_idx if hasattr(module, "layer_idx") else module.layer_id)


def attend_with_part(
    module: Any,
    facts: dict[str, Any],
    *args: Any,
    output_attentions: bool | None = None,
    **kwargs: Any,
) -> Any:
    """A module's own attention, with the part for its heads of a bias that is made for all."""
    if output_attentions is not None:  # named above for those who ask whether it can be given
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
    """The bias of some heads; an axis of the whole counts all heads, perhaps of every example."""
    axis = facts["axis"]
    heads = torch.tensor(facts["heads"], device=whole.device)
    apart = whole.unflatten(axis, (-1, facts["total"]))
    part: Tensor = apart.index_select(axis + 1, heads).flatten(axis, axis + 1)
    return part


def whole_bias(
    module: Any, facts: dict[str, Any], args: Any, kwargs: dict[str, Any]
) -> Tensor | None:
    """The bias for all heads of the uncut model: the one given, or made here, as T5's first is."""
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
