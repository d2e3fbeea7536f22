"""Loading: a model and its tokenizer by name, from a package, a directory or a model hub.

In: `minilm`, `smollm2`, a directory, or a hub id. Out: the model in evaluation mode, its tokenizer,
and what was loaded, so that a table can say what it is a table of. Pickled weights are never read,
and code that comes with a model runs only when asked for.
"""

import difflib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)

from headwise.errors import ModelError, OptionError, warn_user
from headwise.hub import hub_answers
from headwise.models import cut_models, embedded
from headwise.models.cut_models import BLOCK, is_cut
from headwise.models.load_errors import WHAT_WORKS, explained, one_sentence, parsed_once, quiet
from headwise.models.loaded import LoadedModel

DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
AS_SAVED = "auto"
"""Stands for the dtype that a model's weights were saved in."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "*.model")
POOLERS, PREDICTORS = ("pooler", "pooling"), ("classifier", "lm_head")
"""Parts that a checkpoint may leave out, unless they are asked for: no attention comes after."""


@dataclass(frozen=True)
class LoadOptions:
    """How a model is loaded."""

    dtype: str | torch.dtype = "float32"
    device: str = "cpu"
    revision: str | None = None
    allows_remote_code: bool = False
    device_map: str | None = None
    """transformers' own: layers spread over devices, e.g. `auto`."""
    keeps_head: bool = False
    """Whether the model is loaded with what it predicts with, as its config names it."""
    needs_tokenizer: bool = True
    """Whether a directory of a model that reads text is refused if it holds no tokenizer."""

    def __post_init__(self) -> None:
        """Refuse what no model could be loaded with."""
        if isinstance(self.dtype, torch.dtype):
            object.__setattr__(self, "dtype", str(self.dtype).removeprefix("torch."))
        known = (*DTYPES, AS_SAVED)
        if self.dtype not in known:
            raise OptionError(
                f"dtype is {self.dtype!r}: choose from {', '.join(known)}", option="dtype"
            )
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            reason = one_sentence(error)
            raise OptionError(
                f"device {self.device!r} is not available here, though cpu is: {reason}"
            ) from error


def load_model(name: str | os.PathLike[str], options: LoadOptions | None = None) -> LoadedModel:
    """The model of that name, in evaluation mode; by default without what it predicts with."""
    if not isinstance(name, str | os.PathLike) or not str(name):
        raise ModelError(f"{name!r} names no model: {WHAT_WORKS}")
    if options is not None and not isinstance(options, LoadOptions):
        raise OptionError(f"options is a {type(options).__name__}: give LoadOptions(...)")
    options, name = options or LoadOptions(), os.fspath(name)
    folder = Path(name).expanduser()
    if options.revision is not None and (name in embedded.MODELS or folder.exists()):
        raise OptionError(
            f"the revision is {options.revision!r}, and {name} has none: a revision is for hub ids"
        )
    if name in embedded.MODELS:
        return load_embedded(name, options)
    if folder.is_dir():
        check_folder(folder)
    elif folder.exists():
        raise ModelError(f"{name} is a file: give the directory that config.json is in")
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError(
            f"there is no directory {name}: give one with config.json and safetensors files"
        )
    elif "/" not in name and (near := difflib.get_close_matches(name.lower(), embedded.MODELS)):
        raise ModelError(f"there is no model {name}: did you mean {near[0]}?")
    source = str(folder) if folder.is_dir() else name
    found = loaded(name, source, options, {"source": name, "revision": options.revision})
    check_numbers(name, found.model)
    return found


