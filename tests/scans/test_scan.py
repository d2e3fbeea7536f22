"""The whole scan: its tables, how it resumes, and how processes share it."""

import copy
import json
import math
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaModel

from headwise.errors import OptionError, OutputError
from headwise.head_table import HeadTable
from headwise.measures.similarity import centred_kernels, cka, pairwise_hsic
from headwise.models.loaded import LoadedModel
from headwise.models.loading import load_model
from headwise.reading.corpus import scan_texts
from headwise.reading.reader import Reader
from headwise.scans.folder import Scan
from headwise.scans.scan import STAGE, ScanJob, run_scan, scan
from headwise.scans.settings import LARGEST_SEED, ScanSettings
from headwise.scans.sums import ScanSums
from headwise.watching.watch import watch
from processes import ended, printed, start

from ..cli.running import Runner

TEXTS = scan_texts()
SETTINGS = ScanSettings(length=64, per_relation=3, max_sentences=40, probe=True)

INTERFACE = (
    *("stack", "layer", "head", "roles", "entropy", "normalised_entropy", "previous", "next"),
    *("self", "first", "first4", "special", "punctuation", "distance", "signed_distance"),
    *("duplicate", "induction", "confidence", "output_share"),
    *("value_previous", "value_first", "value_special", "value_punctuation", "value_induction"),
)


@pytest.fixture(scope="module")
def minilm() -> LoadedModel:
    return load_model("minilm")


def job_for(loaded: LoadedModel, settings: ScanSettings = SETTINGS) -> ScanJob:
    return ScanJob(
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        texts=TEXTS[:3],
        settings=settings,
        about={"name": loaded.name, **loaded.about},
    )


@pytest.fixture(scope="module")
def scanned(minilm: LoadedModel) -> Scan:
    return run_scan(job_for(minilm))


def test_every_head_has_a_row_and_every_required_column(scanned: Scan) -> None:
    df = scanned.table.df
    assert len(df) == 6 * 12
    assert [name for name in INTERFACE if name not in df] == []
    numbers = df[[name for name in INTERFACE if name not in ("stack", "layer", "head", "roles")]]
    assert numbers.notna().all(axis=None)


def test_the_table_records_how_it_was_made(scanned: Scan) -> None:
    about = scanned.table.about
    assert about["model"] == "minilm"
    assert about["loaded"]["sha256"].startswith("53aa51172d14")
    assert about["settings"]["length"] == 64
    assert about["tokens"] == about["counts"]["tokens"] > 300
    assert about["torch"] == torch.__version__.split("+")[0] or about["torch"] == torch.__version__
    assert "every row" in about["rows"]
    assert about["columns"]["entropy"].startswith("Mean entropy")


