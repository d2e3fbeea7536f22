"""`headwise trace`: what it prints and writes, and every mistake as one sentence."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from .running import Runner

TIRED = "The animal didn't cross the street because it was too tired."


def test_trace_prints_steps_weights_and_contributions(headwise: Runner) -> None:
    out = headwise("trace", "--text", "The cat sat down", "--layer", 2, "--heads", "0,3").out
    assert out == headwise("trace", "--text", "The cat sat down", "--heads", "L2H0 L2H3").out
    assert "minilm, layer 2" in out
    assert "[batch 1, heads 12, query 6, key 6]" in out
    assert "L2H3" in out and "L2H1 " in out  # weights of two, contributions of all
    assert "The contributions of 12 heads and the bias of Wo add up to the output" in out
    assert "Segregation" in out and "concat 1.00" in out


def test_step_option_prints_only_that_step(headwise: Runner) -> None:
    out = headwise("trace", "--text", "The cat sat", "--step", "scores", "--heads", 5).out
    assert "scores: Q K^T" in out and "L0H5 scores" in out and "cat" in out
    large = headwise("trace", "--text", "The cat sat", "--step", "queries", "--heads", 5).out
    assert "L0H5 queries: 5 x 32, from " in large


def test_cat_sleeps_shows_every_number(headwise: Runner) -> None:
    out = headwise("trace", "--example", "cat-sleeps").out
    for expected in ("Cat sleeps", "5.00", "3.54", "0.97", "0.03", "0.50"):
        assert expected in out
    assert "differ by at most 0.0e+00" in " ".join(out.split())


def test_dimensions_example_prints_shapes(headwise: Runner) -> None:
    out = headwise("trace", "--example", "dimensions").out
    for shape in ("[4, 16, 512]", "[4, 16, 4, 128]", "[4, 4, 16, 128]", "[4, 4, 16, 16]"):
        assert shape in out
    assert "[4, 8, 16, 64]" in out
    made = json.loads(headwise("trace", "--example", "dimensions", "--json").out)
    assert made["4 heads"][4]["shape"] == [4, 4, 16, 16]


def test_compare_single_head_prints_the_heads_and_their_average(headwise: Runner) -> None:
    out = headwise(
        "trace", "--text", TIRED, "--layer", 3, "--compare-single-head", "--query", 9
    ).out
    assert "one row" in out and "one softmax" in out and "Averaged over all queries" in out
    assert "0.3" in out


def test_json_has_the_steps_with_their_values(headwise: Runner) -> None:
    made = json.loads(headwise("trace", "--text", "The cat", "--step", "weights", "--json").out)
    assert made["adds_up"] is True
    assert made["steps"][0]["shape"] == [1, 12, 4, 4]


def test_json_without_large_steps_names_them_on_stderr(headwise: Runner) -> None:
    ran = headwise("trace", "--text", "The cat", "--json")
    without = [step["name"] for step in json.loads(ran.out)["steps"] if step["values"] is None]
    assert without == ["Wo"]  # 384 x 384
    assert "Wo has more than 65,536 values" in ran.err and "--step Wo" in ran.err
    named = headwise("trace", "--text", "The cat", "--json", "--step", "Wo")
    (step,) = json.loads(named.out)["steps"]
    assert named.err == "" and len(step["values"]) == len(step["values"][0]) == 384


def test_json_of_a_step_has_the_chosen_heads(headwise: Runner) -> None:
    text = " ".join(["cat"] * 80)  # 12 heads of 82 x 82 weights are more than 65,536 numbers
    arguments = ("trace", "--text", text, "--json", "--step", "weights")
    (every,) = json.loads(headwise(*arguments).out)["steps"]
    (some,) = json.loads(headwise(*arguments, "--heads", "L0H3 L0H7").out)["steps"]
    assert every["shape"] == [1, 12, 82, 82] and some["shape"] == [1, 2, 82, 82]
    assert some["values"] == [[every["values"][0][3], every["values"][0][7]]]


LONG = "\N{CJK UNIFIED IDEOGRAPH-732B}" * 90
"""A text of fewer characters than a file's name may have bytes, and of more bytes."""


def test_text_may_be_longer_than_any_file_name(headwise: Runner) -> None:
    assert headwise("trace", "--text", LONG).code == 0
    assert "is not a model: use --text to give a text" in headwise.refused(
        "trace", f"{LONG} {LONG}"
    )
    error = headwise.refused("importance", "--text", f"{LONG} {LONG}")
    assert "there is no file" in error


def test_output_files_must_have_the_right_suffix(headwise: Runner, tmp_path: Path) -> None:
    for option, name, ending in (("--svg", "map.png", ".svg"), ("--html", "page.svg", ".html")):
        error = headwise.refused("trace", "--example", "cat-sleeps", option, tmp_path / name)
        assert f"give a name that ends in {ending}" in error
    error = headwise.refused("trace", "--example", "cat-sleeps", "--svg", tmp_path / "no/map.svg")
    assert f"folder {tmp_path / 'no'} does not exist" in error


