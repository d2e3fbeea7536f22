"""`headwise report`: what it writes, what it keeps, and every mistake as one sentence."""

import json
import shutil
from pathlib import Path

import pytest

from headwise.head_table import HeadTable
from headwise.probes.builtin import builtin_sentences
from headwise.probes.natural import natural_sentences
from headwise.roles import ROLES

from ..models.test_loading import save
from ..report.report_cases import Page, importance_of, record_of, table_of
from .hostile import SMALL
from .running import Runner


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    folder = tmp_path / "scan"
    folder.mkdir()
    table_of(model="./gone").write(folder / "heads.parquet")
    return folder


def give_role(file: Path, head: str, role: str) -> None:
    table = HeadTable.read(file)
    roles = [[role] if str(name) == head else [] for name in table.heads]
    HeadTable(table.df.assign(roles=roles), table.about).write(file, force=True)


def test_without_a_folder_minilm_is_scanned_first(
    headwise: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few, some = builtin_sentences(4, 0), natural_sentences()[::9]
    monkeypatch.setattr("headwise.scans.scan.REPEATED_WINDOWS", 4)
    monkeypatch.setattr("headwise.scans.scan.builtin_sentences", lambda *_: few)
    monkeypatch.setattr("headwise.scans.scan.natural_sentences", lambda: some)
    ran = headwise("report")
    assert (ran.code, ran.err) == (0, "")
    assert "72 heads in 6 layers" in ran.out and "wrote report.html" in ran.out
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    page = Path("report.html").read_text("utf-8")
    assert len(page.encode()) < 1 << 20
    read = Page(page)
    assert read.faults == []
    cells = {cell.get("title", "").partition(":")[0] for cell in read.all("td")}
    assert {f"L{layer}H{head}" for layer in range(6) for head in range(12)} <= cells
    assert "Attention map of L0H2 over 17 tokens" in page
    assert "The largest weight between two tokens is 1.00" in page  # the token before
    assert all(role in read.text for role in ROLES)
    assert "Councillors in Ebdonshire voted" in read.text
    assert "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db" in read.text


def test_three_folders_make_one_page(headwise: Runner, text: Path, tmp_path: Path) -> None:
    model = save("llama", tmp_path / "llama")
    found, worth, smaller = tmp_path / "found", tmp_path / "worth", tmp_path / "smaller"
    assert headwise("scan", model, "--text", text, "--out", found).code == 0
    assert headwise(
        "importance", model, "--text", text, "--max-tokens", 60, "--out", worth
    ).code == 0  # fmt: skip
    prune = ("prune", model, "--text", text, "--cut", 6, *SMALL, "--curve", "--out", smaller)
    assert headwise(*prune).code == 0
    give_role(found / "heads.parquet", "L1H2", "sink")  # random weights have hardly any
    out = tmp_path / "page.html"
    options = ("--importance", worth, "--prune", smaller, "--out", out, "--text", "w9 w8 w9 w8")
    ran = headwise("report", found, *options)
    assert (ran.code, ran.err) == (0, "")
    read = Page(out.read_text("utf-8"))
    assert read.faults == []
    for words in ("Importance of each head", "6 heads were cut", "perplexity", "floor"):
        assert words in read.text
    labels = [image["aria-label"] for image in read.all("svg")]
    assert "Curves of perplexity against the share of heads cut" in labels
    assert "Attention map of L1H2 over 4 tokens" in labels
    shutil.rmtree(model)
    ran = headwise("report", found, *options, "--force")
    assert f"the page has no attention maps: there is no directory {model}" in ran.out
    assert "This report has no attention maps" in out.read_text("utf-8")


def test_report_rejects_bad_options_before_the_scan(
    headwise: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scan(*_: object, **__: object) -> None:
        pytest.fail("nothing is to be scanned")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headwise.scans.scan.run_scan", scan)
    importance_of(table_of()).write(Path("worth"))
    Path("smaller").mkdir()
    Path("smaller/prune.json").write_text(json.dumps(record_of("other")), encoding="utf-8")
    Path("lost").mkdir()
    record = {**record_of("minilm"), "heads_cut": "L0H12"}
    Path("lost/prune.json").write_text(json.dumps(record), encoding="utf-8")
    for arguments, words in (
        (("--importance", "worth"), "worth is about small, but the scan is about minilm"),
        (("--prune", "smaller"), "smaller is about other, but the scan is about minilm"),
        (
            ("--prune", "lost"),
            "the cut in lost removed L0H12, which the scanned model does not have",
        ),
        (("--text", "cat " * 39), "text has 41 tokens, too many for a map: give at most 40"),
    ):
        assert words in headwise.refused("report", *arguments)


def test_existing_page_is_only_replaced_with_force(
    headwise: Runner, scan: Path, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    out.write_text("mine", encoding="utf-8")
    assert "page.html already exists" in headwise.refused("report", scan, "--out", out)
    assert out.read_text("utf-8") == "mine"
    assert headwise("report", scan, "--out", out, "--force").code == 0
    assert Page(out.read_text("utf-8")).faults == []


@pytest.mark.parametrize(
    "arguments", [["nowhere"], ["scan", "--importance", "nowhere"], ["--prune", "nowhere"]]
)
def test_missing_folder_is_reported_before_an_existing_page(
    headwise: Runner, scan: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scan.parent)
    Path("report.html").write_text("mine", encoding="utf-8")
    assert "nowhere does not exist" in headwise.refused("report", *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "nowhere does not exist: give a folder that headwise scan --out wrote"),
        (["empty"], "empty has no heads.parquet"),
        (["--importance", "nowhere"], "nowhere does not exist"),
        (["--prune", "empty"], "empty has no prune.json"),
        (["scan", "--importance", "scan"], "scan has no importance.parquet"),
        (["scan", "--out", "empty"], "empty is a folder"),
        (["scan", "--out", "nowhere/page.html"], "folder nowhere does not exist"),
        (["scan", "--text", " "], "text is empty"),
    ],
)
def test_bad_options_get_one_sentence(
    headwise: Runner,
    scan: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(scan.parent)
    Path("empty").mkdir()
    assert words in headwise.refused("report", *arguments)
    assert sorted(file.name for file in scan.parent.iterdir()) == ["empty", "scan"]
