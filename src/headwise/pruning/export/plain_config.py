"""Plain: whether a cut model is one that transformers builds by itself, from head counts alone.

In: a model whose heads were cut. Out: a config from which the plain class of transformers builds
exactly its shapes, or None. It keeps no table of families: a config is tried, on a device without
memory, and what it builds is held against the model.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from headwise.errors import ModelError
from headwise.models.cut_models import BLOCK
from headwise.models.load_errors import quiet
from headwise.pruning.surgery.cut import head_counts
from headwise.watching.sites import find_sites, output_weight


def public_class(model: nn.Module) -> type[PreTrainedModel]:
    """The public class of transformers that the model is of, whether its heads were cut or not."""
    for one in type(model).__mro__:
        if one.__module__.startswith("transformers.") and issubclass(one, PreTrainedModel):
            if not is_wrapped(type(model), one) or getattr(transformers, one.__name__, None) != one:
                break
            return one
    raise ModelError(
        f"{type(model).__name__} cannot be exported: it is not a public class of transformers, so "
        "no one else could build it; give a model that from_pretrained made"
    )


def is_wrapped(own: type, plain: type) -> bool:
    """Whether the class is the plain one, or that with the mixin that cuts and nothing else."""
    return own is plain or any(one.__name__ == "CutMixin" for one in own.__mro__)


def plain_config(model: PreTrainedModel) -> PreTrainedConfig | None:
    """A config without a cut's block that builds the model's very shapes; None where none does."""
    uncut = without_block(model.config)
    if not getattr(model.config, BLOCK, None):
        return uncut
    tried = (changed(uncut, counts) for counts in candidates(model, uncut))
    return next((one for one in tried if one is not None and fits(model, one)), None)


def without_block(config: PreTrainedConfig) -> PreTrainedConfig:
    """A copy of the config as of an uncut model whose weights are plain numbers."""
    bare: PreTrainedConfig = copy.deepcopy(config)
    for key in (BLOCK, "auto_map", "quantization_config"):
        if hasattr(bare, key):
            delattr(bare, key)
    return bare


def candidates(model: PreTrainedModel, uncut: PreTrainedConfig) -> Iterator[dict[str, int]]:
    """What a config may have to say of what is left, where all layers have as many heads left."""
    block = getattr(model.config, BLOCK)
    counts = set(head_counts(model).values())
    if len(counts) > 1 or uncut.sub_configs or block["emptied"] or block["biased"]:
        return
    num_heads, num_kv_heads = counts.pop()
    said = {"num_attention_heads": num_heads}
    if hasattr(uncut, "num_key_value_heads"):
        said["num_key_value_heads"] = num_kv_heads
    yield said
    yield said | {"head_dim": concat_size(model) // num_heads}


def concat_size(model: nn.Module) -> int:
    """How many numbers the heads of the first layer give together."""
    projection = find_sites(model)[0].output_projection
    assert projection is not None
    return output_weight(projection).shape[0]


def changed(uncut: PreTrainedConfig, counts: Mapping[str, int]) -> PreTrainedConfig | None:
    """The config with other counts, as it comes back from a file; None where it refuses them."""
    config = copy.deepcopy(uncut)
    try:
        for name, count in counts.items():
            setattr(config, name, count)
        read_back: PreTrainedConfig = type(config).from_dict(config.to_dict())
    except (StrictDataclassError, AttributeError, ValueError, TypeError):
        return None  # Llama's wants counts to divide hidden_size, Falcon's sets no head_dim
    return read_back


def fits(model: PreTrainedModel, config: PreTrainedConfig) -> bool:
    """Whether the plain class builds from the config what the model is, but for the values."""
    try:
        built = shell(public_class(model), config, model.dtype)
    except (ValueError, TypeError, RuntimeError):
        return False  # where heads of another size are impossible: BERT's must divide hidden_size
    return shapes(built) == shapes(model) and facts(built) == facts(model)


def shell(
    of: type[PreTrainedModel], config: PreTrainedConfig, dtype: torch.dtype
) -> PreTrainedModel:
    """A model of the class without memory for its weights; the config stays as it is."""
    build: Any = of._from_config
    with quiet(), torch.device("meta"):
        built: PreTrainedModel = build(copy.deepcopy(config), dtype=dtype)
    return built


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter and buffer, by name."""
    return {name: tuple(one.shape) for name, one in named_tensors(model).items()}


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer, tied ones under each of their names."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def facts(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Every number that a module of attention keeps, by the module's name: scales, counts."""
    return {
        place.name: {
            key: value
            for key, value in vars(place.module).items()
            if isinstance(value, int | float) and key != "training" and not key.startswith("_")
        }
        for place in find_sites(model)
    }