def test_svg_and_html_files_are_written(headwise: Runner, tmp_path: Path) -> None:
    svg, page = tmp_path / "heads.svg", tmp_path / "trace.html"
    arguments = ("trace", "--text", TIRED, "--heads", "0,1,2,3", "--svg", svg, "--html", page)
    assert f"wrote {svg}" in headwise(*arguments).out.replace("\n", "")
    assert ET.parse(svg).getroot().tag.endswith("svg")
    text = page.read_text("utf-8")
    assert text.startswith("<!doctype html>") and "<script" not in text
    assert "href=" not in text and text.count("src=") == text.count('src="data:image/png;')
    assert "already exists" in headwise.refused(*arguments)
    assert headwise(*arguments, "--force").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heads.svg", "trace.html"]


def test_words_without_special_tokens_or_sink(headwise: Runner) -> None:
    text = "A catamaran sank"
    pieces = headwise("trace", "--text", text, "--step", "weights", "--heads", 0).out
    words = headwise("trace", "--text", text, "--step", "weights", "--heads", 0, "--words").out
    assert "catamaran" in words and "CLS" in pieces and "CLS" not in words
    hidden = headwise("trace", "--text", text, "--step", "weights", "--hide-special").out
    assert "CLS" not in hidden
    assert headwise("trace", "--text", text, "--step", "weights", "--drop-sink").code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--layer", 9], "--layer is 9: the layers with attention are 0..5"),
        (["--heads", "12"], "--heads is 12: this layer has heads 0..11"),
        (["--heads", "a"], "--heads is 'a': give names such as L2H0, or numbers"),
        (["--heads", "L2H0 L3H1"], "in layers L2, L3"),
        (["--heads", "L2H0", "--layer", 1], "L2H0 is not in the layer"),
        (["--heads", "L2H12"], "--heads is 12: this layer has heads 0..11"),
        (["--example", "cat-sleeps", "--layer", 1], "the example has one layer"),
        (
            ["--example", "cat-sleeps", "--text", "Dog barks"],
            "an example has its own model and text",
        ),
        (["--dtype", "float8"], "float8"),
        (["--step", "scoring"], "--step is 'scoring'"),
        (["--stack", "decoder"], "--stack is 'decoder'"),
        (["--text", "  "], "text is empty"),
        (["--compare-single-head", "--query", 99], "--query is 99"),
        (["--svg", "no/such/folder/x.svg"], "folder no/such/folder does not exist"),
        (["./missing"], "there is no directory ./missing"),
        (["The cat sat"], "'The cat sat' is not a model: use --text to give a text"),
        (["--query", 2], "--query needs --compare-single-head"),
        (["--compare-single-head", "--query", -1], "--query is -1"),
        (["--example", "dimensions", "--svg", "x.svg"], "only shows shapes: leave out --svg"),
        (["--example", "dimensions", "--step", "scores"], "only shows shapes: leave out --step"),
        (["--compare-single-head", "--json"], "prints only rows: leave out --json"),
        (["--compare-single-head", "--words"], "compares whole rows: leave out --words"),
        (["--svg", "."], ". is a folder"),
        (["--json", "--words"], "--json prints the weights unchanged: leave out --words"),
        (["--json", "--hide-special"], "the weights unchanged: leave out --hide-special"),
        (
            ["--step", "scores", "--drop-sink"],
            "scores shows no map of the weights: leave out --drop",
        ),
        (
            ["--example", "cat-sleeps", "--words"],
            "an example is always shown in full: leave out --words",
        ),
        (
            ["--example", "cat-sleeps", "--dtype", "float16"],
            "own model and text: leave out --dtype",
        ),
        (["--example", "cat-sleeps", "--device", "meta"], "own model and text: leave out --device"),
        (
            ["--example", "cat-sleeps", "--revision", "x"],
            "own model and text: leave out --revision",
        ),
        (["--example", "cat-sleeps", "--trust-remote-code"], "leave out --trust-remote-code"),
    ],
)
def test_bad_options_get_one_sentence(
    headwise: Runner,
    arguments: list[object],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert words in headwise.refused("trace", *arguments)


def test_map_options_work_with_outputs_that_draw_maps(headwise: Runner, tmp_path: Path) -> None:
    arguments = ("trace", "--text", "A catamaran sank", "--words", "--heads", 0)
    assert headwise(*arguments, "--json", "--svg", tmp_path / "words.svg").code == 0
    assert "catamaran" in (tmp_path / "words.svg").read_text("utf-8")
    assert (
        headwise("trace", "--example", "cat-sleeps", "--step", "weights", "--drop-sink").code == 0
    )


def test_unknown_step_writes_no_file(headwise: Runner, tmp_path: Path) -> None:
    arguments = ("trace", "--example", "cat-sleeps", "--step", "nosuch")
    error = headwise.refused(*arguments, "--svg", tmp_path / "o.svg")
    assert "--step is 'nosuch'" in error
    assert list(tmp_path.iterdir()) == []


def test_text_with_only_special_tokens_is_compared_at_its_last(headwise: Runner) -> None:
    ran = headwise("trace", "--text", "[MASK] [MASK]", "--compare-single-head")
    assert (ran.code, ran.err) == (0, "")
    assert "where each head looks from one token" in ran.out
