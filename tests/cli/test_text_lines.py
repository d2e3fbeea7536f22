"""`--lines` and `--field`: each line of a text file is an example of its own; `--pooling`."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ..models.test_loading import save
from .hostile import SMALL
from .running import Runner

LINES = [
    "The cat sat on the mat.",
    "Dogs bark at night.",
    "Rain fell on the old town for three days.",
]
QUICK = ("scan", "--measures", "entropy", "--no-probe")


def counts(out: str) -> dict[str, Any]:
    return dict(json.loads(out)["about"]["counts"])


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_text("\n".join([LINES[0], "", *LINES[1:], " ", ""]), encoding="utf-8")
    return file


@pytest.fixture
def json_lines(tmp_path: Path) -> Path:
    file = tmp_path / "lines.jsonl"
    rows = [json.dumps({"id": number, "body": line}) for number, line in enumerate(LINES)]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def test_each_line_is_a_window_of_its_own(headwise: Runner, lines: Path) -> None:
    ran = headwise(*QUICK, "--text", lines, "--lines", "--json")
    assert (ran.code, ran.err) == (0, f"headwise: {lines}: 3 examples, one per line\n")
    apart = counts(ran.out)
    whole = headwise(*QUICK, "--text", lines, "--json")
    assert (whole.code, whole.err) == (0, "")
    together = counts(whole.out)
    assert (apart["windows"], together["windows"]) == (3, 1)
    assert apart["tokens"] == together["tokens"] + 2 * 2, "[CLS] and [SEP] around each window"


def test_a_field_of_json_lines_is_read_like_lines(
    headwise: Runner, lines: Path, json_lines: Path
) -> None:
    by_line = headwise(*QUICK, "--text", lines, "--lines", "--json")
    by_field = headwise(*QUICK, "--text", json_lines, "--field", "body", "--json")
    assert by_field.err == f"headwise: {json_lines}: 3 examples in JSON lines\n"
    assert counts(by_field.out) == counts(by_line.out)
    assert json.loads(by_field.out) == json.loads(by_line.out)


def test_every_file_and_standard_input_are_split_into_lines(
    headwise: Runner, lines: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Snow fell.\nIt was cold.\n"))
    ran = headwise(*QUICK, "--text", lines, "--text", "-", "--lines", "--json")
    assert counts(ran.out)["windows"] == 5
    assert ran.err.splitlines() == [
        f"headwise: {lines}: 3 examples, one per line",
        "headwise: -: 2 examples, one per line",
    ]


def test_a_file_that_looks_like_json_lines_is_pointed_out(
    headwise: Runner, json_lines: Path
) -> None:
    ran = headwise(*QUICK, "--text", json_lines, "--json")
    assert (ran.code, counts(ran.out)["windows"]) == (0, 1)
    assert ran.err.count("\n") == 1
    assert f"{json_lines}: 3 lines" in ran.err and "--field" in ran.err


def test_a_list_of_sentences_is_pointed_out(headwise: Runner, tmp_path: Path) -> None:
    file = tmp_path / "list.txt"
    file.write_text("".join(f"Sentence {number} ends here.\n" for number in range(23)), "utf-8")
    ran = headwise(*QUICK, "--text", file, "--json")
    assert (ran.code, counts(ran.out)["windows"]) == (0, 1)
    assert f"{file}: 23 lines" in ran.err and "--lines" in ran.err
    split = headwise(*QUICK, "--text", file, "--lines", "--json")
    assert counts(split.out)["windows"] == 23


def test_a_missing_field_is_named_with_its_line_and_the_fields_there(
    headwise: Runner, json_lines: Path
) -> None:
    sentence = headwise.refused(*QUICK, "--text", json_lines, "--field", "text")
    for fact in (f"{json_lines}, line 1", "'text'", "id, body"):
        assert fact in sentence


def test_a_field_that_contains_a_number_is_refused(headwise: Runner, json_lines: Path) -> None:
    sentence = headwise.refused(*QUICK, "--text", json_lines, "--field", "id")
    assert f"{json_lines}, line 1" in sentence and "'id'" in sentence


def test_plain_lines_read_as_json_are_refused(headwise: Runner, lines: Path) -> None:
    sentence = headwise.refused(*QUICK, "--text", lines, "--field", "body")
    assert f"{lines}, line 1" in sentence and "--lines" in sentence


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--lines"], "--lines"),
        (["--field", "body"], "--field"),
        (["--lines", "--field", "body"], "--lines and --field"),
    ],
    ids=["lines", "field", "both"],
)
def test_options_for_text_files_need_a_text_file(
    headwise: Runner, options: list[str], named: str
) -> None:
    sentence = headwise.refused(*QUICK, *options)
    assert "--text" in sentence
    assert sentence.endswith(f"leave out {named}\n")


def test_blank_lines_count_in_the_number_of_a_bad_line(headwise: Runner, tmp_path: Path) -> None:
    file = tmp_path / "gaps.jsonl"
    file.write_text('{"body": "Fine."}\n\n\n{"text": "Not here."}\n', encoding="utf-8")
    assert f"{file}, line 4 " in headwise.refused(*QUICK, "--text", file, "--field", "body")


def test_a_line_separator_inside_a_string_does_not_end_a_json_line(
    headwise: Runner, tmp_path: Path
) -> None:
    file = tmp_path / "separator.jsonl"
    row = json.dumps({"body": "Rain fell.\u2028It was cold."}, ensure_ascii=False)
    file.write_text(f"{row}\n", encoding="utf-8")
    ran = headwise(*QUICK, "--text", file, "--field", "body", "--json")
    assert (ran.code, counts(ran.out)["windows"]) == (0, 1)


def test_an_empty_file_read_by_line_gets_one_sentence(headwise: Runner, tmp_path: Path) -> None:
    file = tmp_path / "empty.txt"
    file.write_text("\n \n", encoding="utf-8")
    assert f"{file} contains no text" in headwise.refused(*QUICK, "--text", file, "--lines")


# `importance` and `prune`.


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny embedding model."""
    folder = save("bert", tmp_path_factory.mktemp("embedder"))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text('{"pooling_mode": "mean"}', encoding="utf-8")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["architectures"] = ["BertModel"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Ten lines: some of two sentences, some too short for a sentence of running text."""
    file = tmp_path / "examples.txt"
    rows = [f"w{n} w{n + 1} w9. W10 w11 w12 w13 w{n + 2}" for n in range(20, 25)]
    rows += [f"w{n} w{n + 1}" for n in range(40, 45)]
    file.write_text("\n".join(rows), encoding="utf-8")
    return file


def test_importance_reads_each_line_as_an_example(
    headwise: Runner, embedder: Path, examples: Path
) -> None:
    ran = headwise("importance", embedder, "--text", examples, "--lines", "--json")
    assert ran.err.startswith(f"headwise: {examples}: 10 examples, one per line\n")
    about = json.loads(ran.out)["about"]
    assert about["examples"] == 10 and about["objective"].endswith("mean pooling")
    glued = headwise("importance", embedder, "--text", examples, "--json")
    assert json.loads(glued.out)["about"]["examples"] < 10


def test_importance_reads_a_field_of_json_lines_as_lines(
    headwise: Runner, llama: Path, examples: Path
) -> None:
    rows = [json.dumps({"body": line}) for line in examples.read_text("utf-8").split("\n")]
    fields = examples.with_suffix(".jsonl")
    fields.write_text("\n".join(rows), encoding="utf-8")
    by_line = headwise("importance", llama, "--text", examples, "--lines", "--json")
    by_field = headwise("importance", llama, "--text", fields, "--field", "body", "--json")
    assert json.loads(by_line.out) == json.loads(by_field.out)
    assert json.loads(by_line.out)["about"]["examples"] == 10
    assert f"{fields}: 10 examples in JSON lines" in by_field.err


def test_prune_reads_each_line_as_an_example(
    headwise: Runner, llama: Path, examples: Path, tmp_path: Path
) -> None:
    out = tmp_path / "smaller"
    amount = ("--cut", 6, "--no-curve", "--refit", "none", "--method", "michel", *SMALL)
    ran = headwise("prune", llama, "--text", examples, "--lines", "--out", out, *amount)
    assert ran.code == 0 and f"{examples}: 10 examples, one per line" in ran.err
    record = json.loads((out / "prune.json").read_text("utf-8"))
    assert record["settings"]["keeps_texts_whole"] is True
    parts = [record["text"][name] for name in ("fit", "shrink", "decide", "report")]
    assert sum(part["examples"] for part in parts) == 10
    assert f"{parts[-1]['examples']} examples of your text" in ran.out


def test_prune_of_three_lines_is_refused(headwise: Runner, llama: Path, tmp_path: Path) -> None:
    file = tmp_path / "three.txt"
    file.write_text("w9 w10 w11\nw12 w13 w14\nw15 w16\n", encoding="utf-8")
    options = ("--lines", "--cut", 6, "--dry-run", *SMALL)
    error = headwise.refused("prune", llama, "--text", file, *options)
    assert "3 examples cannot be divided into 4 parts" in error


# --pooling


def test_pooling_replaces_that_of_the_model_files(
    headwise: Runner, embedder: Path, examples: Path
) -> None:
    def measure(*options: object) -> dict[str, Any]:
        ran = headwise("importance", embedder, "--text", examples, "--lines", "--json", *options)
        return dict(json.loads(ran.out))

    default, mean, first = measure(), measure("--pooling", "mean"), measure("--pooling", "cls")
    assert default == mean
    assert first["about"]["objective"].endswith("cls pooling")
    assert [row["zero"] for row in first["heads"]] != [row["zero"] for row in mean["heads"]]


def test_prune_records_the_pooling(headwise: Runner, embedder: Path, examples: Path) -> None:
    options = ("--lines", "--pooling", "cls", "--cut", 2, "--method", "michel", "--dry-run")
    ran = headwise("prune", embedder, "--text", examples, *options, "--json", *SMALL)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["quality"]["objective"].endswith("cls pooling")


@pytest.mark.parametrize("command", [("importance",), ("prune", "--cut", 6, "--dry-run", *SMALL)])
def test_pooling_of_a_model_without_embeddings_is_refused(
    headwise: Runner, llama: Path, examples: Path, command: tuple[object, ...]
) -> None:
    name, *options = command
    options += ["--lines", "--pooling", "cls"]
    sentence = headwise.refused(name, llama, "--text", examples, *options)
    assert "LlamaForCausalLM is not an embedding model" in sentence and "pooling" in sentence


@pytest.mark.parametrize("command", [("importance",), ("prune", "--cut", 6, "--dry-run")])
def test_unknown_pooling_is_refused_before_the_model_loads(
    headwise: Runner, command: tuple[object, ...]
) -> None:
    name, *options = command
    sentence = headwise.refused(name, "no/model", "--pooling", "max", *options)
    assert sentence == "headwise: --pooling is 'max': choose from mean, cls\n"
