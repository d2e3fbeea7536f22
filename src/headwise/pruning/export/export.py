"""Export: a cut model as a directory that loads again, with headwise, without it, or plainly.

In: a model, and what belongs beside it. Out: a directory with safetensors, config.json and a model
card: a plain checkpoint where transformers can build the cut model by itself, else one with the
code that cuts a fresh model. It is written beside its place, loaded back, compared, and only then
moved into place. It does not cut, and it reads no weights but the model's.
"""

import inspect
import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from headwise.errors import ModelError, OptionError
from headwise.models import cut_modeling
from headwise.models.cut_models import BLOCK, bare_class, cut_class
from headwise.models.load_errors import explain_errors, one_sentence, quiet
from headwise.models.loading import load_exported
from headwise.pruning.export.directories import files_in, replace_directory
from headwise.pruning.export.model_card import CODE, model_card
from headwise.pruning.export.plain_config import (
    named_tensors,
    plain_config,
    public_class,
    shapes,
    shell,
    without_block,
)
from headwise.pruning.surgery.equivalence import (
    Said,
    in_full_precision,
    largest_difference,
    layer_outputs,
    rounding_bound,
)
from headwise.reading.batch import Inputs

SENTENCE_FILES = ("config_sentence_transformers.json", "sentence_bert_config.json")
"""What sentence-transformers reads beside the list of its modules."""


@dataclass(frozen=True)
class Export:
    """What was written, and how far the model loaded from it is from the one that was given."""

    path: Path
    is_plain: bool
    """Whether transformers loads it with no code but its own."""
    files: Mapping[str, int]
    """Every file's size in bytes, by its path within the directory."""
    bytes: int
    """Size of all files together."""
    difference: float | None
    """Largest difference between the outputs, rounding alone; None without inputs to compare."""


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
    """Where the model was written to, and as what; nothing is unless it loads back equal.

    `tokenizer` may be a processor, too. `source` is the directory that the uncut model came from:
    what sentence-transformers keeps there comes along. `inputs` are run through both models.
    `extras` are texts to put beside the model, by the names of their files; its README.md, which is
    Markdown, goes into the model card.
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
            copy_sentence_modules(source, modules, part)
        auto = auto_classes(public_class(model), without_block(model.config))
        texts = dict(extras or {})
        measured = texts.pop("README.md", "")
        card = model_card(model, part, source=source, auto=auto, measured=measured)
        add_extras(part, {"README.md": card} | texts)
        difference = check_copy(model, part, inputs)
    return written_in(Export(out, is_plain, {}, 0, difference))


def written_in(found: Export) -> Export:
    """The same with every file that its directory holds now."""
    place = found.path
    files = {str(file.relative_to(place)): file.stat().st_size for file in files_in(place)}
    return replace(found, files=files, bytes=sum(files.values()))


def add_extras(part: Path, extras: Mapping[str, str]) -> None:
    """Put texts beside the model, none of them in the place of a file of its own."""
    for name, text in extras.items():
        if Path(name).name != name or (part / name).exists():
            raise OptionError(f"{name!r} cannot be put beside the model: give another name")
        (part / name).write_text(text, "utf-8")


def check_exportable(model: nn.Module) -> None:
    """Raise unless the model is one of transformers with weights that are plain numbers."""
    public_class(model)
    for name, one in model.named_parameters():
        if not one.is_floating_point() or one.device.type == "meta":
            kind = "on no device" if one.device.type == "meta" else f"{one.dtype}"
            raise ModelError(
                f"{type(model).__name__} cannot be exported: its weight {name} is {kind}, and only "
                "floating-point weights in memory are; load it without quantization and offloading"
            )
    check_class(model)


def check_class(model: Any) -> None:
    """Raise unless the model's class and config build its very parameters."""
    plain = public_class(model)
    is_cut = bool(getattr(model.config, BLOCK, None))
    config = model.config if is_cut else without_block(model.config)
    built = shapes(shell(cut_class(plain) if is_cut else plain, config, model.dtype))
    mine = shapes(model)
    for name in {**mine, **built}:
        if mine.get(name) != built.get(name):
            said = other_shape(name, mine.get(name), built.get(name))
            raise ModelError(f"{type(model).__name__} cannot be exported: {said}")


