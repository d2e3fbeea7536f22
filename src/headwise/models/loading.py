"""Loading: reads a model and its tokenizer from a package, a directory or a model hub.

Pickled weights are never read, and a model's own code runs only if `LoadOptions` allows it.
"""

import difflib
import inspect
import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import try_to_load_from_cache
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
)

from headwise.errors import ModelError, OptionError, warn_user
from headwise.hub import hub_answers
from headwise.models import embedded
from headwise.models.bos_tokens import missing_bos
from headwise.models.exported_folder import BLOCK, find_cut_class
from headwise.models.gguf_files import (
    SUFFIX,
    check_gguf_file,
    check_gguf_packages,
    has_tokenizer,
    load_gguf_tokenizer,
)
from headwise.models.load_errors import explain_errors, one_sentence, parse_gguf_once, quiet
from headwise.models.loaded import LoadedModel
from headwise.models.modalities import kind_instead_of_text

DTYPES = {name: getattr(torch, name) for name in ("float64", "float32", "bfloat16", "float16")}
AS_SAVED = "auto"
"""Name for the dtype in which the weights were saved."""
POOLERS, PREDICTORS = ("pooler", "pooling"), ("classifier", "lm_head")
"""Parts after the last attention layer, which a checkpoint may lack unless they are needed."""


@dataclass(frozen=True)
class LoadOptions:
    """How to load a model."""

    dtype: str | torch.dtype = "float32"
    device: str = "cpu"
    revision: str | None = None
    allows_remote_code: bool = False
    device_map: str | None = None
    """Passed to transformers to spread layers over devices, such as "auto"."""
    keeps_head: bool = False
    """Whether to load the prediction head that the config names."""
    needs_tokenizer: bool = True
    """Whether to reject the directory of a model that reads text if it contains no tokenizer."""

    def __post_init__(self) -> None:
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
            raise OptionError(
                f"device is {self.device!r}, which is not available here: use cpu "
                f"({one_sentence(error)})",
                option="device",
            ) from error


def load_model(name: str | PathLike[str], options: LoadOptions | None = None) -> LoadedModel:
    """Load a model by name in evaluation mode, by default without its prediction head."""
    if not isinstance(name, str | PathLike) or not str(name):
        raise ModelError(f"{name!r} is not the name of a model: {embedded.WHAT_WORKS}")
    if options is not None and not isinstance(options, LoadOptions):
        raise OptionError(f"options is a {type(options).__name__}: pass LoadOptions(...)")
    options, name = options or LoadOptions(), os.fspath(name)
    folder = Path(name).expanduser()
    if options.revision is not None and (name in embedded.MODELS or folder.exists()):
        raise OptionError(
            f"revision is {options.revision!r}, but {name} has no revisions: only hub ids do",
            option="revision",
        )
    if name in embedded.MODELS:
        return _load_embedded(name, options)
    if folder.is_dir():
        _check_files(folder)
    elif folder.suffix == SUFFIX and folder.is_file():
        return _load_gguf(name, folder, options)
    elif folder.exists():
        raise ModelError(
            f"{name} is a file: pass the directory that contains config.json, or a GGUF file"
        )
    elif name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError(
            f"there is no directory {name}: pass one with config.json and safetensors files"
        )
    elif "/" not in name and (near := difflib.get_close_matches(name.lower(), embedded.MODELS)):
        raise ModelError(f"unknown model {name}: did you mean {near[0]}?")
    source = str(folder) if folder.is_dir() else name
    model = _load_files(name, source, options, {"source": name, "revision": options.revision})
    _check_not_nan(name, model.model)
    return model


def load(
    path: str | Path, *, dtype: str | None = None, device: str = "cpu", keeps_head: bool = True
) -> LoadedModel:
    """Load an exported model with its prediction head, and its tokenizer if it has one.

    By default, weights keep the dtype in which they were saved. `path` may also be a name for
    `load_model`; such a model is loaded in float32 by default.
    """
    is_name = not isinstance(path, str | PathLike) or not Path(path).expanduser().is_dir()
    default = "float32" if is_name else AS_SAVED
    options = LoadOptions(dtype or default, device, keeps_head=keeps_head, needs_tokenizer=False)
    return load_model(path, options)


