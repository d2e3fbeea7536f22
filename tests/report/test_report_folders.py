"""Reading the folders of a report, rejecting wrong ones, and pages without maps."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from torch import nn

from headwise.errors import OptionError
from headwise.head_table import HeadTable
from headwise.models.loaded import LoadedModel
from headwise.patching.result import PatchResult
from headwise.pruning.selection.curve import Curve, as_csv
from headwise.report.data import check_folders, read_folders
from headwise.report.maps import MOST_TOKENS, draw_maps, map_heads
from headwise.report.report import report_page
from headwise.report.roles_section import roles_section

from ..comparing.comparisons import causal
from ..patching.patch_results import ABOUT, estimate, patch_result
from .report_cases import (
    Page,
    curve_of,
    data_of,
    importance_of,
    pairs_of,
    record_of,
    relations_of,
    table_of,
)


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    folder = tmp_path / "scan"
    folder.mkdir()
    table = table_of()
    table.write(folder / "heads.parquet")
    pairs_of().to_parquet(folder / "pairs.parquet")
    relations_of(table).to_parquet(folder / "relations.parquet")
    return folder


@pytest.fixture
def importance(tmp_path: Path) -> Path:
    folder = tmp_path / "importance"
    importance_of(table_of()).write(folder)
    return folder


@pytest.fixture
def smaller(tmp_path: Path) -> Path:
    folder = tmp_path / "smaller"
    folder.mkdir()
    write_record(folder, record_of())
    (folder / "curve.csv").write_text(as_csv(curve_of()), encoding="utf-8")
    return folder


def write_record(folder: Path, record: Any) -> None:
    (folder / "prune.json").write_text(json.dumps(record), encoding="utf-8")


def test_everything_in_the_folders_reaches_the_page(
    scan: Path, importance: Path, smaller: Path
) -> None:
    read = Page(report_page(read_folders(scan, importance, smaller)))
    assert read.faults == []
    assert "cut, refitted 0.94 ± 0.01" in read.text
    assert "Heads cut: L0H3 L2H0" in read.text
    assert "L0H0 L0H1 0.2300 0.3300" in read.text
    assert "L0 5 L0H3 0.25 ± 0.03 0.7500" in read.text  # the last 0 is as it was written
    assert "obj L0H2 75%" in read.text


@pytest.mark.parametrize("scanned", ["small", "smaller", ""])
def test_comparison_may_be_of_either_model(scan: Path, tmp_path: Path, scanned: str) -> None:
    table_of(model=scanned).write(scan / "heads.parquet", force=True)
    folder, comparison = tmp_path / "compared", causal((0.01, 0.002))
    comparison.write(folder)
    assert read_folders(scan, compare=folder).comparison == comparison


def test_comparison_of_other_models_raises(scan: Path, tmp_path: Path) -> None:
    table_of(model="large").write(scan / "heads.parquet", force=True)
    causal().write(tmp_path / "compared")
    with pytest.raises(OptionError, match=r"compared .*small and smaller.* about large"):
        read_folders(scan, compare=tmp_path / "compared")
    with pytest.raises(OptionError, match=r"scan has no compare\.json.*headwise compare"):
        read_folders(scan, compare=scan)
    with pytest.raises(OptionError, match=r"nowhere .*headwise compare"):
        check_folders(scan, compare=tmp_path / "nowhere")


def test_patching_reaches_the_page(scan: Path, tmp_path: Path) -> None:
    heads = table_of().df[["stack", "layer", "head"]]
    shares = estimate("patch_denoise", [0.01 * number for number in range(len(heads))])
    result = PatchResult(HeadTable(heads.assign(**shares), {**ABOUT, "control": {}}))
    result.write(tmp_path / "patched")
    data = read_folders(scan, patch=tmp_path / "patched")
    assert data.patched is not None and data.patched.table == result.table
    read = Page(report_page(data))
    assert read.faults == []
    assert "Heads that carry an answer" in read.text
    assert (
        "small: share of the difference that each head restores" in read.text
        and "L2H4: 0.120" in read.text
    )
    assert "L2H4 12% [2, 22]" in read.text
    assert "There is no control" in read.text and "not a head that is understood" in read.text
    assert "metric logit-difference pairs 7" in read.text


def test_patching_of_another_model_raises(scan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "patched"
    patch_result(model="large").write(folder)
    with pytest.raises(OptionError, match=r"patched is about large, but the scan is about small"):
        read_folders(scan, patch=folder)
    table = patch_result().table
    moved = HeadTable(table.df.assign(layer=table.df["layer"] + 9), table.about)
    PatchResult(moved).write(folder, force=True)
    with pytest.raises(OptionError, match=r"patched has L9H0, which the scan does not have"):
        read_folders(scan, patch=folder)
    (folder / "patch.json").write_text("{", encoding="utf-8")
    with pytest.raises(OptionError, match=r"patch\.json is not a result of headwise patch"):
        read_folders(scan, patch=folder)
    with pytest.raises(OptionError, match=r"nowhere .*headwise patch"):
        check_folders(scan, patch=tmp_path / "nowhere")


def test_curve_survives_a_round_trip_through_its_file(tmp_path: Path) -> None:
    file = tmp_path / "curve.csv"
    file.write_text(as_csv(curve_of()), encoding="utf-8")
    curve = Curve.read(file, "rounds", "cosine", 13)
    assert curve.svg("title") == curve_of().svg("title")
    assert curve.elbow == curve_of().elbow == 5


def test_report_needs_only_a_scan(scan: Path) -> None:
    (scan / "pairs.parquet").unlink()
    (scan / "relations.parquet").unlink()
    data = read_folders(scan)
    assert data.scan.pairs.empty and data.scan.relations.empty
    assert (data.importance, data.cut, data.curve) == (None, None, None)
    assert data.table == table_of()


def test_scan_table_may_be_csv(scan: Path) -> None:
    (scan / "heads.parquet").unlink()
    table_of().write(scan / "heads.csv")
    assert read_folders(scan).table == table_of()


def test_missing_folder_or_file_raises(scan: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"nowhere .*headwise scan"):
        check_folders(tmp_path / "nowhere", None, None)
    with pytest.raises(OptionError, match=r"pairs\.parquet is a file.*headwise prune"):
        check_folders(scan, None, scan / "pairs.parquet")


def test_folder_without_a_finished_scan_raises(scan: Path) -> None:
    (scan / "heads.parquet").unlink()
    with pytest.raises(OptionError, match=r"scan .*heads\.parquet"):
        read_folders(scan)
    (scan / "settings.json").write_text("{}", encoding="utf-8")
    with pytest.raises(OptionError, match=r"scan .*finished"):
        read_folders(scan)


@pytest.mark.parametrize("name", ["heads.parquet", "pairs.parquet", "relations.parquet"])
def test_broken_table_raises_one_sentence(scan: Path, name: str) -> None:
    (scan / name).write_bytes(b"nothing of the kind")
    with pytest.raises(OptionError, match=name) as caught:
        read_folders(scan)
    assert "\n" not in str(caught.value)


def test_table_without_a_required_column_raises(scan: Path) -> None:
    pairs_of().drop(columns="cka").to_parquet(scan / "pairs.parquet")
    with pytest.raises(OptionError, match=r"pairs\.parquet.*cka"):
        read_folders(scan)


def test_importance_of_another_model_raises(scan: Path, importance: Path, smaller: Path) -> None:
    with pytest.raises(OptionError, match=r"smaller .*importance\.parquet"):
        read_folders(scan, smaller)
    table = HeadTable.read(importance / "importance.parquet")
    other = HeadTable(table.df, {**table.about, "model": "other"})
    other.write(importance / "importance.parquet", force=True)
    with pytest.raises(OptionError, match=r"importance .*other.*small"):
        read_folders(scan, importance)
    moved = HeadTable(table.df.assign(layer=table.df["layer"] + 9), table.about)
    moved.write(importance / "importance.parquet", force=True)
    names, file = list(map(str, moved.heads)), importance / "interaction.csv"
    interaction = pd.read_csv(file, index_col=0).set_axis(names).set_axis(names, axis=1)
    interaction.to_csv(file)
    with pytest.raises(OptionError, match=r"importance has L9H0, which the scan does not have"):
        read_folders(scan, importance)
    HeadTable(table.df.drop(columns="zero"), {}).write(
        importance / "importance.parquet", force=True
    )
    with pytest.raises(OptionError, match=r"importance\.parquet.*zero"):
        read_folders(scan, importance)


def test_interaction_of_other_heads_raises(scan: Path, importance: Path) -> None:
    (importance / "interaction.csv").write_text(",L9H9\nL9H9,1.0\n", encoding="utf-8")
    with pytest.raises(OptionError, match=r"interaction\.csv.* heads"):
        read_folders(scan, importance)


@pytest.mark.parametrize("record", ["a text", [], {}, {**record_of(), "quality": {"unit": "x"}}])
def test_read_folders_rejects_a_malformed_record(scan: Path, smaller: Path, record: Any) -> None:
    write_record(smaller, record)
    with pytest.raises(OptionError, match=r"prune\.json"):
        read_folders(scan, None, smaller)


def test_cut_of_another_model_raises(scan: Path, importance: Path, smaller: Path) -> None:
    with pytest.raises(OptionError, match=r"importance .*prune\.json"):
        read_folders(scan, None, importance)
    write_record(smaller, record_of("other"))
    with pytest.raises(OptionError, match=r"smaller .*other.*small"):
        read_folders(scan, None, smaller)
    write_record(smaller, {**record_of(), "heads_cut": "L1H4"})
    with pytest.raises(OptionError, match=r"smaller .*L1H4"):
        read_folders(scan, None, smaller)


def test_a_directory_may_be_spelled_in_two_ways(
    scan: Path, importance: Path, smaller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    table_of(model="./model").write(scan / "heads.parquet", force=True)
    write_record(smaller, record_of(str(tmp_path / "model")))
    worth = importance_of(table_of()).table
    HeadTable(worth.df, {**worth.about, "model": "scan/../model"}).write(
        importance / "importance.parquet", force=True
    )
    page = report_page(read_folders(scan, importance, smaller))
    assert "of them had no role in this scan" in page
    write_record(smaller, record_of(str(scan)))
    with pytest.raises(OptionError, match=r"smaller .*scan.*\./model"):
        read_folders(scan, importance, smaller)


def test_scan_may_be_of_the_cut_model_itself(scan: Path, smaller: Path) -> None:
    table = HeadTable(table_of().df, {"model": str(smaller)})
    table.write(scan / "heads.parquet", force=True)
    data = read_folders(scan, None, smaller)
    assert data.cut is not None and data.cut.model.name == "small"
    assert "had no role in this scan" not in report_page(data)


def test_read_folders_rejects_a_broken_curve_and_allows_none(scan: Path, smaller: Path) -> None:
    (smaller / "curve.csv").write_text("method,cut\nrounds,0\n", encoding="utf-8")
    with pytest.raises(OptionError, match=r"curve\.csv.*share"):
        read_folders(scan, None, smaller)
    rows = as_csv(curve_of()).splitlines()
    kept = [row for row in rows if not row.startswith("floor")]
    (smaller / "curve.csv").write_text("\n".join(kept), encoding="utf-8")
    with pytest.raises(OptionError, match=r"curve\.csv.*floor"):
        read_folders(scan, None, smaller)
    (smaller / "curve.csv").unlink()
    assert "No curve was measured" in report_page(read_folders(scan, None, smaller))


# Maps.


def test_the_strongest_two_of_each_role_are_drawn() -> None:
    roles = {(0, 0): ["sink"], (0, 1): ["sink"], (2, 3): ["sink"], (2, 4): ["broad"]}
    names = [str(head) for head in map_heads(table_of(roles))]
    assert names == ["L0H1", "L2H3", "L2H4"]


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"model": ""}, "the scan does not name its model"),
        ({"model": "./gone"}, "there is no directory ./gone"),
        ({"model": "minilm", "loaded": {"dtype": "float7"}}, "dtype is 'float7'"),
        (
            {"model": "minilm", "loaded": {"sha256": "abc"}},
            "minilm has changed since the scan: its",
        ),
        ({"model": "minilm"}, "heads is 12"),
    ],
)
def test_maps_give_the_reason_why_a_model_cannot_run(about: dict[str, Any], words: str) -> None:
    table = table_of({(0, 0): ["sink"]}, **about)
    df = table.df.assign(head=table.df["head"] + 12)  # minilm has heads 0..11
    maps = draw_maps(HeadTable(df, table.about))
    assert words in maps.reason
    assert not maps.by_head


def test_without_roles_and_entropy_no_model_is_loaded() -> None:
    table = table_of({})
    bare = HeadTable(table.df.drop(columns="normalised_entropy"), table.about)
    assert draw_maps(bare).reason == "no head has a role, and entropy was not measured"


def test_without_roles_the_sharpest_heads_are_drawn() -> None:
    table = table_of({})
    df = table.df.assign(normalised_entropy=[0.9, 0.2, math.nan, 0.7, *[0.8] * 4, 0.1, *[0.3] * 4])
    ranked = HeadTable(df, {"model": "minilm"})
    maps = draw_maps(ranked)
    assert set(maps.by_head) == {"L0H1", "L2H0", "L2H1", "L2H2"}
    page = roles_section(data_of(ranked, maps=maps))
    assert "No head has a role. These heads spread their attention least." in page
    assert page.count("<figure") == 4 and "L2H0, normalised entropy 0.10. The largest" in page


def test_empty_or_long_text_raises_and_missing_tokenizer_is_a_reason() -> None:
    with pytest.raises(OptionError, match=r"text.*empty"):
        draw_maps(table_of(), " \n")

    def tokenizer(text: str) -> dict[str, list[str]]:
        return {"input_ids": text.split()}

    loaded = LoadedModel("small", nn.Identity(), tokenizer)
    with pytest.raises(OptionError, match=f"41 tokens.*{MOST_TOKENS}"):
        draw_maps(table_of(), "x " * 41, loaded)
    letters = replace(loaded, tokenizer=lambda text: {"input_ids": list(text)})
    assert draw_maps(table_of(), None, letters).text == "The teacher lost her red pen, so the"
    speechless = replace(loaded, tokenizer=None)
    assert draw_maps(table_of(), "x", speechless).reason == "small has no tokenizer"
