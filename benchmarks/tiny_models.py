"""A tiny random model of any model type of transformers, and an input that it reads.

In: a model type. Out: a model in eval mode on the CPU in float32, and the keyword arguments of a
forward pass. Sizes that do not fit are repaired: other sizes are tried until a pass succeeds.

    tiny = build("llama")
    tiny.model(**tiny.inputs)
"""

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    {"heads": 8, "head_dim": 8},
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


def build(model_type: str) -> TinyModel:
    """A tiny model of the type and its inputs; raises NotBuilt with the reasons."""
    reasons: dict[str, None] = {}
    for repair in REPAIRS:
        for model in tiny_models(model_type, replace(Sizes(), **repair), reasons):
            reasons.setdefault(f"{type(model).__name__}: no inputs fit its forward")
            for inputs in candidate_inputs(model):
                reason = why_not(model, inputs)
                if reason is None:
                    words = ", ".join(f"{name} {size}" for name, size in repair.items())
                    return TinyModel(model_type, model, inputs, words)
                reasons[f"{type(model).__name__}({', '.join(inputs)}): {reason}"] = None
    raise NotBuilt("\n".join(reasons) or "no model class")


def why_not(model: nn.Module, inputs: Inputs) -> str | None:
    """Why a forward pass fails; None if it succeeds with finite outputs."""
    try:
        outputs = run(model, inputs)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return None if outputs else "it has no outputs"


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
    model_type: str, sizes: Sizes, reasons: dict[str, None]
) -> Iterator[PreTrainedModel]:
    """Models of every class of the type that can be built with these sizes."""
    try:
        config = tiny_config(model_type, sizes)
    except Exception as error:
        reasons[f"config: {type(error).__name__}: {str(error)[:200]}"] = None
        return
    for kind in model_classes(model_type, type(config)):
        try:
            yield initialise(kind, config)
        except Exception as error:
            reasons[f"{kind.__name__}: {type(error).__name__}: {str(error)[:200]}"] = None


def initialise(kind: type[PreTrainedModel], config: PreTrainedConfig) -> PreTrainedModel:
    """A model with random weights, in eval mode."""
    with torch.device("meta"):
        size = sum(weight.numel() for weight in kind(config).parameters())
    if size > MOST_PARAMETERS:
        raise NotBuilt(f"it has {size:,} parameters")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)
        model = kind(config)
    return model.eval().float()


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
    return [*listed, *by_name.values()]


def add_names(names: dict[str, None], mapping: Any, model_type: str) -> None:
    """Add the class names that a mapping has for the type."""
    entry = mapping.get(model_type, ())
    names.update(dict.fromkeys([entry] if isinstance(entry, str) else entry))


def modeling_classes(config: type[PreTrainedConfig]) -> list[type[PreTrainedModel]]:
    """Every model class beside the config's class that is built from it."""
    path = config.__module__.replace(".configuration_", ".modeling_")
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError:
        return []
    return [
        kind
        for name, kind in vars(module).items()
        if inspect.isclass(kind)
        and issubclass(kind, PreTrainedModel)
        and not name.endswith("PreTrainedModel")
        and kind.__module__ == path
        and (kind.config_class is config or expects(kind, config))
    ]


def expects(kind: type[PreTrainedModel], config: type[PreTrainedConfig]) -> bool:
    """Whether the class's constructor is annotated with the config's class."""
    hint = inspect.signature(kind.__init__).parameters.get("config")
    return hint is not None and hint.annotation in (config, config.__name__)


__all__ = ["CONFIG_MAPPING", "MODEL_TYPES", "NotBuilt", "TinyModel", "build", "run"]