def _load_gguf(name: str, path: Path, options: LoadOptions) -> LoadedModel:
    """Load a model from a GGUF file of the user's."""
    check_gguf_file(path)
    loaded = _load_files(name, str(path.parent), options, {"source": name}, path.name)
    _check_not_nan(name, loaded.model)
    return replace(loaded, folder=None)  # the other files in the folder need not be the model's


def _check_files(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        files = sorted(folder.glob(f"*{SUFFIX}"))
        advice = f"; pass {files[0]} for the model in that file" if files else ""
        raise ModelError(f"{folder} is not a model directory: it has no config.json{advice}")
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(file.name for file in [*folder.glob("*.bin"), *folder.glob("*.pt*")])
    if pickles:
        raise ModelError(
            f"{folder} has only pickled weights ({pickles[0]}), which can run arbitrary code and "
            "are never read: save them again with save_pretrained, which writes safetensors"
        )
    raise ModelError(f"{folder} has no weights: it has no safetensors file")


def _load_embedded(name: str, options: LoadOptions) -> LoadedModel:
    """Load one of the two packaged models after checking the digest of its weights."""
    facts, path = embedded.MODELS[name], embedded.find_embedded(name)
    if path is None:
        raise ModelError(f"the model {name} is not installed: {facts.install_line}")
    digest = embedded.file_sha256(path)
    if digest != facts.sha256:
        raise ModelError(
            f"{path.name} in {facts.package} is not the published file: its SHA-256 is "
            f"{digest[:12]}..., not {facts.sha256[:12]}...; install it again"
        )
    about = {"source": f"{facts.package} {facts.version}", "sha256": digest}
    gguf_file = path.name if path.suffix == SUFFIX else ""
    if gguf_file:
        check_gguf_packages()
    return _load_files(name, str(path.parent), options, about, gguf_file)


def _load_files(
    name: str, source: str, options: LoadOptions, about: dict[str, Any], gguf_file: str = ""
) -> LoadedModel:
    common: dict[str, Any] = {"trust_remote_code": options.allows_remote_code}
    optional = {"revision": options.revision, "gguf_file": gguf_file}
    common |= {key: value for key, value in optional.items() if value}
    is_local = Path(source).is_dir()
    if not is_local and not hub_answers():
        common["local_files_only"] = True
    parsing = parse_gguf_once() if gguf_file else nullcontext()
    with quiet(), explain_errors(name, is_local=is_local), parsing:
        model, notes = _model_class(name, source, options, common).from_pretrained(
            source,
            dtype=DTYPES.get(str(options.dtype), AS_SAVED),
            use_safetensors=None if gguf_file else True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # so that _check_complete can name and reject them
            device_map=options.device_map,
            **common,
        )
        _check_complete(name, notes, keeps_head=options.keeps_head)
        tokenizer, remark = _load_tokenizer(
            source, model, common, is_needed=options.needs_tokenizer
        )
    if remark:
        warn_user(remark)
    _attend_fully(name, model)
    if options.keeps_head and not gguf_file and not model.config.architectures:
        warn_user(
            f"{name} is loaded without its prediction head: its config.json does not name the "
            "class it was saved from; add it there under architectures"
        )
    if options.device_map is None:
        model = model.to(options.device)
    about |= {
        "class": type(model).__name__,
        "dtype": str(model.dtype).removeprefix("torch."),
        "commit": getattr(model.config, "_commit_hash", None),
    }
    if block := getattr(model.config, BLOCK, None):
        about["kept"] = block["kept"]
    if not is_local:
        cached = try_to_load_from_cache(source, "config.json", revision=options.revision)
        source = str(Path(cached).parent) if isinstance(cached, str) else ""
    folder = Path(source) if source else None
    return LoadedModel(name, model.eval(), tokenizer, about, folder)


def _attend_fully(name: str, model: nn.Module) -> None:
    """Make BigBird attend fully, with a warning.

    It replaces its attention modules for good when it first reads a text below some length, so they
    could not be watched.
    """
    parts: list[Any] = [part for part in model.modules() if hasattr(part, "set_attention_type")]
    sparse = [part for part in parts if getattr(part, "attention_type", "") == "block_sparse"]
    for part in sparse:
        part.set_attention_type("original_full")
    if sparse:
        config: Any = model.config
        config.attention_type = "original_full"  # a cut model is built from it
        warn_user(
            f"{name} attends to blocks of long texts, but to all of a short one; headwise watches "
            "it with full attention"
        )


def _model_class(name: str, source: str, options: LoadOptions, common: dict[str, Any]) -> Any:
    cut_class = find_cut_class(Path(source), keeps_head=options.keeps_head)
    if cut_class is not None:
        return cut_class
    if not options.keeps_head:
        return AutoModel
    config: Any = AutoConfig.from_pretrained(source, **common)
    if "gguf_file" in common:
        return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    if not config.architectures:
        return AutoModel
    class_name = config.architectures[0]
    known = getattr(transformers, class_name, None)
    if isinstance(known, type) and issubclass(known, PreTrainedModel):
        return known
    for auto, path in (getattr(config, "auto_map", None) or {}).items():
        if str(path).rpartition(".")[2] == class_name and hasattr(transformers, auto):
            return getattr(transformers, auto)
    raise ModelError(
        f"{name} cannot be loaded with its prediction head: its config.json names {class_name!r}, "
        f"which transformers {transformers.__version__} does not have; install a version that has "
        "it, or name another class there"
    )


def _check_complete(name: str, notes: dict[str, Any], *, keeps_head: bool) -> None:
    """Raise ModelError if needed weights are missing or have wrong shapes: they would be random."""
    for key, in_file, in_model in sorted(notes["mismatched_keys"], key=lambda row: row[0]):
        raise ModelError(
            f"{name} cannot be loaded: its config.json does not match its weights: {key} is "
            f"{list(in_file)} in the files, but {list(in_model)} according to the config"
        )
    unused = POOLERS if keeps_head else POOLERS + PREDICTORS
    needed = sorted(key for key in notes["missing_keys"] if not any(part in key for part in unused))
    if needed:
        raise ModelError(
            f"{name} cannot be loaded: its files lack {len(needed)} of the model's weights, such "
            f"as {needed[0]}, which would be random numbers; use a complete checkpoint"
        )


@torch.no_grad()
def _check_not_nan(name: str, model: nn.Module) -> None:
    """Raise ModelError if a weight is NaN, because every result would be NaN."""
    for key, weight in model.named_parameters():
        is_checked = weight.dtype in DTYPES.values() and not weight.is_meta
        # The sum comes first: it is fast to compute, and NaN if any term is.
        if is_checked and weight.sum().isnan() and (count := int(weight.isnan().sum())):
            raise ModelError(
                f"{name} cannot be measured: {key} has {count:,} NaN values out of "
                f"{weight.numel():,}, so every result would be NaN; use a checkpoint without NaN"
            )


def _load_tokenizer(
    source: str, model: nn.Module, common: dict[str, Any], *, is_needed: bool
) -> tuple[Any, str]:
    """The model's tokenizer, None for a model that does not read text, and a remark on it."""
    config: Any = model.config
    words = getattr(config.get_text_config(), "vocab_size", None)
    sizes = [part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)]
    has_words = words is not None and max(sizes, default=0) >= words
    if not has_words and "input_ids" not in inspect.signature(model.forward).parameters:
        return None, ""  # CANINE and I-BERT read text, but their embeddings have other sizes
    folder, file = Path(source), common.get("gguf_file")
    if file is None and folder.is_dir() and not has_tokenizer(folder):
        if not is_needed or kind_instead_of_text(model):
            return None, ""
        raise ModelError(
            f"{source} has no tokenizer: save one there with tokenizer.save_pretrained"
        )
    with explain_errors(f"the tokenizer of {source}", is_local=folder.is_dir()):
        if file is not None:
            return load_gguf_tokenizer(folder / file, common)
        tokenizer = AutoTokenizer.from_pretrained(source, **common)
    remark = missing_bos(tokenizer, config.model_type, _tokenizer_config(source, common))
    return tokenizer, remark and f"the tokenizer of {source} {remark}"


def _tokenizer_config(source: str, common: dict[str, Any]) -> Path | None:
    if Path(source).is_dir():
        return Path(source) / "tokenizer_config.json"
    file = try_to_load_from_cache(source, "tokenizer_config.json", revision=common.get("revision"))
    return Path(file) if isinstance(file, str) else None
