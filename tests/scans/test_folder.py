"""A folder belongs to one scan: which scans resume there, which it rejects, what force leaves."""

import copy
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

from headwise.errors import OptionError, OutputError
from headwise.models.fingerprint import digest_weights
from headwise.models.loading import load_model
from headwise.probes.sentences import Arc, ProbeSentence
from headwise.scans.folder import TABLES, Scan
from headwise.scans.scan import ScanJob, run_scan, scan
from headwise.scans.settings import ScanSettings

WORDS = 53
QUICK = ScanSettings(repeats=False, measures=("entropy",))


def llama(seed: int, **options: Any) -> LlamaModel:
    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=30, intermediate_size=7, num_hidden_layers=2,
        num_attention_heads=5, num_key_value_heads=5, **options,
    )  # fmt: skip
    torch.manual_seed(seed)
    return LlamaModel(config).eval()


def inputs(seed: int, length: int = 11) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [{"input_ids": torch.randint(0, WORDS, (2, length), generator=generator)}]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_model("minilm").tokenizer


def bert(tokenizer: Any) -> BertModel:
    torch.manual_seed(0)
    return BertModel(
        BertConfig(
            vocab_size=len(tokenizer), hidden_size=6, intermediate_size=7, num_hidden_layers=1,
            num_attention_heads=3, max_position_embeddings=64,
        )
    ).eval()  # fmt: skip


def test_the_same_model_and_inputs_resume(tmp_path: Path) -> None:
    first = scan(llama(0), inputs=inputs(0), out=tmp_path)
    assert scan(llama(0), inputs=inputs(0), out=tmp_path) == first


def test_other_weights_are_rejected(tmp_path: Path) -> None:
    scan(llama(0), inputs=inputs(0), out=tmp_path)
    with pytest.raises(OutputError, match="weights"):
        scan(llama(1), inputs=inputs(0), out=tmp_path)


def test_the_same_weights_with_another_config_are_rejected(tmp_path: Path) -> None:
    scan(llama(0), inputs=inputs(0), out=tmp_path)
    with pytest.raises(OutputError, match="config"):
        scan(llama(0, rope_theta=100.0), inputs=inputs(0), out=tmp_path)


def test_another_tokenizer_is_rejected(tmp_path: Path, tokenizer: Any) -> None:
    def read(its_tokenizer: Any) -> None:
        scan(model, "The cat sat down.", tokenizer=its_tokenizer, settings=QUICK, out=tmp_path)

    model, other = bert(tokenizer), copy.deepcopy(tokenizer)
    read(tokenizer)
    other(["a", "b c"], padding=True, truncation=True, max_length=3)  # it remembers these
    read(other)
    other.backend_tokenizer.normalizer = None
    with pytest.raises(OutputError, match="tokenizer"):
        read(other)


def test_another_attention_implementation_resumes(tmp_path: Path) -> None:
    scan(llama(0, attn_implementation="sdpa"), inputs=inputs(0), out=tmp_path)
    scan(llama(0, attn_implementation="eager"), inputs=inputs(0), out=tmp_path)


def test_other_inputs_are_rejected(tmp_path: Path) -> None:
    scan(llama(0), inputs=inputs(0), out=tmp_path)
    with pytest.raises(OutputError, match="inputs"):
        scan(llama(0), inputs=inputs(1), out=tmp_path)


def test_a_model_retrained_in_its_directory_is_rejected(tmp_path: Path, tokenizer: Any) -> None:
    model, folder, text = bert(tokenizer), tmp_path / "model", "The cat sat down."
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    scan(str(folder), text, settings=QUICK, out=tmp_path / "out")
    with torch.no_grad():
        model.encoder.layer[0].attention.self.query.weight[2, 3] += 1
    model.save_pretrained(folder)
    with pytest.raises(OutputError, match="weights"):
        scan(str(folder), text, settings=QUICK, out=tmp_path / "out")


def test_other_sentences_are_rejected(tmp_path: Path, tokenizer: Any) -> None:
    def read(*arcs: Arc) -> None:
        sentences = [ProbeSentence(("The", "cat", "sat", "."), arcs)]
        scan(model, tokenizer=tokenizer, treebank=sentences, settings=QUICK, out=tmp_path)

    model = bert(tokenizer)
    read(Arc("nsubj", 1, 2))
    read(Arc("nsubj", 1, 2))
    with pytest.raises(OutputError, match="sentences"):
        read(Arc("nsubj", 1, 2), Arc("det", 0, 1))


