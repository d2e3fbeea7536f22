"""ONNX: a model as one file that runs without torch, and how far it is from the model there.

In: a model, cut or not, and inputs for it. Out: an .onnx file whose batch and sequence may have any
size, run once in onnxruntime. Nothing is written unless it runs; it knows nothing of heads.
"""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.errors import MissingPackage, ModelError, OptionError, OutputError
from headwise.models.load_errors import one_sentence, quiet
from headwise.pruning.export.directories import flush
from headwise.pruning.surgery.equivalence import largest_difference, rounding_bound
from headwise.reading.batch import Inputs
from headwise.watching.running import in_evaluation

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
LARGEST = 2**31
"""Bytes that one ONNX file can hold: protobuf counts them in 31 bits."""


def export_onnx(model: nn.Module, path: Path, inputs: Inputs) -> float:
    """Largest difference between torch's and onnxruntime's outputs on the inputs, and on fewer.

    Every tensor that the model returns for the inputs is an output of the file; there is no cache.
    An error is raised, and nothing written, where rounding does not explain a difference.
    """
    check_request(model, path, inputs)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    adapter = Adapter(model, tuple(inputs))
    try:
        with torch.no_grad(), in_evaluation(adapter), in_one_sentence(model, path), silent():
            write(adapter, inputs, part)
            cases = [inputs, fewer(inputs)]
            difference = max(distance(adapter, part, case) for case in cases)
            flush(part)
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return difference


def check_request(model: nn.Module, path: Path, inputs: Inputs) -> None:
    """Raise where the packages, the place or the inputs do not allow the model to be written."""
    check_onnx_packages()
    if not path.parent.is_dir():
        raise OptionError(f"{path} cannot be written: there is no folder {path.parent}")
    if path.exists():
        raise OutputError(
            f"{path} is a directory, and ONNX is written as a file"
            if path.is_dir()
            else f"{path} would be overwritten: give another place"
        )
    check_onnx_inputs(inputs)
    check_onnx_model(model)


def check_onnx_packages() -> None:
    """Raise where a package that writing takes is not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"writing ONNX needs the package {missing[0]}: pip install 'headwise[onnx]'"
        )


def check_onnx_inputs(inputs: Inputs) -> None:
    """Raise where there are no inputs, or none that show which of their axes may move."""
    if not inputs:
        raise OptionError("there are no inputs: give what the model takes, as a tokenizer does")
    short = [name for name, one in inputs.items() if is_sequence(one) and one.shape[1] < 2]
    if short:
        raise OptionError(
            f"{', '.join(short)} are too short to tell the axis of tokens: give two tokens or more"
        )


def check_onnx_model(model: nn.Module) -> None:
    """Raise where no ONNX file could hold the model, or onnxruntime not run it."""
    size = sum(one.numel() * one.element_size() for one in model.parameters())
    if size >= LARGEST:
        raise ModelError(
            f"{type(model).__name__} is too large for ONNX: its weights have {size:,} bytes, and "
            f"one file holds less than {LARGEST:,}"
        )
    if any(one.dtype == torch.bfloat16 for one in model.parameters()):
        raise ModelError(
            f"{type(model).__name__} is in bfloat16, which onnxruntime does not compute in on a "
            "CPU: load it with dtype float32"
        )


class Adapter(nn.Module):
    """The model with its inputs in order, and its tensors alone as the result."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        """Keep the model and the names of its inputs."""
        super().__init__()
        self.model = model
        self.names = names

    def named_outputs(self, *inputs: Tensor) -> dict[str, Tensor]:
        """Every tensor that the model returns, by its name."""
        config: Any = getattr(self.model, "config", None)
        options = {"use_cache": False} if getattr(config, "use_cache", False) else {}
        result = self.model(**dict(zip(self.names, inputs, strict=True)), **options)
        return {name: one for name, one in result.items() if isinstance(one, Tensor)}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """The same in their order."""
        return tuple(self.named_outputs(*inputs).values())


def write(adapter: Adapter, inputs: Inputs, part: Path) -> None:
    """Write the model as it computes these inputs, and inputs of any other size."""
    example = tuple(at_least_two(one) for one in inputs.values())
    names = list(adapter.named_outputs(*example))
    axes = tuple(moving_axes(one) for one in example)
    program = torch.onnx.export(
        adapter,
        example,
        input_names=list(inputs),
        output_names=names,
        dynamic_shapes=(axes,),
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.save(part)


def at_least_two(one: Tensor) -> Tensor:
    """The batch, doubled if it is of one: torch takes an axis of size 1 for a fixed one."""
    return torch.cat([one, one]) if len(one) == 1 else one


def moving_axes(one: Tensor) -> dict[int, Any]:
    """The axes that may have any size: the batch, and of tokens their number."""
    return dict.fromkeys((0, 1) if is_sequence(one) else (0,), torch.export.Dim.DYNAMIC)


def is_sequence(one: Tensor) -> bool:
    """Whether an input is `[batch, tokens]`, of ids or of a mask."""
    return one.dim() == 2


def fewer(inputs: Inputs) -> dict[str, Tensor]:
    """The first example alone, with one token less."""
    return {
        name: one[:1, :-1].contiguous() if is_sequence(one) else one[:1]
        for name, one in inputs.items()
    }


def distance(adapter: Adapter, part: Path, inputs: Inputs) -> float:
    """Largest difference between what torch and onnxruntime make of the inputs: rounding alone."""
    session = import_module("onnxruntime").InferenceSession(
        part, providers=["CPUExecutionProvider"]
    )
    want = adapter.named_outputs(*inputs.values())
    used = {one.name for one in session.get_inputs()}
    given = {name: one.numpy(force=True) for name, one in inputs.items() if name in used}
    largest = 0.0
    for name, got in zip(want, session.run(list(want), given), strict=True):
        here = largest_difference(torch.from_numpy(got), want[name].cpu())
        allowed = rounding_bound(adapter.model, want[name])
        if here > allowed:
            raise ModelError(
                f"{type(adapter.model).__name__} cannot be written as ONNX: in onnxruntime {name} "
                f"differs by {here:.3g}, and rounding explains {allowed:.3g}"
            )
        largest = max(largest, here)
    return largest


@contextmanager
def in_one_sentence(model: nn.Module, path: Path) -> Iterator[None]:
    """Turn what torch, onnxruntime and the disk raise into one sentence."""
    runtime = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    refusals = (runtime.Fail, runtime.InvalidArgument, runtime.InvalidGraph, runtime.NotImplemented)
    try:
        yield
    except (torch.onnx.OnnxExporterError, *refusals) as error:
        raise ModelError(
            f"{type(model).__name__} cannot be written as ONNX: {one_sentence(error)}"
        ) from error
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {one_sentence(error)}") from error


@contextmanager
def silent() -> Iterator[None]:
    """torch's exporter without its warnings and remarks."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
