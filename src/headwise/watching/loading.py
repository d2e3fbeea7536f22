"""Loading: a model and its tokenizer by name, from a package, a directory or a model hub.

In: `minilm`, `smollm2`, a directory, or a hub id. Out: the model in evaluation mode, its tokenizer,
and what was loaded, so that a table can say what it is a table of. Pickled weights are never read,
and code that comes with a model runs only when asked for.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer, logging
from transformers.utils import logging as transformers_logging

from headwise.errors import ModelError, OptionError
from headwise.watching import embedded

DTYPES = {
    name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")
}


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded."""

    dtype: str = "float32"
    device: str = "cpu"
    revision: str | None = None
    allows_remote_code: bool = False
    device_map: str | None = None
    """transformers' own: layers spread over devices, e.g. `auto`."""
    tp_plan: str | None = None
    """transformers' own: tensors split over processes, e.g. `auto`, under torchrun."""

    def __post_init__(self) -> None:
        """Refuse what no model could be loaded with."""
        if self.dtype not in DTYPES:
            raise OptionError(f"dtype is {self.dtype!r}: choose from {', '.join(DTYPES)}")


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to read text."""

    name: str
    model: nn.Module
    tokenizer: Any
    about: dict[str, Any] = field(default_factory=dict)
    """Where it came from: path or id, revision, digest, class, dtype."""


def load_model(name: str, options: LoadOptions | None = None) -> LoadedModel:
    """The model of that name, in evaluation mode, without what it was trained to predict with."""
    options = options or LoadOptions()
    if name in embedded.MODELS:
        return load_embedded(name, options)
    if not Path(name).is_dir() and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        raise ModelError(f"{name} is no directory: give one with config.json and safetensors files")
    about: dict[str, Any] = {"source": name, "revision": options.revision}
    return loaded(name, name, options, about)


def load_embedded(name: str, options: LoadOptions) -> LoadedModel:
    """One of the two models that come as packages, its weights checked against their digest."""
    facts, path = embedded.MODELS[name], embedded.find(name)
    if path is None:
        raise ModelError(f"the model {name} is not installed: {facts.install_line}")
    found = embedded.digest(path)
    if found != facts.sha256:
        raise ModelError(
            f"{path.name} of {facts.package} is not the published file: its SHA-256 is "
            f"{found[:12]}..., not {facts.sha256[:12]}...; install it again"
        )
    about = {"source": f"{facts.package} {facts.version}", "sha256": found}
    extra = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    return loaded(name, str(path.parent), options, about, **extra)


def loaded(
    name: str, source: str, options: LoadOptions, about: dict[str, Any], **extra: Any
) -> LoadedModel:
    """Model and tokenizer from a directory or hub id."""
    common: dict[str, Any] = {"trust_remote_code": options.allows_remote_code, **extra}
    if options.revision is not None:
        common["revision"] = options.revision
    places = {"device_map": options.device_map, "tp_plan": options.tp_plan}
    with quiet(), explained(name):
        model = AutoModel.from_pretrained(
            source,
            dtype=DTYPES[options.dtype],
            use_safetensors=None if extra else True,
            **common,
            **{key: value for key, value in places.items() if value is not None},
        )
        tokenizer = tokenizer_of(source, model, common)
    if options.device_map is None and options.tp_plan is None:
        model = model.to(options.device)
    about |= {"class": type(model).__name__, "dtype": options.dtype}
    about |= {"commit": getattr(model.config, "_commit_hash", None)}
    return LoadedModel(name, model.eval(), tokenizer, about)


def tokenizer_of(source: str, model: nn.Module, common: dict[str, Any]) -> Any:
    """The model's tokenizer; None for a model that reads no text."""
    if not hasattr(model.config, "vocab_size") and not hasattr(model.config, "text_config"):
        return None
    return AutoTokenizer.from_pretrained(source, **common)


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn what transformers raises when a model cannot be had into one sentence."""
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = " ".join(str(error).split())
        reason = reason if len(reason) < 300 else f"{reason[:300]}..."
        offline = " (offline: HF_HUB_OFFLINE is set)" if os.environ.get("HF_HUB_OFFLINE") else ""
        raise ModelError(
            f"{name} cannot be loaded{offline}: {reason or type(error).__name__}"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """transformers without its progress bars and remarks, which are as they were afterwards."""
    level = logging.get_verbosity()
    had_bars = transformers_logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bars:
            transformers_logging.enable_progress_bar()


