"""Plain config: can transformers build a cut model from a config, without extra code?

In: a cut model. Out: a config from which the plain transformers class builds exactly the same
shapes, or None. There is no table of families: each candidate config builds a model on the meta
device, which is then compared with the cut model.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from headwise.errors import ModelError
from headwise.models.exported_folder import BLOCK, BUILD_ERRORS, empty_model
from headwise.pruning.surgery.cut import head_counts
from headwise.watching.equivalence import tensors_by_name
from headwise.watching.sites import find_sites, output_weight


def public_class(model: nn.Module) -> type[PreTrainedModel]:
    """The public transformers class of a model, cut or not. Raises ModelError if it has none."""
    kind = type(model)
    is_cut = any(base.__name__ == "CutMixin" for base in kind.__mro__)
    for base in kind.__mro__ if is_cut else (kind,):
        if base.__module__.startswith("transformers.") and issubclass(base, PreTrainedModel):
            if getattr(transformers, base.__name__, None) is base:
                plain: type[PreTrainedModel] = base
                return plain
            break
    raise ModelError(
        f"{kind.__name__} cannot be exported: it is not a public class of transformers, so others "
        "could not load it; use a model from from_pretrained"
    )


def plain_config(model: PreTrainedModel) -> PreTrainedConfig | None:
    """A config that builds the model's shapes without headwise's block; None if no config does."""
    uncut = without_block(model.config)
    if not getattr(model.config, BLOCK, None):
        return uncut
    configs = (_try_counts(model, uncut, counts) for counts in _candidate_counts(model, uncut))
    return next(filter(None, configs), None)


def without_block(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy of the config without headwise's block, custom code and quantization settings."""
    bare: PreTrainedConfig = copy.deepcopy(config)
    for key in (BLOCK, "auto_map", "quantization_config"):
        if hasattr(bare, key):
            delattr(bare, key)
    return bare


def _candidate_counts(model: PreTrainedModel, uncut: PreTrainedConfig) -> Iterator[dict[str, int]]:
    """Head counts to try in the config; none if, for example, layers differ in their counts."""
    block = getattr(model.config, BLOCK)
    counts = set(head_counts(model).values())
    if len(counts) > 1 or uncut.sub_configs or block["emptied"] or block["biased"]:
        return
    num_heads, num_kv_heads = counts.pop()
    settings = {"num_attention_heads": num_heads}
    if hasattr(uncut, "num_key_value_heads"):
        settings["num_key_value_heads"] = num_kv_heads
    yield settings
    projection = find_sites(model)[0].output_projection
    assert projection is not None
    yield settings | {"head_dim": output_weight(projection).shape[0] // num_heads}


def _try_counts(
    model: PreTrainedModel, uncut: PreTrainedConfig, counts: Mapping[str, int]
) -> PreTrainedConfig | None:
    """The config with `counts`; None if the plain class does not build the same shapes from it."""
    config = copy.deepcopy(uncut)
    try:
        for name, count in counts.items():
            setattr(config, name, count)
        config = type(config).from_dict(config.to_dict())  # as read back from a file
        built = empty_model(public_class(model), config, model.dtype)
    except BUILD_ERRORS:
        return None  # counts must divide hidden_size; Falcon's head_dim cannot be set
    is_same = tensor_shapes(built) == tensor_shapes(model)
    return config if is_same and _attention_facts(built) == _attention_facts(model) else None


def tensor_shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter and buffer, by name."""
    return {name: tuple(tensor.shape) for name, tensor in tensors_by_name(model).items()}


def _attention_facts(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Numeric attributes of every attention module, such as scales and counts, by module name."""
    return {
        site.name: {
            key: value
            for key, value in vars(site.module).items()
            if isinstance(value, int | float) and key != "training" and not key.startswith("_")
        }
        for site in find_sites(model)
    }
