"""A model that was cut unevenly runs in onnxruntime, for batches and lengths of any size."""

from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

from headwise.errors import MissingPackage, ModelError, OptionError
from headwise.pruning.export import onnx as writing
from headwise.pruning.export.onnx import (
    PACKAGES,
    check_onnx_model,
    check_onnx_packages,
    export_onnx,
)
from headwise.pruning.surgery.cut import cut
from headwise.pruning.surgery.output_biases import add_output_biases

from ...attention.tolerance import assert_same, rounding
from ...watching.helpers import ROUNDINGS, run
from ...watching.tiny import output_of, ragged, tiny


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "heads"),
    [("llama", "L0H0 L0H1 L0H2 L1H0 L1H3"), ("mistral", "L0H0 L0H1 L1H0 L1H1 L1H2 L1H3 L1H4 L1H5")],
)  # each takes many seconds
def test_a_cut_model_gives_the_same_output_in_onnxruntime(
    name: str, heads: str, tmp_path: Path
) -> None:
    path, f32 = tmp_path / "model.onnx", torch.float32
    model, inputs = tiny(name, batch=1, dtype=f32)
    cut(model, heads)
    with torch.no_grad():
        for projection in add_output_biases(model).modules:
            projection.bias += 1
    layers = next(one for one in model.modules() if isinstance(one, nn.ModuleList))
    del layers[2:]  # each takes seconds to write
    model.train()
    layers[0].eval()
    difference = export_onnx(model, path, inputs)
    assert model.training and not layers[0].training
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]
    want = output_of(run(model.eval(), inputs))
    assert difference <= rounding(want, dtype=f32, roundings=ROUNDINGS)
    session = import_module("onnxruntime").InferenceSession(path)
    batch, _ = ragged(name, (5, 3, 7), dtype=f32)
    (got,) = session.run(None, {key: one.numpy() for key, one in batch.items()})
    is_real = batch["attention_mask"].bool()
    want = output_of(run(model, batch))
    assert_same(torch.from_numpy(got)[is_real], want[is_real], roundings=ROUNDINGS, dtype=f32)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_missing_package_is_named_with_its_install_line(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "find_spec", lambda name: None if name == package else name)
    with pytest.raises(MissingPackage, match=rf"{package}.*pip install 'headwise\[onnx\]'"):
        check_onnx_packages()


def test_short_inputs_large_models_and_bfloat16_are_rejected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, inputs = tiny("bert")
    short = {name: value[:, :1] for name, value in inputs.items()}
    with pytest.raises(OptionError, match=r"input_ids, attention_mask.* 2 tokens"):
        check_onnx_model(model, short)
    with pytest.raises(ModelError, match=r"BertForMaskedLM.*bfloat16"):
        check_onnx_model(model.bfloat16(), inputs)
    monkeypatch.setattr(writing, "LARGEST", 1000)
    with pytest.raises(ModelError, match=r"BertForMaskedLM.* bytes.*1,000"):
        check_onnx_model(model, inputs)


class Wayward(nn.Module):
    """A model whose control flow depends on its data, which no fixed file can represent."""

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"logits": input_ids * 2.0 if input_ids.sum() > 3 else input_ids - 1.0}


class Counting(nn.Module):
    """A model whose output differs at every call."""

    calls = 0

    def forward(self, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        return {"logits": input_ids * 1.0 + self.calls}


def test_export_onnx_deletes_a_file_with_other_outputs(tmp_path: Path) -> None:
    message = r"onnxruntime: logits .*\d"
    with pytest.raises(ModelError, match=message):
        export_onnx(Counting(), tmp_path / "model.onnx", {"input_ids": torch.ones(2, 3)})
    assert not any(tmp_path.iterdir())


def test_export_onnx_rejects_data_dependent_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"Wayward .*ONNX"):
        export_onnx(Wayward(), tmp_path / "model.onnx", {"input_ids": torch.ones(2, 3)})
    assert not any(tmp_path.iterdir())