def test_one_changed_weight_changes_the_digest_and_nothing_else_does() -> None:
    large = nn.Embedding(4099, 3)
    before = digest_weights(large)
    assert digest_weights(large) == before
    with torch.no_grad():
        large.weight[4001, 1] += 1
    assert digest_weights(large) != before
    assert digest_weights(nn.Embedding(4099, 3, device="meta"))


@pytest.mark.parametrize("name", ["settings.json", "progress-0.npz"])
def test_an_unreadable_file_is_an_error_with_its_name(tmp_path: Path, name: str) -> None:
    scan(llama(0), inputs=inputs(0), out=tmp_path)
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    with pytest.raises(OptionError, match=f"{name}.* directory"):
        scan(llama(0), inputs=inputs(0), out=tmp_path)


def test_a_scan_is_read_back_as_it_was_written(tmp_path: Path, tokenizer: Any) -> None:
    sentences = [ProbeSentence(("The", "cat", "sat", "."), (Arc("nsubj", 1, 2),))]
    job = ScanJob.of(bert(tokenizer), "It rained.", tokenizer=tokenizer, treebank=sentences)
    written = run_scan(job, out=tmp_path / "out")
    read_back = Scan.read(tmp_path / "out")
    assert read_back.table == written.table
    pd.testing.assert_frame_equal(read_back.pairs, written.pairs)
    pd.testing.assert_frame_equal(read_back.relations, written.relations)
    written.write(tmp_path / "copy")
    for name in TABLES:
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    with pytest.raises(OutputError, match=r"heads\.parquet"):
        written.write(tmp_path / "copy")


def test_writing_over_a_scan_leaves_no_table_of_the_old_one(tmp_path: Path) -> None:
    scan(llama(0), inputs=inputs(0), out=tmp_path)
    settings = ScanSettings(compares=False)
    without_pairs = run_scan(ScanJob.of(llama(0), inputs=inputs(0), settings=settings))
    assert (tmp_path / "pairs.parquet").exists()
    without_pairs.write(tmp_path, force=True)
    assert not (tmp_path / "pairs.parquet").exists()
    assert Scan.read(tmp_path).pairs.empty


def test_reading_rejects_a_folder_without_a_scan_and_a_damaged_table(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"heads\.parquet"):
        Scan.read(tmp_path)
    scan(llama(0), inputs=inputs(0), out=tmp_path)
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1")
    with pytest.raises(OptionError, match=r"pairs\.parquet"):
        Scan.read(tmp_path)


def test_only_a_folder_with_every_table_was_complete(tmp_path: Path) -> None:
    def run(**options: Any) -> Scan:
        return run_scan(ScanJob.of(llama(0), inputs=inputs(0)), out=tmp_path, **options)

    assert not run().was_complete
    assert run().was_complete
    assert not run(force=True).was_complete
    (tmp_path / "heads.csv").unlink()
    assert not run().was_complete
    assert run().was_complete


def test_force_leaves_nothing_of_the_old_scan(tmp_path: Path, tokenizer: Any) -> None:
    model, arcs = bert(tokenizer), (Arc("nsubj", 1, 2),)
    sentences = [ProbeSentence(("The", "cat", "sat", "."), arcs)]
    scan(model, tokenizer=tokenizer, treebank=sentences, texts="It rained.", out=tmp_path)
    (tmp_path / "progress-1.npz").write_bytes(b"of a second process")
    (tmp_path / "mine.txt").write_text("mine")
    assert {"relations.parquet", "pairs.parquet"} <= {file.name for file in tmp_path.iterdir()}
    alone = ScanSettings(repeats=False, compares=False)
    with pytest.raises(OutputError, match=r"--force.*force=True"):
        scan(model, "It rained.", tokenizer=tokenizer, settings=alone, out=tmp_path)
    scan(model, "It rained.", tokenizer=tokenizer, settings=alone, out=tmp_path, force=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        *("heads.about.json", "heads.csv", "heads.parquet", "mine.txt", "progress-0.npz"),
        *("scan.json", "settings.json"),
    ]
