"""`headwise importance` and `headwise prune`: their output, files and errors."""

import json
from pathlib import Path

import pandas as pd
import pytest

from headwise.files import lock_folder
from headwise.formats import join_words
from headwise.head_table import HeadTable
from headwise.models.loading import load
from headwise.pruning.importance.workload import HEAD_MEASURES
from headwise.pruning.record import PruneRecord
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.text_sets import builtin_sets, other_texts
from headwise.views.pruning import score_cell

from ..models.test_loading import save
from .hostile import SMALL
from .running import Runner


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save("llama", tmp_path_factory.mktemp("llama"))


def test_importance_is_printed_and_written(
    headwise: Runner, folder: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ran = headwise("importance", folder, "--text", text, "--max-tokens", 90, "--out", out)
    assert ran.code == 0
    first, *stages = ran.err.splitlines()
    assert first.startswith("headwise: measuring 18 heads on 90 tokens in 2 batches: ")
    assert stages == [
        "headwise: backward passes",
        "headwise: silencing heads one by one",
        "headwise: leaving one head per layer",
    ]
    for words in ("next-token loss", "L0H0", "One head left in a layer", "stand-ins"):
        assert words in ran.out
    table = HeadTable.read(out / "importance.parquet")
    assert {"zero", "mean", "michel", "fisher", "expected", "zero_se"} <= set(table.df.columns)
    assert table == HeadTable.read(out / "importance.csv")
    again = headwise.refused("importance", folder, "--text", text, "--out", out)
    assert "importance.parquet" in again and "--force" in again


def test_importance_takes_only_the_measures_asked_for(
    headwise: Runner, folder: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = ("importance", folder, "--text", text, "--out", out)
    ran = headwise(*arguments, "--measures", "michel, zero", "--exact-tokens", 40)
    assert ran.code == 0
    assert "wrote importance.parquet, importance.csv in" in ran.out
    assert "One head left" not in ran.out and "stand-ins" not in ran.out
    table = HeadTable.read(out / "importance.csv")
    assert table.about["exact_tokens"] < table.about["tokens"]
    assert f"--exact-tokens {table.about['tokens']}" in ran.out
    assert {"zero", "michel"} == set(table.df) & set(HEAD_MEASURES)
    ran = headwise("importance", folder, "--measures", "stand_ins", "--text", text, "--json")
    assert json.loads(ran.out)["layers"] is None
    error = headwise.refused("importance", "no such model", "--measures", "zeros")
    assert "--measures is 'zeros'" in error and "best_alone" in error


def test_two_runs_do_not_write_into_one_folder(
    headwise: Runner, folder: Path, text: Path, tmp_path: Path
) -> None:
    with lock_folder(tmp_path):
        error = headwise.refused("importance", folder, "--text", text, "--out", tmp_path)
    assert f"another process is writing {tmp_path}" in error
    assert list(tmp_path.iterdir()) == [text]


def test_importance_as_json(headwise: Runner, folder: Path, text: Path) -> None:
    out = text.parent / "out"
    ran = headwise("importance", folder, "--text", text, "--max-tokens", 60, "--json", "--out", out)
    printed = json.loads(ran.out)
    kept = HeadTable.read(out / "importance.parquet").df
    assert [row["fisher"] for row in printed["heads"]] == kept["fisher"].tolist()
    assert min(kept["fisher"]) < 1e-5  # ten decimals would leave six digits
    added = pd.read_csv(out / "layers.csv")["added"].tolist()
    assert [row["added"] for row in printed["layers"]] == pytest.approx(added, rel=1e-15)
    assert "roles" not in printed["heads"][0] and "Infinity" not in ran.out
    assert ran.err.startswith("headwise: measuring 18 heads on 60 tokens")
    assert len(printed["heads"]) == 18
    assert printed["about"]["objective"] == "next-token loss"
    assert [row["layer"] for row in printed["layers"]] == ["L0", "L1", "L2"]


def test_prune_writes_a_model_with_its_proof(
    headwise: Runner, folder: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "smaller"
    options = ("--cut", 6, "--out", out, "--curve", "--refit", "full", *SMALL)
    ran = headwise("prune", folder, "--text", text, *options)
    assert ran.code == 0, ran.err
    first, *stages = ran.err.splitlines()
    assert first == (
        "headwise: cutting 6 of 18 heads, keeping 12: chosen on 60 tokens, corrected on 120 "
        "tokens, measured on 60 tokens of other text"
    )
    assert stages == [
        "headwise: choosing heads: backward passes",
        "headwise: choosing heads: silencing heads one by one",
        "headwise: measuring the curve",
        "headwise: refitting layers",
        "headwise: measuring and writing the smaller model",
    ]
    for words in ("6 heads cut", "removed", "perplexity", "every head silent", "elbow"):
        assert words in ran.out, ran.out
    record = json.loads((out / "prune.json").read_text("utf-8"))
    part = record["text"]["report"]
    assert f"Measured on {part['examples']} passages of your text, {part['tokens']}" in ran.out
    assert len(record["quality"]["random"]) == 5
    assert record["after"]["heads"] == record["before"]["heads"] - 6
    assert record["cut_against_silenced"] < 1e-5
    plan = CutPlan.read(out / "plan.json")
    assert len(plan) == 6 and plan.reasons
    assert (out / "curve.csv").read_text("utf-8").startswith("method,cut,share,loss")
    assert (out / "curve.svg").read_text("utf-8").startswith("<svg")
    load(out)
    assert "smaller is an existing model" in headwise.refused(
        "prune", folder, "--cut", 6, "--out", out
    )
    edited = tmp_path / "plan.txt"
    edited.write_text(plan.text(), encoding="utf-8")
    more = ("--plan", edited, "--out", tmp_path / "again", "--refit", "none")
    ran = headwise("prune", folder, "--text", text, *more, *SMALL)
    assert ran.code == 0, ran.err
    assert (tmp_path / "again" / "config.json").exists()
    scanned = headwise("scan", out, "--text", text, "--measures", "entropy")
    assert scanned.code == 0, scanned.err


def test_scan_of_a_cut_model_says_that_heads_have_new_numbers(
    headwise: Runner, folder: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "smaller"
    which = ("--heads", "L1H0 L1H1 L1H2", "--refit", "none")
    assert headwise("prune", folder, "--text", text, "--out", out, *which, *SMALL).code == 0
    scanned = headwise("scan", out, "--text", text, "--measures", "entropy").out
    assert "a cut model, whose heads have new numbers: L1H0 was L1H3 before the cut" in scanned
    assert "role  head" not in scanned  # of a table without rows


def test_curve_without_an_elbow_prints_none(
    headwise: Runner, folder: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.pruning.selection.curve.Curve.elbow", 0)
    more = ("--heads", "L1H0 L1H1 L1H2", "--refit", "none", "--out", tmp_path / "smaller")
    ran = headwise("prune", folder, "--text", text, "--curve", *more, *SMALL)
    assert "against heads cut" in ran.out and "elbow of" not in ran.out


def test_named_heads_need_no_curve_and_a_largest_loss_does(
    headwise: Runner, folder: Path, text: Path, tmp_path: Path
) -> None:
    for number, (amount, has_curve) in enumerate(
        [
            (("--heads", "L1H0 L1H1 L1H2"), False),
            (("--keep", "80%"), False),
            (("--max-loss", "500%", "--method", "michel"), True),
        ]
    ):
        out = tmp_path / str(number)
        ran = headwise("prune", folder, "--text", text, *amount, "--out", out, *SMALL)
        assert ran.code == 0, ran.err
        assert ("measuring the curve" in ran.err) == has_curve
        assert ("against heads cut" in ran.out) == has_curve
        assert (out / "curve.csv").exists() == (out / "curve.svg").exists() == has_curve


def test_your_text_and_other_text_stand_side_by_side_with_standard_errors(
    headwise: Runner, folder: Path, text: Path, tmp_path: Path
) -> None:
    amount = ("--cut", 6, "--out", tmp_path / "out")
    ran = headwise("prune", folder, "--text", text, *amount, *SMALL, "--held-tokens", 400)
    assert "on your text" in ran.out and "on other text" in ran.out
    quality = PruneRecord.read(tmp_path / "out").quality
    assert quality.other is not None
    for stage in ("uncut", "cut"):
        cells = [score_cell(getattr(text, stage)) for text in (quality.scores, quality.other)]
        row = next(line for line in ran.out.splitlines() if line.strip().startswith(f"{stage} "))
        assert row.split() == [stage, *" ".join(cells).split()] and "±" in cells[0]
    assert "median of 5" in ran.out and "Perplexity by register" in ran.out
    lines = {line.split()[0] for line in ran.out.splitlines() if line.strip()}
    assert {*quality.other_registers} == {*other_texts()} <= lines


def test_builtin_text_is_one_column_and_samples_can_be_left_out(
    headwise: Runner, folder: Path, tmp_path: Path
) -> None:
    registers = [*builtin_sets(is_causal=True).report]
    for options, has_samples in (((), True), (("--no-samples",), False)):
        out = tmp_path / str(has_samples)
        amount = ("--cut", 6, "--out", out, "--refit", "none", *options)
        ran = headwise("prune", folder, *amount, *SMALL)
        assert ran.code == 0, ran.err
        assert ("sampling text from the model" in ran.err) == has_samples
        assert "on other text" not in ran.out and join_words(registers) in ran.out
        text = json.loads((out / "prune.json").read_text("utf-8"))["text"]
        assert ("samples" in text["choose"]["registers"]) == has_samples
        assert text["report"]["registers"] == registers


def test_warnings_are_printed(
    headwise: Runner, folder: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwise.pruning.record.Quality.beats_random", False)
    ran = headwise("prune", folder, "--text", text, "--cut", 6, "--dry-run", *SMALL)
    words = " ".join(ran.out.split())
    assert "not clearly better than the same number of heads cut at random" in words


def test_groups_of_a_model_with_one_kv_head_are_refused(
    headwise: Runner, text: Path, tmp_path: Path
) -> None:
    model = save("gemma3", tmp_path / "gemma3")
    amount = ("--text", text, "--cut", 3, "--dry-run", *SMALL)
    error = headwise.refused("prune", model, "--policy", "groups", *amount)
    assert "--policy is 'groups', but each layer has one KV head" in error
    ran = headwise("prune", model, *amount)
    assert ran.code == 0 and "cutting single query heads instead (policy even)" in ran.err


def test_dry_run_writes_nothing(headwise: Runner, folder: Path, text: Path, tmp_path: Path) -> None:
    ran = headwise("prune", folder, "--text", text, "--keep", 0.5, "--dry-run", *SMALL)
    assert "nothing was written: give --out DIR" in ran.out
    assert ran.code == 0, ran.err
    assert "removed" in ran.out and "# cost" in ran.out
    assert list(tmp_path.iterdir()) == [text]


def test_share_may_be_written_in_percent(headwise: Runner, folder: Path, text: Path) -> None:
    given = ("--text", text, "--dry-run", "--json", "--method", "random", *SMALL)
    shares = [headwise("prune", folder, "--keep", share, *given) for share in ("50%", "0.5")]
    percent, fraction = (json.loads(ran.out)["heads_cut"] for ran in shares)
    assert percent == fraction != ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--cut", 3), "give --out DIR, or --dry-run"),
        ((), "amount to cut is not set"),
        (("--dry-run",), "amount to cut is not set"),
        (
            ("--dry-run", "--cut", 3, "--keep", 0.5),
            "cut and keep are set: give exactly one",
        ),
        (("--dry-run", "--max-loss", "much"), "--max-loss is 'much': give a share such as 1%"),
        (("--dry-run", "--keep", "most"), "--keep is 'most': give a share such as 60% or 0.6"),
        (("--dry-run", "--keep", 70), "keep is 70.0: it is the share of heads to keep, 0 to 1"),
        (("--dry-run", "--cut", 3, "--method", "best"), "method is 'best': choose from rounds"),
        (("--dry-run", "--cut", 3, "--refit", "all"), "refit is 'all': choose from full"),
        (
            ("--dry-run", "--heads", "L0H1", "--plan", "x"),
            "--heads and --plan both name the heads to cut",
        ),
        (("--dry-run", "--plan", "nowhere.json"), "nowhere.json"),
        (("--dry-run", "--heads", "first"), "'first' is not a head"),
        (("--dry-run", "--heads", "L9H0"), "L9H0 is not in"),
        (("--dry-run", "--heads", "L0H0"), "group"),
        (("--dry-run", "--cut", 0), "--cut is 0, which keeps every head"),
        (("--dry-run", "--keep", "100%"), "--keep is 1, which keeps every head"),
        (("--dry-run", "--keep", "99.99%"), "keep is 0.9999, which keeps all 18 heads"),
        (("--dry-run", "--cut", 1000), "cannot cut 1,000 heads: only"),
    ],
)
def test_bad_options_get_one_sentence(
    headwise: Runner, folder: Path, text: Path, arguments: tuple[object, ...], words: str
) -> None:
    error = headwise.refused("prune", folder, "--text", text, *arguments, *SMALL)
    assert words in error
