"""A model may be passed as a name, a directory, a LoadedModel or a module."""

from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.errors import ModelError, OptionError
from headwise.heads import HeadId
from headwise.models.loaded import LoadedModel, as_module, open_model
from headwise.models.loading import LoadOptions, load_model
from headwise.objectives.scored_model import open_scored_model
from headwise.pruning.surgery.cut import cut
from headwise.scans.scan import scan
from headwise.tracing.trace import trace
from headwise.watching.gates import gate, mean_outputs, silence
from headwise.watching.watch import watch

from ..watching.helpers import run
from ..watching.tiny import output_of, tiny
from .test_loading import save


def test_a_directory_may_be_a_path_or_a_string(tmp_path: Path) -> None:
    folder = save("bert", tmp_path)
    by_text, by_path = load_model(str(folder)), load_model(folder)
    assert by_text.name == by_path.name == str(folder)
    assert by_text.folder == by_path.folder == folder and not by_path.is_from_hub
    loaded = open_model(folder, options=LoadOptions(dtype="float64"))
    assert loaded.about["dtype"] == "float64"
    assert loaded.tokenizer("w8 w9")["input_ids"] == [8, 9]


def test_open_model_returns_models_in_memory_without_a_copy() -> None:
    model, _ = tiny("bert")
    loaded = LoadedModel("mine", model, "reads")
    assert open_model(loaded) is loaded
    assert open_model(loaded, "reads otherwise") == LoadedModel("mine", model, "reads otherwise")
    assert open_model(model, "reads") == LoadedModel("BertForMaskedLM", model, "reads")
    assert as_module(loaded) is as_module(model) is model


def test_a_loaded_model_is_watched_silenced_and_gated_like_its_module() -> None:
    model, inputs = tiny("bert")
    loaded = LoadedModel("mine", model, None)
    with silence(model, "L0H1"):
        want = output_of(run(model, inputs))
    with watch(loaded) as watched, silence(loaded, HeadId(0, 1)):
        assert torch.equal(output_of(run(model, inputs)), want)
    assert [call.layer for call in watched.calls] == [0, 1, 2]
    with gate(loaded, {"L0": torch.tensor([1.0, 0, 1, 1, 1])}):
        assert torch.equal(output_of(run(model, inputs)), want)
    assert len(mean_outputs(loaded, [inputs]).by_layer) == 3


def test_every_verb_takes_a_directory_and_a_loaded_model(tmp_path: Path) -> None:
    folder = save("llama", tmp_path)
    loaded, text = load_model(folder), "w8 w9 w10"
    for source in (folder, loaded):
        assert len(scan(source, [text])) == 18
        assert trace(source, text).title == f"{folder}, layer 0"
        assert open_scored_model(source).name == str(folder)
    assert cut(loaded, "L0H0 L0H1 L0H2").kept["L0"] == (3, 4, 5)


def test_objects_that_are_not_models_raise() -> None:
    wrong: Any = {"model": "minilm"}
    with pytest.raises(ModelError, match="a dict"):
        open_model(wrong)
    wrong = "minilm"
    with pytest.raises(ModelError, match="'minilm'"):
        watch(wrong).__enter__()


def test_mean_outputs_rejects_what_is_not_a_list_of_batches() -> None:
    model, inputs = tiny("bert")
    for wrong in (inputs, ["a text"]):
        with pytest.raises(OptionError, match="str"):
            mean_outputs(model, wrong)
    nothing = inputs | {"attention_mask": torch.zeros_like(inputs["input_ids"])}
    with pytest.raises(OptionError, match="padding"):
        mean_outputs(model, [nothing])


def test_bad_gates_heads_and_means_raise() -> None:
    model, inputs = tiny("bert")
    for wrong in (["L0"], {"L0": [1.0] * 5}):
        with pytest.raises(OptionError, match="gates"):
            with gate(model, wrong):
                pass
    with pytest.raises(OptionError, match="None"):
        with silence(model, None):
            pass
    other, its_inputs = tiny("llama")
    means = mean_outputs(other, [its_inputs])
    fact = r"mean outputs for L0 have shape \[\d, \d\].*\[heads 5, d_value \d\]"
    with pytest.raises(OptionError, match=fact), silence(model, "L0H1", means=means):
        run(model, inputs)
    with pytest.raises(OptionError, match=fact), gate(model, {"L0": torch.ones(5)}, means=means):
        run(model, inputs)


def test_one_row_of_gates_applies_to_every_sequence() -> None:
    model, inputs = tiny("bert")
    factors = torch.rand(5, dtype=torch.float64)
    with gate(model, {"L1": factors}):
        want = output_of(run(model, inputs))
    with gate(model, {"L1": factors[None]}):
        assert torch.equal(output_of(run(model, inputs)), want)


def test_bad_names_and_options_raise() -> None:
    for wrong in (None, ""):
        with pytest.raises(ModelError, match="minilm, smollm2"):
            load_model(wrong)
    with pytest.raises(OptionError, match="options is a dict"):
        load_model("minilm", {"dtype": "float16"})
    assert LoadOptions(dtype=torch.float16) == LoadOptions(dtype="float16")


def test_a_loaded_model_prints_as_one_line() -> None:
    model, _ = tiny("bert")
    assert repr(LoadedModel("mine", model, None)) == f"LoadedModel('mine', {type(model).__name__})"
