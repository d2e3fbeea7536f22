"""`headwise plan`: what it prints, and every mistake as one sentence."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig

from .running import Runner


def test_a_known_model(headwise: Runner) -> None:
    out = headwise("plan", "gpt2").out
    assert "gpt2: d_model 768, 12 heads of 64, 12 layers" in out
    assert "2,362,368" in out and "28,348,416" in out and "124,439,808" in out
    assert "36 MiB" in out  # 2 x 12 layers x 768 x 1,024 positions x 2 bytes


def test_json_and_csv_hold_the_same(headwise: Runner) -> None:
    made = json.loads(headwise("plan", "llama3-8b", "--json").out)
    assert made["cache_bytes_by_length"]["8192"] == 2**30
    assert made["parameters_Wk"] == 4096 * 8 * 128
    (row,) = csv.DictReader(io.StringIO(headwise("plan", "llama3-8b", "--csv").out))
    assert {
        name: str(value) for name, value in made.items() if name in row and value is not None
    } == {name: value for name, value in row.items() if value != ""} | {
        name: "" for name, value in made.items() if name in row and value == ""
    }


def test_sizes_by_flags(headwise: Runner) -> None:
    arguments = ("--d-model", 512, "--heads", 8, "--kv-heads", 2, "--layers", 3, "--window", 64)
    made = json.loads(headwise("plan", *arguments, "--json").out)
    assert (made["d_key"], made["num_local"]) == (64, 3)
    assert made["parameters_layer"] == 512 * 512 * 2 + 512 * 128 * 2


@pytest.mark.parametrize(
    ("typed", "options"),
    [
        ("768/12", ("--d-model", 768, "--heads", 12)),
        ("768/12x5", ("--d-model", 768, "--heads", 12, "--layers", 5)),
        ("4096/32:8x3", ("--d-model", 4096, "--heads", 32, "--kv-heads", 8, "--layers", 3)),
    ],
)
def test_typed_sizes_are_the_same_as_options_and_their_name(
    headwise: Runner, typed: str, options: tuple[object, ...]
) -> None:
    made = json.loads(headwise("plan", typed, "--json").out)
    assert made["name"] == typed
    assert made == json.loads(headwise("plan", *options, "--json").out)


def test_sizes_are_compared_with_models(headwise: Runner) -> None:
    rows = json.loads(headwise("plan", "compare", "gpt2", "768/6", "768/12x12", "--json").out)
    assert [(row["name"], row["d_key"], row["num_layers"]) for row in rows] == [
        ("gpt2", 64, 12),
        ("768/6", 128, 1),
        ("768/12x12", 64, 12),
    ]


def test_a_directory_that_is_named_like_sizes_is_read(
    headwise: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    LlamaConfig(hidden_size=64, num_attention_heads=4).save_pretrained("768/12")
    assert json.loads(headwise("plan", "768/12", "--json").out)["d_model"] == 64


def test_the_help_of_plan_leads_to_its_options(headwise: Runner) -> None:
    out = " ".join(headwise("plan", "--help").out.split())
    assert "headwise plan show --help lists every option: --d-model, --heads" in out


def test_a_directory(headwise: Runner, tmp_path: Path) -> None:
    LlamaConfig(hidden_size=64, num_attention_heads=4, num_key_value_heads=2).save_pretrained(
        tmp_path
    )
    out = headwise("plan", tmp_path).out
    assert "d_model 64, 4 heads of 16 over 2 KV heads" in " ".join(out.split())


def test_models_side_by_side(headwise: Runner) -> None:
    out = headwise("plan", "compare", "gpt2", "llama3-8b", "bert-base").out
    assert "At 512 tokens, batch 1, bfloat16:" in out
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["gpt2", "llama3-8b", "bert-base"]
    rows = json.loads(headwise("plan", "compare", "gpt2", "gpt3", "--json").out)
    assert [row["name"] for row in rows] == ["gpt2", "gpt3"]


def test_head_counts_of_a_width(headwise: Runner) -> None:
    out = headwise("plan", "heads", 512, "--length", 512).out
    assert "under 64; rank 32 of 512" in out
    assert "With 4 or 8 heads, each has 64 to 128 dimensions, as in nearly all" in " ".join(
        out.split()
    )
    assert "2002.07028" in out
    rows = json.loads(headwise("plan", "heads", "--d-model", 512, "--json").out)
    assert len({row["multiply_adds_scores"] for row in rows}) == 1
    assert [row["num_heads"] for row in rows] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert rows[3]["remarks"] == "rank 64 of 1,024"
    none = " ".join(headwise("plan", "heads", 58).out.split())
    assert "No number of heads gives 64 to 128 dimensions each" in none


def test_head_counts_name_known_models_of_about_the_width(headwise: Runner) -> None:
    out = headwise("plan", "heads", "--d-model", 768).out
    assert "Known models of about this width have 12 heads (bert-base, gpt2)." in out
    assert "Known models" not in headwise("plan", "heads", "--d-model", 512).out
    rows = json.loads(headwise("plan", "heads", "--d-model", 896, "--json").out)
    by_heads = {row["num_heads"]: row["as_in"] for row in rows}
    assert by_heads[16] == "bert-large, gpt2-medium, qwen3-0.6b" and by_heads[4] == ""


def test_head_counts_over_several_layers(headwise: Runner) -> None:
    out = headwise("plan", "heads", "--d-model", 512, "--layers", 3).out
    assert "d_model 512, 3 layers together" in out
    row = next(line.split() for line in out.splitlines() if line.split()[:2] == ["8", "64"])
    assert row[2:7] == ["3,145,728", "806", "M", "48", "MiB"]  # three times those of one layer


def test_a_length_beyond_the_models_own_is_noted(headwise: Runner) -> None:
    assert "made for at most 1,024 positions" in headwise("plan", "GPT2", "--length", 5000).out
    assert "made for" not in headwise("plan", "gpt2").out


def test_a_model_that_looks_both_ways_does_not_decode(headwise: Runner) -> None:
    assert json.loads(headwise("plan", "minilm", "--json").out)["decode_intensity"] is None


def test_a_total_of_a_part_is_noted(headwise: Runner) -> None:
    out = " ".join(headwise("plan", "gemma3-4b").out.split())
    assert "note: the whole model is that of the text alone, without the part that reads" in out


@pytest.mark.parametrize(
    "arguments", [("gpt2",), ("compare", "gpt2", "llama3-8b"), ("heads", 768), ("heads", 67)]
)
def test_no_number_is_cut_short_by_a_narrow_terminal(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...]
) -> None:
    figures = {}
    for columns in (200, 30):
        monkeypatch.setenv("COLUMNS", str(columns))
        out = headwise("plan", *arguments).out
        assert "\u2026" not in out
        figures[columns] = sorted(re.findall(r"[\d.]+ [A-Z]\w*|\d+(?:,\d+)+", out))
    assert figures[30] == figures[200] and len(figures[30]) > 5


def test_one_head_is_one(headwise: Runner) -> None:
    assert "With 1 head, it has 64 to 128 dimensions" in headwise("plan", "heads", 67).out


def test_numbers_are_never_shown_with_an_exponent(headwise: Runner) -> None:
    out = headwise("plan", "gpt3", "--length", 200_000, "--batch", 700).out
    assert "e+" not in out and " PiB" in out


def test_every_known_model_is_listed_with_its_source(headwise: Runner) -> None:
    out = headwise("plan", "models").out
    assert "gpt-oss-120b" in out and "2005.14165" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gpt-2"], "did you mean gpt2?"),
        (["--d-model", 768, "--layers", 12], "see the choices with headwise plan heads 768"),
        (["gpt2", "--layers", 3], "gpt2 has its own sizes: leave --layers or"),
        (["heads"], "give the width to divide among heads once"),
        (["heads", 768, "--d-model", 768], "give the width to divide among heads once"),
        (["768/7"], "7 heads cannot share a d_model of 768 evenly"),
        (["768/12x0"], "num_layers is 0: it must be from 1"),
        (["768/12:5"], "12 heads cannot share 5 KV heads evenly"),
        (["--heads", 8], "--d-model is missing: name a model, or give --d-model and --heads"),
        (["gpt2", "--heads", 8], "gpt2 has its own sizes: leave --heads"),
        (["--d-model", 10, "--heads", 3], "3 heads cannot share a d_model of 10 evenly"),
        (["gpt2", "--dtype", "int3"], "there is no dtype 'int3'"),
        (["gpt2", "--length", 0], "--length is 0"),
        (["gpt2", "--json", "--csv"], "--json and --csv are two formats"),
        (["compare", "gpt2", "nothing"], "nothing is neither a known model"),
        (["heads", "--d-model", 0], "--d-model is 0"),
        (["no/such-model"], "the config of no/such-model cannot be had"),
        (["./nope"], "./nope is no directory with a config.json"),
        ([""], "there is nothing to plan"),
        (["compare", "gpt2"], "gpt2 alone cannot be compared"),
        (["heads", "--d-model", 10**17], "it must be from 1 to 16,777,216"),
        (["--d-model", 0, "--heads", 0], "--d-model is 0"),
    ],
)
def test_a_mistake_is_one_sentence(headwise: Runner, arguments: list[object], words: str) -> None:
    assert words in headwise.refused("plan", *arguments)


def test_planning_needs_no_torch() -> None:
    script = (
        "import sys; sys.argv = ['headwise', 'plan', 'gpt2']\n"
        "from headwise.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'transformers', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
