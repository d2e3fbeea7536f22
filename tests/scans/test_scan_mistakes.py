"""A scan rejects models, inputs and settings that it cannot use."""

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
    ("options", "facts"),
    [
        ({"measures": ("entropy", "glow")}, "'glow'.*offsets"),
        ({"rows": "some"}, "rows.*'some'.*all, auto"),
        ({"rows": 0}, "rows.* 0.*1"),
        ({"measures": "glow"}, "'glow'"),
        ({"seed": 10**20}, "seed.* 100,000,[0,]*.*4,294,967,295"),
        ({"seed": -1}, "seed.* -1.*0"),
        ({"per_relation": 0}, "per_relation.* 0"),
        ({"per_relation": 1001}, "per_relation.* 1,001.*1,000"),
        ({"length": 0}, "length.* 0.*1"),
        ({"length": 64.0}, r"length.* 64\.0"),
        ({"length": "64"}, "length.*'64'"),
        ({"max_tokens": True}, "max_tokens.*True"),
        ({"seed": 1.5}, r"seed.* 1\.5"),
        ({"seed": None}, "seed.*None"),
        ({"rows": 0.5}, r"rows.* 0\.5"),
        ({"rows": True}, "rows.*True"),
        ({"per_relation": 2.5}, r"per_relation.* 2\.5"),
        ({"compares": "no"}, "compares.*'no'"),
        ({"repeats": None}, "repeats.*None"),
        ({"probe": 1}, "probe.* 1"),
        ({"measures": 3}, "measures.* 3.*entropy"),
        ({"measures": [3]}, "measures.* 3"),
    ],
)
def test_settings_reject_values_that_cannot_be_used(options: dict[str, object], facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        ScanSettings(**options)  # type: ignore[arg-type]


def test_settings_become_python_integers() -> None:
    settings = ScanSettings(length=np.int64(64), rows=np.int64(3), measures=["entropy"])  # type: ignore[arg-type]
    assert settings == ScanSettings(length=64, rows=3, measures=("entropy",))
    assert type(settings.length) is int and type(settings.rows) is int


def test_text_without_a_tokenizer_raises(minilm: LoadedModel) -> None:
    with pytest.raises(OptionError, match="tokenizer"):
        scan(minilm.model, "Some text.")


def test_an_empty_text_raises(minilm: LoadedModel) -> None:
    with pytest.raises(OptionError, match="too little text"):
        scan(minilm.model, "", tokenizer=minilm.tokenizer)


WORDS = torch.ones(2, 5, dtype=torch.long)
HOLES = torch.tensor([[0, 1, 1, 1, 0], [1, 0, 1, 1, 1]])


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"inputs": {"input_ids": WORDS}}, "inputs.* dict"),
        ({"inputs": 5}, "inputs.* int"),
        ({"inputs": ["input_ids"]}, "inputs.* str"),
        ({"inputs": [{"input_ids": [[1, 2]]}]}, "input_ids.* list"),
        (
            {"inputs": [{"input_ids": WORDS, "attention_mask": [[1] * 5] * 2}]},
            "attention_mask.* list",
        ),
        (
            {"inputs": [{"input_ids": WORDS, "attention_mask": torch.ones(2, 1, 5, 5)}]},
            r"attention_mask.*\[2, 1, 5, 5\].*\[2, 5\]",
        ),
        (
            {"inputs": [{"input_ids": WORDS, "attention_mask": HOLES}]},
            "attention_mask.* sequence 1",
        ),
        ({"inputs": [{"input_ids": WORDS.float()}]}, r"input_ids.* torch\.float32"),
        (
            {"inputs": [{"input_ids": WORDS * 40_000}]},
            r"BertModel.*input_ids.* 40000.* 0\.\.30521",
        ),
        ({"inputs": [{"input_ids": WORDS * -1}]}, "input_ids.* -1"),
        (
            {"inputs": [{"input_ids": torch.ones(1, 600, dtype=torch.long)}]},
            "input_ids.* 600.* 512",
        ),
        (
            {"inputs": [{"input_ids": WORDS, "attention_masks": WORDS}]},
            r"BertModel.*'attention_masks'.*attention_mask\b",
        ),
        ({"texts": Path("book.txt")}, r"texts.*PosixPath\('book.txt'\)"),
        ({"texts": 5}, "texts.* 5"),
        ({"treebank": "missing.conllu"}, r"missing\.conllu"),
        ({"treebank": Path("missing.conllu")}, r"missing\.conllu"),
        ({"treebank": ["A sentence."]}, "'A sentence.'.*ProbeSentence"),
        ({"treebank": 5}, "5.*ProbeSentence"),
        ({"texts": "Hi.", "tokenizer": "bert"}, "tokenizer.* str"),
        ({"inputs": [{}]}, "inputs.* no tensor"),
        ({"inputs": [{"input_ids": WORDS[0]}]}, r"input_ids.*\[5\]"),
        ({"inputs": []}, "texts, inputs or sentences"),
        ({"texts": ["Some text.", None]}, "text.* NoneType"),
    ],
)
def test_unreadable_inputs_are_rejected(
    minilm: LoadedModel, options: dict[str, Any], facts: str
) -> None:
    with pytest.raises((MaskError, OptionError, ShapeError), match=facts):
        scan(minilm, **options, settings=ScanSettings(repeats=False))


