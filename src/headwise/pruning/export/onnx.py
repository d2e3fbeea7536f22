"""ONNX: write a model as one file that runs without torch.

In: a model, cut or not, and inputs for it. Out: an .onnx file for batches and sequences of any
size, which is kept only if onnxruntime computes the model's outputs from it.
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
from headwise.reading.batch import Inputs
from headwise.watching.equivalence import check_equivalence
from headwise.watching.running import in_evaluation

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
LARGEST = 2**31
"""Size limit of an ONNX file in bytes: protobuf stores sizes in 31 bits."""


def export_onnx(model: nn.Module, path: Path, inputs: Inputs) -> float:
    """Write the model to `path`, and return the largest difference from torch's outputs.

    Every tensor that the model returns for `inputs` is an output of the file; there is no cache.
    onnxruntime runs the file on `inputs` and on a part of them. Raises ModelError, and leaves no
    file, if a difference exceeds rounding. Call `check_onnx_packages` and `check_onnx_model` first.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    adapter = _Adapter(model, tuple(inputs))
    fewer = {
        name: value[:1, :-1].contiguous() if _is_sequence(value) else value[:1]
        for name, value in inputs.items()
    }
    try:
        with torch.no_grad(), in_evaluation(adapter), _quiet_export(model, path):
            _write_program(adapter, inputs, part)
            difference = max(_difference(adapter, part, case) for case in (inputs, fewer))
            flush(part)
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return difference


def check_onnx_packages() -> None:
    """Raise MissingPackage if a package needed to write ONNX is not installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"writing ONNX needs the package {missing[0]}: pip install 'headwise[onnx]'"
        )


def check_onnx_model(model: nn.Module, inputs: Inputs) -> None:
    """Raise if the model is too large for ONNX or in bfloat16, or if `inputs` are too short."""
    size = sum(weight.nbytes for weight in model.parameters())
    if size >= LARGEST:
        raise ModelError(
            f"{type(model).__name__} is too large for ONNX: its weights take {size:,} bytes, but "
            f"one file must be smaller than {LARGEST:,}"
        )
    if any(weight.dtype == torch.bfloat16 for weight in model.parameters()):
        raise ModelError(
            f"{type(model).__name__} is in bfloat16, which onnxruntime does not support on a CPU: "
            "load it with dtype float32"
        )
    short = [name for name, value in inputs.items() if _is_sequence(value) and value.shape[1] < 2]
    if short:
        raise OptionError(
            f"inputs are too short to find the token axis of {', '.join(short)}: pass at least 2 "
            "tokens"
        )


class _Adapter(nn.Module):
    """A wrapper that calls the model with positional inputs and returns a tuple of tensors."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def outputs_by_name(self, *inputs: Tensor) -> dict[str, Tensor]:
        config: Any = getattr(self.model, "config", None)
        options = {"use_cache": False} if getattr(config, "use_cache", False) else {}
        result = self.model(**dict(zip(self.names, inputs, strict=True)), **options)
        return {name: value for name, value in result.items() if isinstance(value, Tensor)}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.outputs_by_name(*inputs).values())


def _write_program(adapter: _Adapter, inputs: Inputs, part: Path) -> None:
    example = tuple(
        torch.cat([value, value]) if len(value) == 1 else value  # torch treats a size of 1 as fixed
        for value in inputs.values()
    )
    names = list(adapter.outputs_by_name(*example))
    axes = tuple(
        dict.fromkeys((0, 1) if _is_sequence(value) else (0,), torch.export.Dim.DYNAMIC)
        for value in example
    )
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


def _is_sequence(value: Tensor) -> bool:
    return value.dim() == 2  # [batch, tokens]: ids or a mask


def _difference(adapter: _Adapter, part: Path, inputs: Inputs) -> float:
    session = import_module("onnxruntime").InferenceSession(
        part, providers=["CPUExecutionProvider"]
    )
    outputs = adapter.outputs_by_name(*inputs.values())
    used = {value.name for value in session.get_inputs()}
    feed = {name: value.numpy(force=True) for name, value in inputs.items() if name in used}
    arrays = session.run(list(outputs), feed)
    actual = {name: torch.from_numpy(array) for name, array in zip(outputs, arrays, strict=True)}
    expected = {name: output.cpu() for name, output in outputs.items()}
    problem = (
        f"{type(adapter.model).__name__} cannot be written as ONNX, because its outputs change in "
        "onnxruntime"
    )
    return check_equivalence(adapter.model, actual, expected, problem)


@contextmanager
def _quiet_export(model: nn.Module, path: Path) -> Iterator[None]:
    """Silence torch's exporter inside the block, and turn its errors into one-sentence messages."""
    runtime = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    refusals = (runtime.Fail, runtime.InvalidArgument, runtime.InvalidGraph, runtime.NotImplemented)
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (torch.onnx.OnnxExporterError, *refusals) as error:
        raise ModelError(
            f"{type(model).__name__} cannot be written as ONNX: {one_sentence(error)}"
        ) from error
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {one_sentence(error)}") from error
    finally:
        log.setLevel(level)
