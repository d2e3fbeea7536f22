"""Export: write a model to a directory, and check that it loads back unchanged.

In: a model and the extra files for its directory. Out: a directory with safetensors, config.json
and a model card. It is a plain checkpoint if transformers can build the cut model from a config;
otherwise it includes code that cuts a new model. The directory is written under a temporary name,
loaded, compared with the model, and only then moved into place (`directories.py`).
"""

import inspect
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from headwise.errors import ModelError, OptionError
from headwise.models import exported_modeling
from headwise.models.exported_folder import BLOCK, bare_class, cut_class, empty_model
from headwise.models.load_errors import explain_errors, one_sentence, quiet
from headwise.models.loading import load
from headwise.pruning.export.directories import file_sizes, replace_directory
from headwise.pruning.export.model_card import CODE, model_card
from headwise.pruning.export.plain_config import (
    plain_config,
    public_class,
    tensor_shapes,
    without_block,
)
from headwise.pruning.surgery.layer_outputs import layer_outputs
from headwise.reading.batch import Inputs
from headwise.watching.equivalence import check_equivalence, in_full_precision, tensors_by_name

SENTENCE_FILES = ("config_sentence_transformers.json", "sentence_bert_config.json")
"""Files that sentence-transformers reads in addition to modules.json."""
REPLACED = re.compile(
    r".+\.(safetensors|bin|pt|pth|ckpt|h5|msgpack|gguf|ggml|onnx|data|py|index\.json)"
    r"|(prune|plan|importance)\.json|curve\.(csv|svg)|README\.md|config\.json|adapter_.+"
)
"""Names of files not to copy from the uncut model's directory: weights, code, and what describes
them. Every other file is copied."""
TOKENIZER_EXTRAS = ("special_tokens_map.json", "added_tokens.json")
"""Files that an older version wrote in addition to a tokenizer's own."""


@dataclass(frozen=True)
class Export:
    """An exported directory, and how much the model loaded from it differs from the original."""

    path: Path
    is_plain: bool
    """Whether transformers loads the directory without extra code."""
    difference: float | None
    """Largest difference, due to rounding, between the models' outputs; None without inputs."""
    files: Mapping[str, int]
    """Size of every file in bytes, by path relative to the directory."""

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(self.files.values())


def export(
    model: nn.Module,
    out: Path,
    *,
    tokenizer: Any = None,
    source: Path | None = None,
    inputs: Inputs | None = None,
    extras: Mapping[str, str] | None = None,
    force: bool = False,
) -> Export:
    """Write the model to the directory `out`. Raises ModelError if it would load back changed.

    `tokenizer` may also be a processor. `source` is the uncut model's directory, from which every
    file is copied that is not replaced, such as `preprocessor_config.json`. `inputs` are run
    through the model and through the copy loaded back, to compare their outputs. `extras` are texts
    to add to the directory, by file name; README.md becomes part of the model card.
    """
    check_exportable(model)
    modules = sentence_modules(source)
    assert isinstance(model, PreTrainedModel)
    out = out.expanduser()
    with replace_directory(out, force=force) as part:
        is_plain = write_model(model, part)
        if tokenizer is not None:
            tokenizer.save_pretrained(part)
        if source is not None and modules:
            _copy_sentence_modules(source, modules, part)
        loaders = _auto_classes(public_class(model), without_block(model.config))
        texts = dict(extras or {})
        figures = texts.pop("README.md", "")
        card = model_card(model, part, source=source, loaders=loaders, figures=figures)
        for name, text in {"README.md": card, **texts}.items():
            if Path(name).name != name or (part / name).exists():
                raise OptionError(f"{name!r} cannot be an extra file's name: choose another")
            (part / name).write_text(text, "utf-8")
        if source is not None:
            _copy_other_files(source, part, tokenizer)
        difference = check_copy(model, part, inputs)
    return Export(out, is_plain, difference, file_sizes(out))


