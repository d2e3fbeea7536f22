"""`headwise patch`: its output, its files and its errors."""

import json
import re
from pathlib import Path

import pytest

from headwise.patching.metrics import METRICS
from headwise.patching.prompts import PromptPair
from headwise.patching.result import PatchResult
from headwise.patching.tasks import TASKS, PromptTask

from ..models.test_loading import save
from ..report.report_cases import Page
from ..watching.tiny import tiny
from .running import Runner

WORDS = (
    *("--clean", "w5 w6 w7 w8", "--corrupted", "w5 w9 w7 w8"),
    *("--answer", "w10", "--instead", "w11"),
)
PAIRS = """clean,corrupted,answer,instead
w5 w6 w7 w8,w5 w9 w7 w8,w10,w11
w8 w6 w5 w9,w8 w7 w5 w9,w12,w10
w9 w7 w5,w9 w8 w5,w11,w12
"""


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    file = tmp_path / "pairs.csv"
    file.write_text(PAIRS, encoding="utf-8")
    return file


def test_patch_prints_the_prompts_a_grid_the_heads_and_remarks(
    headwise: Runner, llama: Path, pairs: Path
) -> None:
    ran = headwise("patch", llama, "--pairs", pairs, "--control", 3, "--paths-to", "L1H2")
    assert ran.code == 0, ran.err
    assert ran.err.splitlines() == [
        f"headwise: {stage}"
        for stage in (
            *("attribution", "denoising", "noising", "control, denoising", "paths to L1H2"),
        )
    ]
    lines = [line.strip() for line in ran.out.splitlines()]
    assert lines[0] == f"{llama}, 3 pairs of prompts, such as"
    assert lines[1:3] == [
        "clean:     'w5 w6 w7 w8' -> 'w10'",
        "corrupted: 'w5 w9 w7 w8' -> 'w11'",
    ]
    assert lines[3].startswith("Logit difference: ")
    for start in ("Effect of each head (denoising)", "L2 ", "1 to 9: tenths", "Largest effects"):
        assert any(line.startswith(start) for line in lines), start
    assert "head denoising noising estimate control direct" in " ".join(ran.out.split())
    assert "The estimate has " in ran.out and "of these 3 heads is " in ran.out
    assert "Direct paths to L1H2" in lines