def write_model(model: PreTrainedModel, part: Path) -> bool:
    """Write weights, config and, where it takes more than that, code; True where it does not."""
    plain, config = public_class(model), plain_config(model)
    is_plain = config is not None
    if config is None:
        config = with_code(model)
        (part / f"{CODE}.py").write_text(code_of(config), "utf-8")
    # A fresh model saves the weights: it has no state of a quantizer, and the given one stays as
    # it is. Names that only transformers' own classes understand are for plain checkpoints.
    fresh: Any = shell(plain if is_plain else cut_class(plain), config, model.dtype)
    fresh.generation_config = getattr(model, "generation_config", None)
    weights = {name: one.contiguous() for name, one in model.state_dict().items()}
    try:
        with quiet():
            fresh.save_pretrained(part, state_dict=weights, save_original_format=is_plain)
    except ValueError as error:  # settings that contradict each other, say
        raise ModelError(f"{plain.__name__} cannot be exported: {one_sentence(error)}") from error
    for file in part.glob("*.safetensors"):  # written for the owner's eyes only, the rest is not
        file.chmod((part / "config.json").stat().st_mode)
    return is_plain


def with_code(model: PreTrainedModel) -> PreTrainedConfig:
    """The model's config with its block, and the classes that transformers is to take instead."""
    config = without_block(model.config)
    classes = auto_classes(public_class(model), config)
    setattr(config, BLOCK, getattr(model.config, BLOCK))
    config.auto_map = {auto: f"{CODE}.{name}" for auto, name in classes.items()}
    return config


def auto_classes(plain: type[PreTrainedModel], config: PreTrainedConfig) -> dict[str, str]:
    """The names of the model's class and of the bare one, by the Auto classes that load them."""
    found = {"AutoModel": bare_class(config).__name__}
    for name, auto in vars(modeling_auto).items():
        mapping = getattr(auto, "_model_mapping", None)
        if name.startswith("Auto") and mapping is not None and type(config) in mapping:
            classes = mapping[type(config)]
            if plain in (classes if isinstance(classes, tuple) else (classes,)):
                found[name] = plain.__name__
    return found


def code_of(config: Any) -> str:
    """Text of a module that stands alone: the mixin, and the classes that the config names."""
    names = sorted({reference.rpartition(".")[2] for reference in config.auto_map.values()})
    imports = [f"from transformers import {name} as Plain{name}  # noqa: E402" for name in names]
    classes = [
        f"\n\nclass {name}(CutMixin, Plain{name}):\n"
        f'    """{name} with the heads that config.json says are kept."""'
        for name in names
    ]
    return "\n".join([inspect.getsource(cut_modeling), "", *imports, *classes, ""])


def sentence_modules(source: Path | None) -> list[dict[str, Any]]:
    """The modules that make a directory one of sentence-transformers; none where it is not."""
    if source is None or not (source / "modules.json").is_file():
        return []
    said = f"{source} is no directory of sentence-transformers: modules.json"
    try:
        modules: list[dict[str, Any]] = json.loads((source / "modules.json").read_text("utf-8"))
        folders = [source / module["path"] for module in modules]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelError(f"{said} is no list of modules that each have a path") from error
    if not folders:
        raise ModelError(f"{said} names no module")
    for folder in folders:
        if source.resolve() not in (folder.resolve(), folder.resolve().parent):
            raise ModelError(f"{said} names the folder {folder}, which is not in it")
    return modules


def copy_sentence_modules(source: Path, modules: Sequence[Mapping[str, Any]], part: Path) -> None:
    """Copy what makes a directory of sentence-transformers one; no weights of the model.

    The cut model is at the top, wherever the uncut one was.
    """
    folders = [source / module["path"] for module in modules]
    for folder in folders[1:]:
        if folder.is_dir():  # normalizing needs no file
            shutil.copytree(folder, part / folder.name)
    for file in SENTENCE_FILES:
        for there in (source / file, folders[0] / file):
            if there.is_file():
                shutil.copyfile(there, part / file)
    moved = [{**modules[0], "path": ""}, *modules[1:]]
    (part / "modules.json").write_text(json.dumps(moved, indent=2), "utf-8")


