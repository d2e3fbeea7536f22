"""Sample inputs: small inputs that a model may accept, made from its config alone.

In: a model. Out: tensors by input name, the most likely ones first. Experiments on a model's
modules run it on these unless the user gives inputs; the values are random, because only the
structure of the modules is studied.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from headwise.reading.batch import Inputs, has_decoder

BATCH, LENGTH, SEED = 2, 7, 5
SOUND = 16_000
"""Number of samples of sound: a second, for most models."""


def sample_inputs(model: nn.Module) -> Iterator[Inputs]:
    """The model's main input alone, then together with all others that can be made."""
    parameters = inspect.signature(model.forward).parameters
    main = getattr(model, "main_input_name", "input_ids")
    known = [name for name in _MAKERS if name in parameters]
    first = [main] if main in known else known[:1]
    if has_decoder(getattr(model, "config", None)) and "decoder_input_ids" in known:
        first.append("decoder_input_ids")
    for names in filter(None, dict.fromkeys([tuple(first), tuple(known)])):
        yield _make(model, names)
    if "input_values" in first:  # some models of sound have an axis for channels
        yield {name: value[:, None] for name, value in _make(model, tuple(first)).items()}


def _make(model: nn.Module, names: tuple[str, ...]) -> dict[str, Tensor]:
    random, config = torch.Generator().manual_seed(SEED), getattr(model, "config", None)
    parameter = next(model.parameters())
    inputs = {name: _MAKERS[name](config, random) for name in names}
    return {
        name: value.to(parameter.device, parameter.dtype if value.is_floating_point() else None)
        for name, value in inputs.items()
    }


def _ids(config: Any, random: torch.Generator) -> Tensor:
    try:
        text = config.get_text_config()
    except (AttributeError, ValueError):  # it has none, or several
        text = config
    size = getattr(text, "vocab_size", None) or 8
    return torch.randint(min(1, size - 1), size, (BATCH, LENGTH), generator=random)


def _pixels(config: Any, random: torch.Generator) -> Tensor:
    vision = getattr(config, "vision_config", config)
    size = getattr(vision, "image_size", None) or 32
    height, width = size if isinstance(size, list | tuple) else (size, size)
    shape = (BATCH, getattr(vision, "num_channels", 3), height, width)
    return torch.randn(shape, generator=random)


def _states(config: Any, random: torch.Generator) -> Tensor:
    sizes = ("cross_attention_hidden_size", "hidden_size")
    size = next(filter(None, (getattr(config, name, None) for name in sizes)), 8)
    return torch.randn((BATCH, LENGTH + 4, size), generator=random)


def _features(config: Any, random: torch.Generator) -> Tensor:
    bins = getattr(config, "num_mel_bins", 80)
    frames = 2 * getattr(config, "max_source_positions", 50)
    return torch.randn((BATCH, bins, frames), generator=random)


def _sound(_: Any, random: torch.Generator) -> Tensor:
    return torch.randn((BATCH, SOUND), generator=random)


_MAKERS = {
    "input_ids": _ids,
    "pixel_values": _pixels,
    "input_features": _features,
    "input_values": _sound,
    "decoder_input_ids": _ids,
    "encoder_hidden_states": _states,
}
