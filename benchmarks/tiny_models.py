"""A tiny random model of any model type of transformers, and an input that it reads.

In: a model type. Out: a model in eval mode on the CPU in float32, and the keyword arguments of a
forward pass. Sizes that do not fit are repaired: other sizes are tried until a pass succeeds.

    tiny = build("llama")
    tiny.model(**tiny.inputs)
"""

import copy
import importlib
import inspect
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tiny_configs import tiny_config
from tiny_inputs import Inputs, candidate_inputs
from tiny_rules import Sizes
from torch import nn
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

MODEL_TYPES = tuple(CONFIG_MAPPING_NAMES)
SEED = 11
GAIN = 1.2
"""Standard deviation of what a linear layer returns for inputs of standard deviation 1."""
SHIFT = 0.2
"""Standard deviation of biases, and of norms' weights around their initial values."""
MOST_PARAMETERS = 80_000_000
PREFERRED = (
    "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "MASKED_LM",
    "CAUSAL_LM",
)  # fmt: skip
"""Kinds of model, best first; then the model without a head, then any other."""


class NotBuilt(Exception):
    """No model of the type could be built, or run on any input."""


@dataclass(frozen=True)
class TinyModel:
    """A tiny model and an input that it reads."""

    model_type: str
    model: PreTrainedModel
    inputs: Inputs
    repair: str
    """Sizes that differ from the usual ones; "" if none do."""


REPAIRS = (
    {},
    {"filled": True},
    {"mrope": True},
    {"inner": 256},
    {"mrope": True, "filled": True, "inner": 256},
    {"inner": 16},
    {"heads": 8, "head_dim": 8},
    {"hidden": 192, "head_dim": 48},
    {"layers": 4},
    {"image": 64},
    {"image": 64, "patch": 16, "layers": 4},
    {"hidden": 128, "heads": 8},
    {"image": 224, "patch": 16},
    {"hidden": 256, "heads": 8, "head_dim": 32, "inner": 256},
    {"head_dim": 32, "rope": 16, "hidden": 128},
    {"head_dim": 64, "hidden": 256, "rope": 64},
    {"vocabulary": 2048},
    {"vocabulary": 60_000},
    {"positions": 100_000},
    {"layers": 13, "hidden": 256},
    {"head_dim": 128, "hidden": 512},
    {"image": 640, "hidden": 256, "heads": 8, "layers": 6},
)


MEDIA = {"pixel_values", "input_features", "input_values"}
MEDIA_REPAIRS = 4
"""The last repair that is tried for the sake of images and sounds alone."""


def build(model_type: str) -> TinyModel:
    """A tiny model of the type and its inputs; raises NotBuilt with the reasons.

    A model that reads images or sounds beside text gets some if any of the first repairs helps.
    """
    reasons: dict[str, None] = {}
    tried: list[str] = []
    poorer: TinyModel | None = None
    for number, repair in enumerate(REPAIRS):
        for model in tiny_models(model_type, replace(Sizes(), **repair), reasons, tried):
            inputs = first_read(model, reasons)
            if inputs is not None:
                words = ", ".join(f"{name} {size}" for name, size in repair.items())
                tiny = TinyModel(model_type, model, inputs, words)
                if has_media(model, inputs):
                    return tiny
                poorer = poorer or tiny
        if poorer is not None and number >= MEDIA_REPAIRS:
            return poorer
    if poorer is not None:
        return poorer
    raise NotBuilt("\n".join(reasons) or "no model class")


def first_read(model: PreTrainedModel, reasons: dict[str, None]) -> Inputs | None:
    """The first inputs that the model reads; None, with the reasons, if there are none."""
    reasons.setdefault(f"{type(model).__name__}: no inputs fit its forward")
    for inputs in candidate_inputs(model):
        reason = why_not(model, inputs)
        if reason is None:
            return inputs
        reasons[f"{type(model).__name__}({', '.join(inputs)}): {reason}"] = None
    return None


def has_media(model: nn.Module, inputs: Inputs) -> bool:
    """Whether the inputs have images or sounds, or the model takes none."""
    taken = MEDIA & inspect.signature(model.forward).parameters.keys()
    return not taken or not taken.isdisjoint(inputs)


def why_not(model: nn.Module, inputs: Inputs) -> str | None:
    """Why a forward pass fails; None if it succeeds with finite outputs."""
    try:
        outputs = run(model, inputs)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    if not outputs:
        return "it has no outputs"
    return None if any(output.isfinite().all() for output in outputs) else "its outputs are NaN"


@torch.no_grad()
def run(model: nn.Module, inputs: Inputs) -> list[torch.Tensor]:
    """Every floating tensor that a forward pass returns, except those of a cache."""
    torch.manual_seed(SEED)
    return list(tensors_of(model(**inputs)))