def check_exportable(model: nn.Module) -> None:
    """Raise ModelError unless transformers can rebuild the model and its weights can be saved."""
    plain, kind = public_class(model), type(model).__name__
    for name, weight in model.named_parameters():
        if not weight.is_floating_point() or weight.device.type == "meta":
            problem = "not in memory" if weight.device.type == "meta" else f"{weight.dtype}"
            raise ModelError(
                f"{kind} cannot be exported: its weight {name} is {problem}, but weights must be "
                "floating-point and in memory; load the model without quantization or offloading"
            )
    assert isinstance(model, PreTrainedModel)
    is_cut = bool(getattr(model.config, BLOCK, None))
    config = model.config if is_cut else without_block(model.config)
    _check_shapes(model, empty_model(cut_class(plain) if is_cut else plain, config, model.dtype))


def _check_shapes(model: nn.Module, built: nn.Module) -> None:
    """Raise ModelError unless `built`, from the class and config of `model`, has its shapes."""
    shapes, built_shapes = tensor_shapes(model), tensor_shapes(built)
    for name in {**shapes, **built_shapes}:
        shape, built_shape = shapes.get(name), built_shapes.get(name)
        if shape == built_shape:
            continue
        if built_shape is None:
            problem = f"its class and config do not create {name}; merge adapters before you cut"
        else:
            problem = (
                f"{name} is {'missing' if shape is None else list(shape)}, but its class and "
                f"config create {list(built_shape)}; use a model from from_pretrained"
            )
        raise ModelError(f"{type(model).__name__} cannot be exported: {problem}")


def write_model(model: PreTrainedModel, part: Path) -> bool:
    """Write weights, config and, if needed, code. Returns True if no code was needed."""
    plain, config = public_class(model), plain_config(model)
    is_plain = config is not None
    if config is None:
        config = without_block(model.config)
        classes = _auto_classes(plain, config)
        setattr(config, BLOCK, getattr(model.config, BLOCK))
        config.auto_map = {auto: f"{CODE}.{name}" for auto, name in classes.items()}
        (part / f"{CODE}.py").write_text(_model_code(sorted({*classes.values()})), "utf-8")
    # A new model saves the weights: it has no quantizer state, and the given model stays unchanged.
    # Only transformers' own classes can load weights under their original names.
    fresh: Any = empty_model(plain if is_plain else cut_class(plain), config, model.dtype)
    fresh.generation_config = getattr(model, "generation_config", None)
    weights = {name: weight.contiguous() for name, weight in model.state_dict().items()}
    try:
        with quiet():
            fresh.save_pretrained(part, state_dict=weights, save_original_format=is_plain)
    except ValueError as error:  # such as generation settings that contradict each other
        raise ModelError(f"{plain.__name__} cannot be exported: {one_sentence(error)}") from error
    for file in part.glob("*.safetensors"):  # safetensors makes them readable by the owner only
        file.chmod((part / "config.json").stat().st_mode)
    return is_plain


def _auto_classes(plain: type[PreTrainedModel], config: PreTrainedConfig) -> dict[str, str]:
    """Names of the model's class and its bare class, by the Auto class that loads each."""
    names = {"AutoModel": bare_class(config).__name__}
    for name, auto in vars(modeling_auto).items():
        mapping = getattr(auto, "_model_mapping", None)
        if name.startswith("Auto") and mapping is not None and type(config) in mapping:
            classes = mapping[type(config)]
            if plain in (classes if isinstance(classes, tuple) else (classes,)):
                names[name] = plain.__name__
    return names


def _model_code(names: Sequence[str]) -> str:
    """Source of a module that does not import headwise: `CutMixin` and the classes that use it."""
    imports = [f"from transformers import {name} as Plain{name}  # noqa: E402" for name in names]
    classes = [
        f"\n\nclass {name}(CutMixin, Plain{name}):\n"
        f'    """{name} with the heads that config.json lists as kept."""'
        for name in names
    ]
    return "\n".join([inspect.getsource(exported_modeling), "", *imports, *classes, ""])


