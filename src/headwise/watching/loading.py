"""Loading: a model and its tokenizer by name, from a package, a directory or a model hub.

In: `minilm`, `smollm2`, a directory, or a hub id. Out: the model in evaluation mode, its tokenizer,
and what was loaded, so that a table can say what it is a table of. Pickled weights are never read,
and code that comes with a model runs only when asked for.
"""

import difflib
import functools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np
import torch
import transformers
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers.utils import logging

from headwise.errors import HeadwiseError, ModelError, OptionError
from headwise.hub import hub_answers
from headwise.watching import cut_models, embedded
from headwise.watching.cut_models import BLOCK, is_cut
from headwise.watching.models import LoadedModel
from headwise.watching.remarks import remark
from headwise.wording import listed

DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
AS_SAVED = "auto"
"""Stands for the dtype that a model's weights were saved in."""
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "*.model")
POOLERS, PREDICTORS = ("pooler", "pooling"), ("classifier", "lm_head")
"""Parts that a checkpoint may leave out, unless they are asked for: no attention comes after."""
LONGEST_REASON = 240
"""Characters of another library's error that fit into one readable sentence."""
PATCHED = RLock()
"""Held by whoever has changed what the whole process shares, until that is as it was."""
WHAT_WORKS = f"give {', '.join(embedded.MODELS)}, a directory, or, with a network, a hub's id"


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
            raise OptionError(f"dtype is {self.dtype!r}: choose from {', '.join(known)}")
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
        remark(
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


@contextmanager
def explained(name: str, *, is_here: bool = False) -> Iterator[None]:
    """Turn what transformers raises when a model cannot be had into one sentence.

    A model that `is_here` needs no network.
    """
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:  # files of others can make transformers fail in any way
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"{name} comes with code of its own, which runs only if you allow it: read it, "
                "then give --trust-remote-code, or LoadOptions(allows_remote_code=True)"
            ) from error
        if not is_here and (reason := hub_reason(error)):
            raise ModelError(f"{name} cannot be loaded{reason}; {WHAT_WORKS}") from error
        is_missed = os.environ.get("HF_HUB_OFFLINE") and not is_here
        offline = " (offline: HF_HUB_OFFLINE is set)" if is_missed else ""
        reason = one_sentence(error)
        if isinstance(error, SafetensorError):
            reason = f"a safetensors file of it is broken or was not copied whole: {reason}"
        elif not isinstance(error, OSError | ValueError | KeyError | ImportError | RuntimeError):
            reason = f"transformers could not make it of its config.json: {reason}"
        raise ModelError(f"{name} cannot be loaded{offline}: {reason}") from error


def hub_reason(error: BaseException | None) -> str:
    """Why a hub did not give a model, to be said after what failed; empty for other failures."""
    while error is not None:
        if isinstance(error, LocalEntryNotFoundError):
            missing = ["there is no directory of that name"]
            missing.append("no files of it were downloaded before")
            if constants.is_offline_mode():
                return f" (offline: HF_HUB_OFFLINE is set): {listed(missing)}"
            return f": {listed([*missing, f'{constants.ENDPOINT} does not answer'])}"
        if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
            return f": {constants.ENDPOINT} has no such model, or none that you may read"
        if isinstance(error, HFValidationError):
            return ": it is no directory, and no hub's id is written so"
        error = error.__cause__ or error.__context__
    return ""


def one_sentence(error: Exception) -> str:
    """What an error says, on one line and not at length: its first sentences, if it has several."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(said.split()) or type(error).__name__
    if len(text) <= LONGEST_REASON:
        return text
    whole, stop, _ = text[:LONGEST_REASON].rpartition(". ")
    return f"{whole}." if stop else f"{text[:LONGEST_REASON]}..."


@contextmanager
def parsed_once() -> Iterator[None]:
    """While it lasts a GGUF file is parsed once, not for config, weights and tokenizer each."""
    if find_spec("gguf") is None:
        yield
        return
    import gguf

    class Reader(gguf.GGUFReader):
        """Reads from a plain array: slices of a memmap, a million here, cost three seconds more."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    with PATCHED:
        kept = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
        for name, parse in {**kept, "GGUFReader": Reader}.items():
            setattr(gguf, name, functools.cache(parse))
        try:
            yield
        finally:
            for name, parse in kept.items():
                setattr(gguf, name, parse)


@contextmanager
def quiet() -> Iterator[None]:
    """transformers and the hub without bars and remarks, which are as they were afterwards."""
    with PATCHED:
        level, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        hub_level = hub_logging.get_verbosity()
        hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            with redirect_stderr(StringIO()):  # reading GGUF draws a bar that no setting stops
                yield
        finally:
            logging.set_verbosity(level)
            hub_logging.set_verbosity(hub_level)
            if had_bars:
                logging.enable_progress_bar()
