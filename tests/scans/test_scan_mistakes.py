"""A scan rejects models, inputs and settings that it cannot use, in one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from headwise.errors import MaskError, ModelError, OptionError, ShapeError
from headwise.measures.counter import HeadCounter, RowChoice, make_measures
from headwise.models.loaded import LoadedModel
from headwise.models.loading import load_model
from headwise.probes.sentences import Arc, ProbeSentence
from headwise.reading.tensors import batch_from_tensors
from headwise.scans.process_group import ProcessGroup
from headwise.scans.scan import ScanJob, count_batch, scan
from headwise.scans.settings import ScanSettings

from ..watching.tiny import tiny


@pytest.fixture(scope="module")
def minilm() -> LoadedModel:
    return load_model("minilm")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"measures": ("entropy", "glow")}, "unknown measure 'glow': .*offsets"),
        ({"rows": "some"}, "rows is 'some': .*all, auto"),
        ({"rows": 0}, "rows is 0: .*1"),
        ({"measures": "glow"}, "unknown measure 'glow'"),
        ({"seed": 10**20}, "seed is 100,000,[0,]*: .*4,294,967,295"),
        ({"seed": -1}, "seed is -1: .*0"),
        ({"per_relation": 1001}, "per_relation is 1,001: .*1,000"),
        ({"length": 0}, "length is 0: .*1"),
        ({"length": 64.0}, r"length is 64\.0"),
        ({"length": "64"}, "length is '64'"),
        ({"max_tokens": True}, "max_tokens is True"),
        ({"seed": 1.5}, r"seed is 1\.5"),
        ({"seed": None}, "seed is None"),
        ({"rows": 0.5}, r"rows is 0\.5"),
        ({"rows": True}, "rows is True"),
        ({"per_relation": 2.5}, r"per_relation is 2\.5"),
        ({"compares": "no"}, "compares is 'no'"),
        ({"repeats": None}, "repeats is None"),
        ({"probe": 1}, "probe is 1"),
        ({"measures": 3}, "measures has 3: .*entropy"),
        ({"measures": [3]}, "measures has 3"),
    ],
)
def test_settings_reject_values_that_cannot_be_used(options: dict[str, object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        ScanSettings(**options)  # type: ignore[arg-type]


def test_settings_are_pythons_own_numbers() -> None:
    settings = ScanSettings(length=np.int64(64), rows=np.int64(3), measures=["entropy"])  # type: ignore[arg-type]
    assert settings == ScanSettings(length=64, rows=3, measures=("entropy",))
    assert type(settings.length) is int and type(settings.rows) is int


def test_text_without_a_tokenizer_is_refused(minilm: LoadedModel) -> None:
    with pytest.raises(OptionError, match="texts need a tokenizer"):
        scan(minilm.model, "Some text.")


def test_no_text_at_all_is_refused(minilm: LoadedModel) -> None:
    with pytest.raises(OptionError, match="there is too little text to read"):
        scan(minilm.model, "", tokenizer=minilm.tokenizer)


WORDS = torch.ones(2, 5, dtype=torch.long)
HOLES = torch.tensor([[0, 1, 1, 1, 0], [1, 0, 1, 1, 1]])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"inputs": {"input_ids": WORDS}}, "inputs is a dict"),
        ({"inputs": 5}, "inputs is a int"),
        ({"inputs": ["input_ids"]}, "a batch of inputs is a str"),
        ({"inputs": [{"input_ids": [[1, 2]]}]}, "input_ids is a list"),
        (
            {"inputs": [{"input_ids": WORDS, "attention_mask": [[1] * 5] * 2}]},
            "attention_mask is a list",
        ),
        (
            {"inputs": [{"input_ids": WORDS, "attention_mask": torch.ones(2, 1, 5, 5)}]},
            r"attention_mask is \[2, 1, 5, 5\]: it must be \[2, 5\]",
        ),
        (
            {"inputs": [{"input_ids": WORDS, "attention_mask": HOLES}]},
            "attention_mask hides tokens between others in sequence 1",
        ),
        ({"inputs": [{"input_ids": WORDS.float()}]}, r"input_ids is torch\.float32"),
        (
            {"inputs": [{"input_ids": WORDS * 40_000}]},
            r"BertModel cannot read this: input_ids has 40000, but its vocabulary is 0\.\.30521",
        ),
        ({"inputs": [{"input_ids": WORDS * -1}]}, "input_ids has -1"),
        (
            {"inputs": [{"input_ids": torch.ones(1, 600, dtype=torch.long)}]},
            "input_ids has 600 positions, but the model reads at most 512",
        ),
        (
            {"inputs": [{"input_ids": WORDS, "attention_masks": WORDS}]},
            "BertModel has no input 'attention_masks': did you mean attention_mask",
        ),
        ({"texts": Path("book.txt")}, r"texts is PosixPath\('book.txt'\)"),
        ({"texts": 5}, "texts is 5"),
        ({"treebank": "missing.conllu"}, "missing.conllu is not a file"),
        ({"treebank": Path("missing.conllu")}, "missing.conllu is not a file"),
        ({"treebank": ["A sentence."]}, "'A sentence.' is not a ProbeSentence"),
        ({"treebank": 5}, "5 is not a ProbeSentence"),
        (
            {"texts": "Hi.", "tokenizer": "bert"},
            "tokenizer is a str",
        ),
        ({"inputs": [{}]}, "a batch of inputs has no tensor"),
        ({"inputs": [{"input_ids": WORDS[0]}]}, r"input_ids is \[5\]"),
        ({"inputs": []}, "nothing was scanned"),
        ({"texts": ["Some text.", None]}, "a text is a NoneType"),
    ],
)
def test_unreadable_inputs_are_rejected(
    minilm: LoadedModel, given: dict[str, Any], words: str
) -> None:
    with pytest.raises((MaskError, OptionError, ShapeError), match=words):
        scan(minilm, **given, settings=ScanSettings(repeats=False))


def test_an_input_that_a_model_cannot_take_is_named() -> None:
    model, inputs = tiny("gpt2")
    table = scan(model, inputs=[{**inputs, "labels": inputs["input_ids"]}])
    assert len(table) > 0, "labels are left out, and no mistake"
    with pytest.raises(
        OptionError, match="GPT2LMHeadModel has no input 'input_idz': did you mean input_ids"
    ):
        scan(model, inputs=[{"input_idz": inputs["input_ids"]}])
    with pytest.raises(OptionError, match=r"no input 'glow': .*input_ids, "):
        scan(model, inputs=[{"glow": torch.ones(1, 3)}])


def clip(words: int) -> transformers.CLIPModel:
    """A tiny model that needs a picture beside its text."""
    sizes = {"hidden_size": 15, "intermediate_size": 7, "num_hidden_layers": 1}
    config = transformers.CLIPConfig(
        text_config={**sizes, "num_attention_heads": 3, "vocab_size": words},
        vision_config={**sizes, "num_attention_heads": 5, "image_size": 28, "patch_size": 14},
    )
    return transformers.CLIPModel(config).eval()


def test_a_model_that_needs_more_than_text_says_so(minilm: LoadedModel) -> None:
    model, quick = clip(len(minilm.tokenizer)), ScanSettings(repeats=False)
    words = r"CLIPModel cannot read text alone \(.*NoneType.*\): .*inputs=\[\.\.\.\]"
    with pytest.raises(OptionError, match=words):
        scan(model, "A cat sat down.", tokenizer=minilm.tokenizer, settings=quick)
    wrong = {"input_ids": WORDS, "pixel_values": torch.randn(2, 3, 5, 28)}
    with pytest.raises(OptionError, match=r"CLIPModel cannot read these inputs \(.*\): "):
        scan(model, inputs=[wrong], tokenizer=minilm.tokenizer, settings=quick)


def test_repeated_tokens_are_left_out_if_the_model_reads_more_than_text(
    minilm: LoadedModel,
) -> None:
    model, told = clip(len(minilm.tokenizer)), {"token_type_ids": torch.zeros_like(WORDS)}
    given = {"input_ids": WORDS, "pixel_values": torch.randn(2, 3, 28, 28)}
    with pytest.warns(UserWarning, match="repeated random tokens: .*pixel_values"):
        table = scan(model, inputs=[given], tokenizer=minilm.tokenizer)
    assert table.df["induction"].isna().all() and table.df["entropy"].notna().all()
    plain = ScanJob.of(minilm, inputs=[{"input_ids": WORDS, **told}])
    assert "repeats 0" in [batch.name for batch in plain.batches()]


def test_a_bug_of_headwise_is_not_blamed_on_the_inputs(minilm: LoadedModel) -> None:
    nowhere: Any = None
    counter = HeadCounter(nowhere, make_measures(), RowChoice("all"), compares=False)
    batch = batch_from_tensors({"input_ids": WORDS}, minilm.model.config)
    with pytest.raises(AttributeError, match="num_heads"):
        count_batch(minilm.model, batch, counter)


def test_a_module_without_attention_is_rejected_by_name(minilm: LoadedModel) -> None:
    for module in (torch.nn.Linear(3, 3), torch.nn.ReLU()):
        with pytest.raises(ModelError, match=f"{type(module).__name__} cannot be watched"):
            scan(module, "Some text.", tokenizer=minilm.tokenizer)


def test_a_treebank_is_read_from_its_file(minilm: LoadedModel, tmp_path: Path) -> None:
    file = tmp_path / "small.conllu"
    rows = ["1\tCats\t_\t_\t_\t_\t2\tnsubj:pass\t_\t_", "2\tsleep\t_\t_\t_\t_\t0\troot\t_\t_"]
    file.write_text("\n".join([*rows, "", ""]), encoding="utf-8")
    for given in (file, str(file)):
        (sentence,) = ScanJob.of(minilm, treebank=given).treebank or ()
        assert sentence.arcs == (Arc("nsubj", 0, 1),)
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(OptionError, match=r"small\.conllu"):
        ScanJob.of(minilm, treebank=file)


@pytest.mark.parametrize("given", ["abc", "0", "-2", "1.5"])
def test_a_world_size_that_is_not_a_count_is_rejected(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", given)
    with pytest.raises(OptionError, match=f"WORLD_SIZE is '{given}'"):
        ProcessGroup.from_environment()


def test_sentences_that_are_all_unusable_are_named(minilm: LoadedModel) -> None:
    long = ProbeSentence(("word",) * 600, (Arc("det", 0, 1),))
    with pytest.raises(OptionError, match="none of the 1 sentences"):
        scan(minilm, treebank=[long], settings=ScanSettings(repeats=False))