def check_folder(folder: Path) -> None:
    """Raise unless the folder holds a model whose weights are safe to read."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} holds no model: it has no config.json")
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(file.name for file in [*folder.glob("*.bin"), *folder.glob("*.pt*")])
    if pickles:
        raise ModelError(
            f"{folder} holds pickled weights alone ({pickles[0]}), which can run any code and are "
            "never read: save them again with save_pretrained, which writes safetensors"
        )
    raise ModelError(f"{folder} holds no weights: it has no safetensors file")


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
    file = path.name if path.suffix == ".gguf" else None
    return loaded(name, str(path.parent), options, about, gguf_file=file)


def loaded(
    name: str,
    source: str,
    options: LoadOptions,
    about: dict[str, Any],
    *,
    gguf_file: str | None = None,
) -> LoadedModel:
    """Model and tokenizer from a directory or hub id."""
    common: dict[str, Any] = {"trust_remote_code": options.allows_remote_code}
    optional = {"revision": options.revision, "gguf_file": gguf_file}
    common |= {key: value for key, value in optional.items() if value is not None}
    is_here = Path(source).is_dir()
    if not is_here and not hub_answers():
        common["local_files_only"] = True
    with quiet(), explained(name, is_here=is_here), parsed_once():
        model, notes = class_of(name, source, options, common).from_pretrained(
            source,
            dtype=DTYPES.get(str(options.dtype), AS_SAVED),
            use_safetensors=True if gguf_file is None else None,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that they can be named: none is accepted below
            device_map=options.device_map,
            **common,
        )
        check_sizes(name, notes["mismatched_keys"])
        check_complete(name, notes["missing_keys"], keeps_head=options.keeps_head)
        tokenizer = tokenizer_of(source, model, common, is_needed=options.needs_tokenizer)
    if options.keeps_head and gguf_file is None and not model.config.architectures:
        warn_user(
            f"{name} is loaded without what it predicts with, for its config.json does not name "
            "the class, as architectures, that it was saved from"
        )
    if options.device_map is None:
        model = model.to(options.device)
    dtype = str(model.dtype).removeprefix("torch.")
    about |= {"class": type(model).__name__, "dtype": dtype}
    about |= {"commit": getattr(model.config, "_commit_hash", None)}
    about |= {"kept": block["kept"]} if (block := getattr(model.config, BLOCK, None)) else {}
    return LoadedModel(name, model.eval(), tokenizer, about)


def class_of(name: str, source: str, options: LoadOptions, common: dict[str, Any]) -> Any:
    """The class of transformers that a model is loaded as."""
    if is_cut(Path(source)):
        return cut_models.class_of(Path(source), keeps_head=options.keeps_head)
    if not options.keeps_head:
        return AutoModel
    if "gguf_file" in common:
        return AutoModelForCausalLM
    config = AutoConfig.from_pretrained(source, **common)
    return headed_class(name, config) if config.architectures else AutoModel


def headed_class(name: str, config: Any) -> Any:
    """The class that a config names: one of transformers, or of the code that comes with it."""
    wanted = config.architectures[0]
    found = getattr(transformers, wanted, None)
    if isinstance(found, type) and issubclass(found, PreTrainedModel):
        return found
    own = getattr(config, "auto_map", None) or {}
    autos = {str(path).rpartition(".")[2]: auto for auto, path in own.items()}
    if hasattr(transformers, autos.get(wanted, "")):
        return getattr(transformers, autos[wanted])
    raise ModelError(
        f"{name} cannot be loaded with what it predicts with: its config.json names {wanted!r}, "
        f"which transformers {transformers.__version__} does not have; install a version that has "
        "it, or name one of its classes there"
    )


def check_complete(name: str, missing: set[str], *, keeps_head: bool) -> None:
    """Raise where weights that matter are not in the files: they would be random numbers."""
    unused = POOLERS if keeps_head else POOLERS + PREDICTORS
    needed = sorted(key for key in missing if not any(part in key for part in unused))
    if needed:
        raise ModelError(
            f"{name} cannot be loaded: its files lack {len(needed)} of the model's weights, "
            f"{needed[0]} for one, which would be random numbers"
        )


def check_sizes(name: str, mismatched: Iterable[tuple[str, Any, Any]]) -> None:
    """Raise where weights in the files are of other sizes than the config says."""
    for key, in_file, in_model in sorted(mismatched, key=lambda one: one[0]):
        raise ModelError(
            f"{name} cannot be loaded: its config.json does not fit its weights: {key} is "
            f"{list(in_file)} in the files, and {list(in_model)} by the config"
        )


@torch.no_grad()
def check_numbers(name: str, model: nn.Module) -> None:
    """Raise where a weight is NaN, which every result would be, too.

    A sum is read at the speed of memory, and is NaN where a part of it is.
    """
    for key, weight in model.named_parameters():
        is_checked = weight.dtype in DTYPES.values() and not weight.is_meta
        if is_checked and weight.sum().isnan() and (count := int(weight.isnan().sum())):
            raise ModelError(
                f"{name} cannot be measured: {key} holds {count:,} NaN among {weight.numel():,} "
                "numbers, and so would every result: save the model anew"
            )


def reads_text(model: nn.Module) -> bool:
    """Whether some embedding of the model has a row for every word that its config counts."""
    config: Any = model.config
    words = getattr(config.get_text_config(), "vocab_size", None)
    sizes = [one.num_embeddings for one in model.modules() if isinstance(one, nn.Embedding)]
    return words is not None and max(sizes, default=0) >= words


def tokenizer_of(
    source: str, model: nn.Module, common: dict[str, Any], *, is_needed: bool = True
) -> Any:
    """The model's tokenizer; None for a model that reads no text."""
    if not reads_text(model):
        return None
    folder = Path(source)
    is_here = any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES)
    if folder.is_dir() and not is_here and "gguf_file" not in common:
        if not is_needed:
            return None
        raise ModelError(
            f"{source} holds no tokenizer: save it there, too, with tokenizer.save_pretrained"
        )
    with explained(f"the tokenizer of {source}", is_here=folder.is_dir()):
        return AutoTokenizer.from_pretrained(source, **common)


def load(
    path: str | Path, *, dtype: str | None = None, device: str = "cpu", keeps_head: bool = True
) -> LoadedModel:
    """The model as it was exported, with what it predicts with, and its tokenizer if it has one.

    Weights come in the dtype that they were saved in unless another is named. What is no directory
    is a name, and loaded as `load_model` does, then in float32 by default.
    """
    is_name = not isinstance(path, str | PathLike) or not Path(path).expanduser().is_dir()
    usual = "float32" if is_name else AS_SAVED
    options = LoadOptions(dtype or usual, device, keeps_head=keeps_head, needs_tokenizer=False)
    return load_model(path, options)


def model_of(folder: Path) -> Any:
    """The model that a directory holds, cut or plain, in evaluation mode, as it was saved."""
    options = LoadOptions(AS_SAVED, keeps_head=True, needs_tokenizer=False)
    return loaded(str(folder), str(folder), options, {}).model