def sentence_modules(source: Path | None) -> list[dict[str, Any]]:
    """Entries of modules.json; empty if `source` is not a sentence-transformers directory."""
    if source is None or not (source / "modules.json").is_file():
        return []
    problem = f"{source} is not a sentence-transformers directory: modules.json"
    try:
        modules: list[dict[str, Any]] = json.loads((source / "modules.json").read_text("utf-8"))
        folders = [source / module["path"] for module in modules]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelError(f"{problem} is not a list of modules that each have a path") from error
    if not folders:
        raise ModelError(f"{problem} lists no modules")
    for folder in folders:
        if source.resolve() not in (folder.resolve(), folder.resolve().parent):
            raise ModelError(f"{problem} lists {folder}, which is outside the directory")
    return modules


def _copy_sentence_modules(source: Path, modules: Sequence[Mapping[str, Any]], part: Path) -> None:
    """Copy every module except the transformer: the cut model is in the directory itself."""
    folders = [source / module["path"] for module in modules]
    for folder in folders[1:]:
        if folder.is_dir():  # Normalize has no files
            shutil.copytree(folder, part / folder.name)
    for name in SENTENCE_FILES:
        for file in (source / name, folders[0] / name):
            if file.is_file():
                shutil.copyfile(file, part / name)
    moved = [{**modules[0], "path": ""}, *modules[1:]]
    (part / "modules.json").write_text(json.dumps(moved, indent=2), "utf-8")


def _copy_other_files(source: Path, part: Path, tokenizer: Any) -> None:
    """Copy the files of the uncut model that nothing replaces, such as preprocessor_config.json."""
    files = getattr(tokenizer, "vocab_files_names", {}).values()
    replaced = set() if tokenizer is None else {*files, *TOKENIZER_EXTRAS}
    for file in sorted(source.iterdir()):
        is_new = not (part / file.name).exists() and file.name not in replaced
        if is_new and file.is_file() and not REPLACED.fullmatch(file.name):
            shutil.copyfile(file, part / file.name)


def check_copy(model: PreTrainedModel, part: Path, inputs: Inputs | None) -> float | None:
    """Load the written model; raise ModelError unless its tensors equal those of `model` exactly.

    Returns the largest difference between their outputs for `inputs`, in float32 or better. Outputs
    can differ because kernels may sum in another order if weights are in a memory-mapped file.
    """
    with quiet(), explain_errors(f"the written {type(model).__name__}", is_local=True):
        loaded: Any = load(part).model.to(model.device)
    _check_shapes(model, loaded)
    copies = tensors_by_name(loaded)
    for name, tensor in tensors_by_name(model).items():
        if difference := _tensor_difference(name, tensor, copies[name]):
            raise ModelError(f"{type(model).__name__} cannot be exported: {difference}")
    if inputs is None:
        return None
    modules = dict(model.named_modules())
    for path, copied_module in loaded.named_modules():
        config = getattr(copied_module, "config", None)
        own = getattr(modules.get(path), "config", None)
        if isinstance(config, PreTrainedConfig) and own is not None:
            for name in ("_attn_implementation", "_experts_implementation"):
                setattr(config, name, getattr(own, name))  # both must compute with the same kernels
    with in_full_precision(model, inputs) as full_inputs:
        expected = layer_outputs(model, (), full_inputs)
    with in_full_precision(loaded, inputs) as full_inputs:
        actual = layer_outputs(loaded, (), full_inputs)
    problem = f"{type(model).__name__} cannot be exported, because it changes when loaded back"
    return check_equivalence(model, actual, expected, problem)


def _tensor_difference(name: str, tensor: Tensor, copied: Tensor) -> str:
    """How a tensor changed when loaded back, and how to avoid that; empty if it is equal."""
    is_weight = isinstance(tensor, nn.Parameter)
    if is_weight and tensor.dtype != copied.dtype:  # buffers may differ
        return (
            f"{name} is {tensor.dtype}, but {copied.dtype} when loaded back; convert all weights "
            "to one dtype with model.to"
        )
    if torch.equal(tensor.double().nan_to_num(), copied.double().nan_to_num()):
        return ""
    remedy = "set the dtype when you load the uncut model, because buffers are recomputed"
    if is_weight:
        remedy = "use a model from from_pretrained"
    return f"{name} has different values when loaded back; {remedy}"