def tensors_of(result: Any) -> Iterator[torch.Tensor]:
    """The floating tensors in nested outputs."""
    if isinstance(result, torch.Tensor):
        if result.is_floating_point() and result.numel():
            yield result
    elif isinstance(result, dict):
        for name, value in result.items():
            if "past" not in name and "cache" not in name and "attentions" not in name:
                yield from tensors_of(value)
    elif isinstance(result, list | tuple):
        for value in result:
            yield from tensors_of(value)


def tiny_models(
    model_type: str, sizes: Sizes, reasons: dict[str, None], tried: list[str]
) -> Iterator[PreTrainedModel]:
    """Models of every class of the type that can be built with these sizes, if not tried yet."""
    try:
        config = tiny_config(model_type, sizes)
    except Exception as error:
        reasons[f"config: {type(error).__name__}: {str(error)[:200]}"] = None
        return
    if (fields := config.to_json_string()) in tried:
        return
    tried.append(fields)
    for kind in model_classes(model_type, type(config)):
        try:
            yield initialise(kind, config)
        except ImportError as error:
            raise NotBuilt(f"{kind.__name__}: {' '.join(str(error).split())[:200]}") from error
        except Exception as error:
            reasons[f"{kind.__name__}: {type(error).__name__}: {str(error)[:200]}"] = None


def initialise(kind: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    """A model with random weights, in eval mode."""
    with torch.device("meta"):
        size = sum(weight.numel() for weight in kind(copy.deepcopy(config)).parameters())
    if size > MOST_PARAMETERS:
        raise NotBuilt(f"it has {size:,} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)
        model = kind(copy.deepcopy(config)).eval().float()
        spread_out(model)
    return model


@torch.no_grad()
def spread_out(model: nn.Module) -> None:
    """Draw larger weights: the usual ones make attention nearly uniform, biases and gates zero."""
    seen = set()  # tied weights are drawn once
    for module in model.modules():
        for weight in module.parameters(recurse=False):
            if id(weight) in seen or not weight.is_floating_point():
                continue
            seen.add(id(weight))
            noise = torch.randn_like(weight)
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and weight is module.weight:
                weight.copy_(1 + SHIFT * noise)  # VitMatte's begin near zero and hide the rest
            elif weight.dim() < 2:
                weight.add_(SHIFT * noise)
            elif isinstance(module, nn.Embedding):
                weight.copy_(noise)
            else:
                weight.copy_(GAIN * noise / math.sqrt(fan_in(module, weight)))


def fan_in(module: nn.Module, weight: torch.Tensor) -> int:
    """Number of terms in each sum that the module computes with the weight."""
    if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
        return weight[0].numel()
    return max(weight.shape[-2], 8)  # GPT-2's Conv1D and most experts: [..., in, out]


def model_classes(model_type: str, config: type[PreTrainedConfig]) -> list[type[PreTrainedModel]]:
    """Model classes of a type: the one that writes text first, then the one without a head."""
    names: dict[str, None] = {}
    for task in PREFERRED:
        add_names(names, getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES"), model_type)
    add_names(names, modeling_auto.MODEL_MAPPING_NAMES, model_type)
    found = modeling_classes(config)
    for name in dir(modeling_auto):
        if name.endswith("_MAPPING_NAMES"):
            add_names(names, getattr(modeling_auto, name), model_type)
    by_name = {kind.__name__: kind for kind in found}
    listed = [by_name.pop(name) for name in names if name in by_name]
    kinds = [*listed, *by_name.values()]
    return [kind for kind in kinds if not kind.__name__.endswith("Backbone")] or kinds


def add_names(names: dict[str, None], mapping: Any, model_type: str) -> None:
    """Add the class names that a mapping has for the type."""
    entry = mapping.get(model_type, ())
    names.update(dict.fromkeys([entry] if isinstance(entry, str) else entry))


def modeling_classes(config: type[PreTrainedConfig]) -> list[type[PreTrainedModel]]:
    """Every model class beside the config's class that is built from it."""
    package = importlib.import_module(config.__module__.rpartition(".")[0])
    paths = sorted(Path(package.__path__[0]).glob("modeling_*.py"))
    modules = [importlib.import_module(f"{package.__name__}.{path.stem}") for path in paths]
    return [
        kind
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind)
        and issubclass(kind, PreTrainedModel)
        and not name.endswith("PreTrainedModel")
        and kind.__module__ == module.__name__
        and (kind.config_class is config or expects(kind, config))
    ]


def expects(kind: type[PreTrainedModel], config: type[PreTrainedConfig]) -> bool:
    """Whether the class's constructor is annotated with the config's class."""
    hint = inspect.signature(kind.__init__).parameters.get("config")
    return hint is not None and hint.annotation in (config, config.__name__)


__all__ = ["CONFIG_MAPPING", "MODEL_TYPES", "NotBuilt", "TinyModel", "build", "run"]