def test_patch_reads_a_built_in_task(
    headwise: Runner, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [PromptPair(f"w5 w{n} w7", f"w5 w{n + 1} w7", " w8", " w9") for n in range(10, 20)]
    task = PromptTask("capitals", "numbers", tuple(rows))
    monkeypatch.setattr("headwise.patching.tasks.TASKS", {"capitals": task})
    options = ("--task", "capitals", "--no-exact", "--json")
    ran = headwise("patch", llama, *options, "--count", 9)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["about"]["pairs"] == 9


def test_help_names_every_task_and_metric(headwise: Runner) -> None:
    words = set(re.findall(r"[\w-]+", headwise("patch", "--help").out))
    assert {*TASKS, *METRICS} <= words


def test_patch_as_json_is_the_file_it_writes(
    headwise: Runner, llama: Path, pairs: Path, tmp_path: Path
) -> None:
    out, svg = tmp_path / "out", tmp_path / "grid.svg"
    options = (
        *("--pairs", pairs, "--count", 2, "--positions", "1 -1", "--direction", "noise"),
        *("--part", "value", "--steps", 2, "--grad-drop", "--seed", 3, "--out", out),
    )
    ran = headwise("patch", llama, *options, "--json", "--svg", svg)
    assert ran.code == 0, ran.err
    printed = json.loads(ran.out)
    assert printed == json.loads((out / "patch.json").read_text("utf-8"))
    assert printed.keys() == {"about", "heads", "paths"} and printed["paths"] is None
    about = printed["about"]
    assert (about["pairs"], about["part"], about["positions"]) == (2, "value", [1, -1])
    assert about["agreement"].keys() == {"attribution", "attribution_steps", "attribution_drops"}
    assert {"patch_noise", "patch_noise_low", "direct_logit", "control"} <= printed["heads"][
        0
    ].keys()
    assert "patch_denoise" not in printed["heads"][0]
    assert svg.read_text("utf-8") == (out / "heads.svg").read_text("utf-8")
    assert PatchResult.read(out).table.about == about
    assert "grid.svg already exists" in headwise.refused("patch", llama, *options, "--svg", svg)


def test_patch_resumes_in_its_folder_and_replaces_another_only_with_force(
    headwise: Runner, llama: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = headwise("patch", llama, *WORDS, "--out", out)
    assert first.code == 0, first.err
    assert f"wrote patch.json, heads.parquet, heads.csv, heads.about.json, heads.svg in {out}" in (
        first.out.splitlines()
    )
    progress = json.loads((out / "progress.json").read_text("utf-8"))
    kept = {name: rows for name, rows in progress.items() if name.endswith("L0")}
    (out / "progress.json").write_text(json.dumps(kept), encoding="utf-8")
    assert headwise("patch", llama, *WORDS, "--out", out).out == first.out
    other = ("patch", llama, *WORDS, "--part", "pattern", "--out", out)
    error = headwise.refused(*other)
    assert "part was output, now pattern" in error and "--force" in error
    assert headwise(*other, "--force").code == 0


def test_embedding_models_are_patched_by_the_cosine(headwise: Runner, tmp_path: Path) -> None:
    model = save("bert", tmp_path / "bert")
    tiny("bert")[0].base_model.save_pretrained(model)  # without its prediction head
    prompts = ("--clean", "w5 w6 w7", "--corrupted", "w5 w9 w7")
    ran = headwise("patch", model, *prompts)
    assert ran.code == 0, ran.err
    assert "Cosine: 1.000 in the clean run" in ran.out
    assert "There is no control" in ran.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--task with one of indirect-object, greater-than"),
        (("--task", "capital"), "did you mean capitals? choose from indirect-object, greater-than"),
        (("--task", "capitals", "--clean", "w5"), "prompts of its own: leave out --clean"),
        (("--task", "capitals"), "--task is 'capitals', of which 0 of 80 pairs"),
        (("--clean", "w5"), "--corrupted is missing"),
        (("--answer", "w5"), "leave out --answer"),
        (("--pairs", "nowhere.csv"), "nowhere.csv cannot be read"),
        (("--pairs", "pairs.txt"), "ends in '.txt'"),
        ((*WORDS, "--count", 2), "one pair: leave out --count"),
        (("--task", "capitals", "--count", 0), "--count is 0"),
        ((*WORDS, "--positions", "1 x"), "--positions is 'x'"),
        ((*WORDS, "--positions", "7"), "position 7 is not in a prompt of 4 tokens"),
        ((*WORDS, "--positions", ""), "positions is empty"),
        ((*WORDS, "--metric", "loss"), "--metric is 'loss'"),
        ((*WORDS[:4], "--metric", "probability"), "--metric is 'probability', but the pairs have"),
        ((*WORDS, "--part", "query"), "--part is 'query'"),
        ((*WORDS, "--direction", "both"), "both"),
        ((*WORDS, "--steps", -1), "--steps is -1"),
        ((*WORDS, "--paths-to", "L3"), "'L3' is not a head"),
        ((*WORDS, "--paths-to", "L0H0"), "L0H0 is in the first layer"),
        ((*WORDS[:2], "--corrupted", "w5 w6"), "pair 1 cannot be aligned"),
        ((*WORDS[:6], "--instead", "w5 w6"), "pair 1 has instead 'w5 w6'"),
        ((*WORDS[:6],), "instead is '', but answer is 'w10'"),
        (("--clean", "", *WORDS[2:]), "clean is ''"),
    ],
    ids=lambda one: " ".join(map(str, one))[-24:] if isinstance(one, tuple) else "",
)
def test_mistakes_get_one_sentence_and_leave_no_folder(
    headwise: Runner, llama: Path, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    out = tmp_path / "out"
    assert words in headwise.refused("patch", llama, *arguments, "--out", out)
    assert not out.exists()


def test_the_report_has_a_section_on_patching(
    headwise: Runner, llama: Path, text: Path, tmp_path: Path
) -> None:
    scan, out, page = tmp_path / "scan", tmp_path / "patched", tmp_path / "page.html"
    assert headwise("scan", llama, "--text", text, "--max-tokens", 60, "--out", scan).code == 0
    assert headwise("patch", llama, *WORDS, "--no-exact", "--out", out).code == 0
    ran = headwise("report", scan, "--patch", out, "--out", page)
    assert ran.code == 0, ran.err
    assert "Heads that carry an answer" in Page(page.read_text("utf-8")).text
    assert "nowhere does not exist" in headwise.refused("report", scan, "--patch", "nowhere")
    assert "has no patch.json" in headwise.refused("report", scan, "--patch", scan, "--force")