def check_copy(model: PreTrainedModel, part: Path, inputs: Inputs | None) -> float | None:
    """Load what was written; raise unless it is the model, bit for bit, and answers as it does.

    Answers are compared but for rounding, in float32 at least: kernels may add up in another order
    where weights lie elsewhere in memory, as those do that a file is mapped to.
    """
    with quiet(), explain_errors(f"{type(model).__name__}, as it was written,", is_local=True):
        loaded = load_exported(part).to(model.device)
    check_tensors(model, loaded)
    if inputs is None:
        return None
    attend_alike(model, loaded)
    with in_full_precision(model, inputs) as given:
        wanted = layer_outputs(model, (), given)
    with in_full_precision(loaded, inputs) as given:
        got = layer_outputs(loaded, (), given)
    return compared(model, got, wanted)


def compared(model: nn.Module, got: Said, wanted: Said) -> float:
    """Largest difference of what the loaded model says; an error if rounding does not explain it.

    Each output is held against what rounding explains of itself.
    """
    largest = 0.0
    for name in {**wanted, **got}:
        is_there = name in wanted and name in got
        here = largest_difference(got[name], wanted[name]) if is_there else math.inf
        if not is_there or here > rounding_bound(model, wanted[name]):
            raise ModelError(
                f"{type(model).__name__} cannot be exported: loaded back, {name} differs by "
                f"{here:.3g} on the given inputs"
            )
        largest = max(largest, here)
    return largest


def check_tensors(model: nn.Module, loaded: nn.Module) -> None:
    """Raise unless both have the same parameters and buffers with the same numbers in them."""
    mine, theirs = named_tensors(model), named_tensors(loaded)
    unlike = [name for name in {**mine, **theirs} if not is_equal(mine, theirs, name)]
    if not unlike:
        return
    raise ModelError(
        f"{type(model).__name__} cannot be exported: "
        f"{how_unlike(unlike[0], mine.get(unlike[0]), theirs.get(unlike[0]))}"
    )


Size = tuple[int, ...] | None


def other_shape(name: str, mine: Size, made: Size) -> str:
    """How a tensor differs from the one that the model's class and config make."""
    if made is None:
        return f"its class and config make no {name}: merge adapters before you cut"
    made_by = "a model that from_pretrained made"
    if mine is None:
        return f"it has no {name}, which its class and config make: give {made_by}"
    return f"{name} is {list(mine)}, and its class and config make {list(made)}: give {made_by}"


def how_unlike(name: str, one: Tensor | None, other: Tensor | None) -> str:
    """What differs of a tensor that is another when it is loaded back, and what would help."""
    if one is None or other is None or one.shape != other.shape:
        mine, theirs = (None if each is None else tuple(each.shape) for each in (one, other))
        return other_shape(name, mine, theirs)
    if one.dtype != other.dtype and isinstance(one, nn.Parameter):
        return (
            f"{name} is {one.dtype}, and loaded back {other.dtype}: give all weights one dtype, as "
            "model.to does"
        )
    if isinstance(one, nn.Parameter):
        return (
            f"{name} has other numbers when it is loaded back: give a model that from_pretrained "
            "made"
        )
    return (
        f"{name} has other numbers when it is loaded back, for it is in no file but computed anew: "
        "choose the dtype when you load the uncut model"
    )


def attend_alike(model: nn.Module, other: nn.Module) -> None:
    """Let another model of the same modules compute with the kernels that are set for the one."""
    for mine, theirs in zip(model.modules(), other.modules(), strict=True):
        config = getattr(theirs, "config", None)
        if isinstance(config, PreTrainedConfig):
            for name in ("_attn_implementation", "_experts_implementation"):
                setattr(config, name, getattr(mine.config, name))


def is_equal(mine: Mapping[str, Tensor], theirs: Mapping[str, Tensor], name: str) -> bool:
    """Whether both have the tensor, with the same numbers; buffers may have another dtype."""
    if name not in mine or name not in theirs:
        return False
    one, other = mine[name].detach(), theirs[name].detach()
    is_same_kind = not isinstance(mine[name], nn.Parameter) or one.dtype == other.dtype
    return (
        is_same_kind
        and one.shape == other.shape
        and torch.equal(one.double().nan_to_num(), other.double().nan_to_num())
    )