def test_an_unknown_input_raises_but_labels_do_not() -> None:
    model, inputs = tiny("gpt2")
    assert len(scan(model, inputs=[{**inputs, "labels": inputs["input_ids"]}])) > 0
    with pytest.raises(OptionError, match=r"GPT2LMHeadModel.*'input_idz'.*input_ids"):
        scan(model, inputs=[{"input_idz": inputs["input_ids"]}])
    with pytest.raises(OptionError, match=r"'glow'.*input_ids, "):
        scan(model, inputs=[{"glow": torch.ones(1, 3)}])


def clip(words: int) -> transformers.CLIPModel:
    """A tiny model that needs a picture as well as text."""
    sizes = {"hidden_size": 15, "intermediate_size": 7, "num_hidden_layers": 1}
    config = transformers.CLIPConfig(
        text_config={**sizes, "num_attention_heads": 3, "vocab_size": words},
        vision_config={**sizes, "num_attention_heads": 5, "image_size": 28, "patch_size": 14},
    )
    return transformers.CLIPModel(config).eval()


def test_text_alone_raises_if_the_model_needs_more(minilm: LoadedModel) -> None:
    model, quick = clip(len(minilm.tokenizer)), ScanSettings(repeats=False)
    with pytest.raises(OptionError, match=r"CLIPModel.* text .*NoneType.*inputs=\[\.\.\.\]"):
        scan(model, "A cat sat down.", tokenizer=minilm.tokenizer, settings=quick)
    wrong = {"input_ids": WORDS, "pixel_values": torch.randn(2, 3, 5, 28)}
    with pytest.raises(OptionError, match=r"CLIPModel.* inputs"):
        scan(model, inputs=[wrong], tokenizer=minilm.tokenizer, settings=quick)


def test_repeated_tokens_are_skipped_if_the_model_reads_more_than_text(
    minilm: LoadedModel,
) -> None:
    pictures = {"input_ids": WORDS, "pixel_values": torch.randn(2, 3, 28, 28)}
    with pytest.warns(UserWarning, match=r"induction.*pixel_values"):
        table = scan(clip(len(minilm.tokenizer)), inputs=[pictures], tokenizer=minilm.tokenizer)
    assert table.df["induction"].isna().all() and table.df["entropy"].notna().all()
    text = {"input_ids": WORDS, "token_type_ids": torch.zeros_like(WORDS)}
    batches = ScanJob.of(minilm, inputs=[text]).batches()
    assert "repeats 0" in [batch.name for batch in batches]


def test_a_bug_in_headwise_is_not_blamed_on_the_inputs(minilm: LoadedModel) -> None:
    no_sums: Any = None
    counter = HeadCounter(no_sums, make_measures(), RowChoice("all"), compares=False)
    batch = batch_from_tensors({"input_ids": WORDS}, minilm.model.config)
    with pytest.raises(AttributeError, match="num_heads"):
        count_batch(minilm.model, batch, counter)


def test_a_module_without_attention_is_rejected_by_name(minilm: LoadedModel) -> None:
    for module in (torch.nn.Linear(3, 3), torch.nn.ReLU()):
        with pytest.raises(ModelError, match=type(module).__name__):
            scan(module, "Some text.", tokenizer=minilm.tokenizer)


def test_a_treebank_is_read_from_its_file(minilm: LoadedModel, tmp_path: Path) -> None:
    file = tmp_path / "small.conllu"
    rows = ["1\tCats\t_\t_\t_\t_\t2\tnsubj:pass\t_\t_", "2\tsleep\t_\t_\t_\t_\t0\troot\t_\t_"]
    file.write_text("\n".join([*rows, "", ""]), encoding="utf-8")
    for treebank in (file, str(file)):
        (sentence,) = ScanJob.of(minilm, treebank=treebank).treebank or ()
        assert sentence.arcs == (Arc("nsubj", 0, 1),)
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(OptionError, match=r"small\.conllu"):
        ScanJob.of(minilm, treebank=file)


@pytest.mark.parametrize("size", ["abc", "0", "-2", "1.5"])
def test_a_world_size_that_is_not_a_count_is_rejected(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(OptionError, match=f"WORLD_SIZE.*'{size}'"):
        ProcessGroup.from_environment()


def test_sentences_of_which_none_can_be_used_raise(minilm: LoadedModel) -> None:
    long = ProbeSentence(("word",) * 600, (Arc("det", 0, 1),))
    with pytest.raises(OptionError, match="1 sentences"):
        scan(minilm, treebank=[long], settings=ScanSettings(repeats=False))