def test_pairs_compare_the_outputs_and_weights_of_every_two_heads(minilm: LoadedModel) -> None:
    text = TEXTS[0]
    settings = ScanSettings(repeats=False, measures="entropy", length=64, max_tokens=64)
    pairs = run_scan(ScanJob.of(minilm, text, settings=settings)).pairs.set_index(["a", "b"])
    assert len(pairs) == 72 * 71 // 2
    (window,) = Reader(minilm.tokenizer, minilm.model.config, length=64).windows([text], 64)
    with torch.inference_mode(), watch(minilm.model) as watched:
        minilm.model(input_ids=torch.tensor([window.ids]))
    kernels = torch.cat([centred_kernels(call.mixed[0].double()) for call in watched.calls])
    similarity = cka(pairwise_hsic(kernels))
    heads = [f"L{layer}H{head}" for layer in range(6) for head in range(12)]
    for first, second in ((0, 1), (3, 40), (70, 71), (13, 60)):
        pair = pairs.loc[(heads[first], heads[second])]
        assert pair["cka"] == pytest.approx(similarity[first, second].item(), abs=1e-4)
        assert math.isnan(pair["divergence"]) == (first // 12 != second // 12)
    within = pairs["divergence"].notna()
    assert within.sum() == 6 * (12 * 11 // 2)
    assert pairs["divergence"][within].between(0, math.log(2)).all()


def test_a_model_in_training_mode_stays_in_it(minilm: LoadedModel) -> None:
    minilm.model.train()
    run_scan(job_for(minilm, ScanSettings(length=16, max_tokens=40, repeats=False)))
    assert minilm.model.training
    minilm.model.eval()


def test_a_scan_of_tensors_needs_no_tokenizer() -> None:
    config = LlamaConfig(
        vocab_size=53, hidden_size=30, intermediate_size=7, num_hidden_layers=2,
        num_attention_heads=5, num_key_value_heads=5,
    )  # fmt: skip
    model = LlamaModel(config).eval()
    table = scan(model, inputs=[{"input_ids": torch.randint(0, 53, (2, 11))}])
    assert len(table) == 10
    for name in ("special", "punctuation"):
        assert table.df[name].isna().all(), "only a tokenizer knows these tokens"
    assert "delimiter" in table.untested_roles and "delimiter_score" not in table.df
    assert table.df["confidence"].notna().all()
    assert table.df["next"].isna().all(), "a causal model sees no later token"
    assert table.df["induction"].isna().all(), "random tokens need a tokenizer"


def test_sampled_rows_differ_by_as_much_as_their_standard_errors(minilm: LoadedModel) -> None:
    exact = run_scan(job_for(minilm, ScanSettings(rows="all", repeats=False, compares=False)))
    assert [name for name in exact.table.df if name.endswith("_se")] == []
    relative = []
    for seed in range(8):
        settings = ScanSettings(rows=41, repeats=False, compares=False, seed=seed)
        sampled = run_scan(job_for(minilm, settings)).table
        assert "41 random rows" in sampled.about["rows"]
        for name in ("entropy", "previous", "confidence"):
            difference = sampled.df[name] - exact.table.df[name]
            relative.append(difference / sampled.df[f"{name}_se"])
    errors = pd.concat(relative)
    # Of a standard normal, 68% are within 1 and 95% within 2; heads of one text are correlated.
    assert 0.45 < (errors.abs() < 1).mean() < 0.88
    assert 0.80 < (errors.abs() < 2).mean() < 1.0
    assert errors.abs().max() > 1.5, "errors that are never reached are too large"


def test_sums_are_read_back_to_the_last_bit(minilm: LoadedModel) -> None:
    sums = ScanSums()
    for batch in job_for(minilm).batches():
        batch.count(batch.build(), sums)
        sums.done.add(batch.name)
    content = sums.to_bytes()
    read_back = ScanSums.from_bytes(content)
    assert read_back.to_bytes() == content
    assert {name.split()[0] for name in read_back.done} == {
        *("text", "repeats", "natural", "controlled", "balanced"),
    }
    assert job_for(minilm).build_tables(read_back).table == job_for(minilm).build_tables(sums).table


def test_batches_merge_in_any_order(minilm: LoadedModel, scanned: Scan) -> None:
    parts = [ScanSums() for _ in range(3)]
    for number, batch in enumerate(job_for(minilm).batches()):
        batch.count(batch.build(), parts[number % 3])
    merged = ScanSums()
    for part in reversed(parts):
        merged.merge(part)
    again = job_for(minilm).build_tables(merged)
    for name in INTERFACE[4:]:
        ours, theirs = again.table.df[name], scanned.table.df[name]
        pd.testing.assert_series_equal(ours, theirs, rtol=1e-9)
    assert list(again.table.df["roles"]) == list(scanned.table.df["roles"])


def test_an_error_names_the_settings_that_differ(minilm: LoadedModel, tmp_path: Path) -> None:
    small = ScanSettings(length=16, max_tokens=40, repeats=False)
    run_scan(job_for(minilm, small), out=tmp_path)
    again = run_scan(job_for(minilm, small), out=tmp_path)
    assert again.table == HeadTable.read(tmp_path / "heads.parquet")
    other = ScanSettings(length=17, max_tokens=40, repeats=False)
    with pytest.raises(OutputError, match=r"length.*16.*17"):
        run_scan(job_for(minilm, other), out=tmp_path)
    run_scan(job_for(minilm, other), out=tmp_path, force=True)
    assert HeadTable.read(tmp_path / "heads.csv").about["settings"]["length"] == 17


SCRIPT = """
import sys
from pathlib import Path
from headwise.reading import reader
from headwise.scans import folder
from headwise.scans.scan import ScanJob, run_scan
from headwise.scans.settings import ScanSettings
from headwise.reading.corpus import scan_texts
folder.SECONDS_BETWEEN_SAVES = 0.0
reader.BATCH_WINDOWS = 2  # many batches

def save(self, sums, *, now=False, keep=folder.ScanFolder.save):
    keep(self, sums, now=now)
    print("saved", flush=True)

folder.ScanFolder.save = save
settings = ScanSettings(length=32, per_relation=1, max_sentences=9, probe=True)
run_scan(ScanJob.of("minilm", scan_texts()[:2], settings=settings), out=Path(sys.argv[1]))
"""


def saved(says: Path) -> int:
    """How often a scan has saved so far."""
    return printed(says).count("saved")


@pytest.mark.slow
def test_a_scan_killed_at_five_moments_ends_with_the_same_table(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    first, last = tmp_path / "first", tmp_path / "last"
    ended(start(SCRIPT, whole, says=first), says=[first])
    steps = saved(first)
    assert steps > 12
    moments = random.Random(0)
    for number in range(5):
        says, most = tmp_path / f"says {number}", moments.randrange(1, 3)
        scanning = start(SCRIPT, killed, says=says)
        while saved(says) < most:
            assert scanning.is_alive(), printed(says)
            time.sleep(0.005)
        time.sleep(moments.uniform(0.0, 0.03))
        scanning.kill()
        scanning.join()
        assert scanning.exitcode == -signal.SIGKILL
    ended(start(SCRIPT, killed, says=last), says=[last])
    assert 0 < saved(last) < steps
    for name in ("heads.parquet", "heads.csv", "pairs.parquet", "relations.parquet"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), name


EVERY_RANK = """
import os
import sys
import headwise
from headwise.cli import run_cli
folder, text, *words = sys.argv[1:]
sys.argv = ["headwise", *words]
try:
    run_cli()
except SystemExit as end:
    assert end.code == 0
settings = headwise.ScanSettings(measures="entropy")
table = headwise.scan("minilm", text, settings=settings, shares_work=True)
table.write(f"{folder}/{os.environ['RANK']}.parquet")
if os.environ["RANK"] == "1":  # a process on its own waits for no other
    assert len(headwise.scan("minilm", text, settings=settings)) == 72
"""


@pytest.mark.slow
def test_two_processes_build_the_table_of_one_and_each_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("scan", "--length", "64", "--no-probe", "--text", str(tmp_path / "text.txt"))
    (tmp_path / "text.txt").write_text("\n".join(TEXTS[:2]), encoding="utf-8")
    assert Runner(monkeypatch, capsys)(*options, "--out", tmp_path / "one").code == 0
    (tmp_path / "every_rank.py").write_text(EVERY_RANK, encoding="utf-8")
    launched = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"),
        *(str(tmp_path / "every_rank.py"), str(tmp_path), TEXTS[0]),
        *(*options, "--out", str(tmp_path / "two")),
    ]
    subprocess.run(launched, check=True, capture_output=True)
    one, two = (HeadTable.read(tmp_path / folder / "heads.parquet") for folder in ("one", "two"))
    for name in one.df.select_dtypes("number"):
        pd.testing.assert_series_equal(one.df[name], two.df[name], rtol=1e-6, atol=1e-9)
    assert list(one.df["roles"]) == list(two.df["roles"])
    first, second = (HeadTable.read(tmp_path / f"{rank}.parquet") for rank in (0, 1))
    assert first == second
    assert len(first) == 72


def test_one_process_of_several_scans_alone(
    minilm: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    quick = ScanSettings(repeats=False, measures="entropy")
    assert scan(minilm, "The cat sat down.", settings=quick).about["tokens"] == 7
    with pytest.raises(ValueError, match="MASTER_ADDR"):  # torchrun sets it
        scan(minilm, "The cat sat down.", settings=quick, shares_work=True)


def test_the_largest_seed_draws_rows(minilm: LoadedModel) -> None:
    settings = ScanSettings(seed=LARGEST_SEED, rows=3, repeats=False, measures="entropy")
    assert scan(minilm, "The cat sat down on the mat.", settings=settings).about["tokens"] == 10


def test_a_loaded_model_brings_its_tokenizer_and_name(minilm: LoadedModel) -> None:
    job = ScanJob.of(minilm, "Some text.")
    assert job.tokenizer is minilm.tokenizer
    assert job.about["name"] == "minilm" and job.about["sha256"].startswith("53aa51172d14")
    other = copy.copy(minilm.tokenizer)
    assert ScanJob.of(minilm, "Some text.", tokenizer=other).tokenizer is other


@pytest.mark.parametrize(
    ("probe", "options", "is_read"),
    [
        (None, {}, True),
        (None, {"texts": "Some text."}, False),
        (False, {}, False),
        (True, {"texts": "Some text."}, True),
    ],
)
def test_built_in_sentences_are_read_without_text(
    minilm: LoadedModel, probe: bool | None, options: dict[str, Any], is_read: bool
) -> None:
    job = ScanJob.of(minilm, **options, settings=ScanSettings(rows=5, probe=probe))
    assert job.reads_builtin_sentences is is_read
    assert job.texts == ([options["texts"]] if options else list(TEXTS))


def test_a_name_alone_is_scanned_on_built_in_text() -> None:
    job = ScanJob.of("minilm")
    assert job.reads_builtin_sentences
    assert job.texts == list(TEXTS)
    json.dumps(job.fingerprint)


def test_a_length_beyond_the_models_limit_is_rejected(minilm: LoadedModel) -> None:
    with pytest.raises(OptionError, match=r"length.*8,192.*512"):
        scan(minilm, "Some text.", settings=ScanSettings(length=8192))


def test_every_column_of_a_measure_is_described(scanned: Scan) -> None:
    described, columns = set(scanned.table.about["columns"]), set(scanned.table.df)
    assert described <= columns
    assert {"induction", "best_offset", "largest_offset_share", "nearest_cka"} <= described
    of_roles = (
        *("_score", "_threshold", "_baseline", "_detail", "_counts", "_se", "_arcs", "_low"),
        *("_high", "_relation", "_reading", "_source"),
    )
    assert columns - described - {name for name in columns if name.endswith(of_roles)} == {
        *("stack", "layer", "head", "roles"),
    }


def test_progress_counts_tokens_and_skips_what_was_done(
    minilm: LoadedModel, tmp_path: Path
) -> None:
    def run() -> list[tuple[str, int, int]]:
        calls: list[tuple[str, int, int]] = []
        job = ScanJob.of(minilm, TEXTS[:2], settings=ScanSettings(repeats=False, length=64))
        run_scan(job, out=tmp_path, progress=lambda *call: calls.append(call))
        return calls

    calls = run()
    assert {stage for stage, _, _ in calls} == {STAGE}
    done, totals = [call[1] for call in calls], {call[2] for call in calls}
    assert done == sorted(done) and done[0] == 0 and totals == {done[-1]}
    assert done[-1] == HeadTable.read(tmp_path).about["tokens"]
    assert run() == calls, "a complete scan reports the same"


def test_relations_name_heads_by_stack_layer_and_number(scanned: Scan) -> None:
    frame = scanned.relations
    names = [f"L{layer}H{head}" for layer, head in zip(frame["layer"], frame["head"], strict=True)]
    assert list(frame["name"]) == names
    assert set(frame["stack"]) == {""}
    assert set(names) == {str(head) for head in scanned.table.heads}
