"""`headwise plan`: the numbers it prints, and the errors it reports."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig

from headwise.planning.known_models import KNOWN

from .running import Runner


def test_known_model_shows_parameters_and_cache(headwise: Runner) -> None:
    out = headwise("plan", "gpt2").out
    assert "gpt2: d_model 768, 12 heads of 64, 12 layers" in out
    assert "2,362,368" in out and "28,348,416" in out and "124,439,808" in out
    assert "36 MiB" in out  # 2 x 12 layers x 768 x 1,024 positions x 2 bytes


def test_json_and_csv_contain_the_same(headwise: Runner) -> None:
    made = json.loads(headwise("plan", "llama3-8b", "--json").out)
    assert made["cache_bytes_by_length"]["8192"] == 2**30
    assert made["parameters_Wk"] == 4096 * 8 * 128
    (row,) = csv.DictReader(io.StringIO(headwise("plan", "llama3-8b", "--csv").out))
    assert {
        name: str(value) for name, value in made.items() if name in row and value is not None
    } == {name: value for name, value in row.items() if value != ""} | {
        name: "" for name, value in made.items() if name in row and value == ""
    }


def test_sizes_come_from_options(headwise: Runner) -> None:
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
def test_typed_sizes_equal_options_and_name_the_plan(
    headwise: Runner, typed: str, options: tuple[object, ...]
) -> None:
    made = json.loads(headwise("plan", typed, "--json").out)
    assert made["name"] == typed
    assert made == json.loads(headwise("plan", *options, "--json").out)


def test_compare_accepts_sizes_and_models(headwise: Runner) -> None:
    rows = json.loads(headwise("plan", "compare", "gpt2", "768/6", "768/12x12", "--json").out)
    assert [(row["name"], row["d_key"], row["num_layers"]) for row in rows] == [
        ("gpt2", 64, 12),
        ("768/6", 128, 1),
        ("768/12x12", 64, 12),
    ]


def test_directory_named_like_sizes_is_read(
    headwise: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    LlamaConfig(hidden_size=64, num_attention_heads=4).save_pretrained("768/12")
    assert json.loads(headwise("plan", "768/12", "--json").out)["d_model"] == 64


def test_help_of_plan_names_its_options(headwise: Runner) -> None:
    out = " ".join(headwise("plan", "--help").out.split())
    assert "headwise plan show --help lists every option: --d-model, --heads" in out


def test_directory_with_a_config_is_read(headwise: Runner, tmp_path: Path) -> None:
    LlamaConfig(hidden_size=64, num_attention_heads=4, num_key_value_heads=2).save_pretrained(
        tmp_path
    )
    out = headwise("plan", tmp_path).out
    assert "d_model 64, 4 heads of 16 over 2 KV heads" in " ".join(out.split())


def test_compare_shows_models_in_the_given_order(headwise: Runner) -> None:
    out = headwise("plan", "compare", "gpt2", "llama3-8b", "bert-base").out
    assert "At 512 tokens, batch 1, bfloat16:" in out
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["gpt2", "llama3-8b", "bert-base"]
    rows = json.loads(headwise("plan", "compare", "gpt2", "gpt3", "--json").out)
    assert [row["name"] for row in rows] == ["gpt2", "gpt3"]


def test_heads_lists_every_divisor_with_remarks(headwise: Runner) -> None:
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


def test_heads_names_known_models_of_about_the_width(headwise: Runner) -> None:
    out = headwise("plan", "heads", "--d-model", 768).out
    assert "Known models of about this width have 12 heads (bert-base, gpt2)." in out
    assert "Known models" not in headwise("plan", "heads", "--d-model", 512).out
    rows = json.loads(headwise("plan", "heads", "--d-model", 896, "--json").out)
    by_heads = {row["num_heads"]: row["as_in"] for row in rows}
    assert by_heads[16] == "bert-large, gpt2-medium, qwen3-0.6b" and by_heads[4] == ""


def test_heads_sums_over_layers(headwise: Runner) -> None:
    out = headwise("plan", "heads", "--d-model", 512, "--layers", 3).out
    assert "d_model 512, 3 layers together" in out
    row = next(line.split() for line in out.splitlines() if line.split()[:2] == ["8", "64"])
    assert row[2:7] == ["3,145,728", "806", "M", "48", "MiB"]  # three times those of one layer


def test_length_beyond_the_context_is_noted(headwise: Runner) -> None:
    assert "made for at most 1,024 positions" in headwise("plan", "GPT2", "--length", 5000).out
    assert "made for" not in headwise("plan", "gpt2").out


def test_bidirectional_model_has_no_decoding_in_json(headwise: Runner) -> None:
    assert json.loads(headwise("plan", "minilm", "--json").out)["decode_intensity"] is None


def test_total_without_the_image_part_is_noted(headwise: Runner) -> None:
    out = " ".join(headwise("plan", "gemma3-4b").out.split())
    assert "note: the whole model is counted without the part that reads images" in out


@pytest.mark.parametrize(
    "arguments", [("gpt2",), ("compare", "gpt2", "llama3-8b"), ("heads", 768), ("heads", 67)]
)
def test_narrow_terminals_do_not_truncate_numbers(
    headwise: Runner, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...]
) -> None:
    figures = {}
    for columns in (200, 30):
        monkeypatch.setenv("COLUMNS", str(columns))
        out = headwise("plan", *arguments).out
        assert "\u2026" not in out
        figures[columns] = sorted(re.findall(r"[\d.]+ [A-Z]\w*|\d+(?:,\d+)+", out))
    assert figures[30] == figures[200] and len(figures[30]) > 5


def test_one_head_is_singular(headwise: Runner) -> None:
    assert "With 1 head, it has 64 to 128 dimensions" in headwise("plan", "heads", 67).out


def test_large_numbers_have_units_not_exponents(headwise: Runner) -> None:
    out = headwise("plan", "gpt3", "--length", 200_000, "--batch", 700).out
    assert "e+" not in out and " PiB" in out


def test_models_lists_every_known_model_with_its_source(headwise: Runner) -> None:
    out = headwise("plan", "models").out
    assert [name for name in KNOWN if f"{name} " not in out] == []
    assert [model.source for model in KNOWN.values() if model.source not in out] == []


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["gpt-2"], "gpt2?"),
        (["--d-model", 768, "--layers", 12], "headwise plan heads 768"),
        (["gpt2", "--layers", 3], "--layers"),
        (["heads"], "headwise plan heads 768"),
        (["heads", 768, "--d-model", 768], "headwise plan heads 768"),
        (["768/7"], "7 heads cannot share a d_model of 768"),
        (["768/12x0"], "num_layers is 0: "),
        (["768/12:5"], "12 heads cannot share 5 KV heads"),
        (["--heads", 8], "--d-model is missing"),
        (["gpt2", "--heads", 8], "--heads"),
        (["--d-model", 10, "--heads", 3], "3 heads cannot share a d_model of 10"),
        (["gpt2", "--dtype", "int3"], "--dtype is 'int3'"),
        (["gpt2", "--length", 0], "--length is 0"),
        (["gpt2", "--json", "--csv"], "--json and --csv"),
        (["compare", "gpt2", "nothing"], "nothing is not a known model"),
        (["heads", "--d-model", 0], "--d-model is 0"),
        (["no/such-model"], "config of no/such-model"),
        (["./nope"], "./nope is not a directory"),
        ([""], "name a model"),
        (["compare", "gpt2"], "only gpt2 is named"),
        (["heads", "--d-model", 10**17], "from 1 to 16,777,216"),
        (["--d-model", 0, "--heads", 0], "--d-model is 0"),
    ],
)
def test_error_names_the_facts(headwise: Runner, arguments: list[object], facts: str) -> None:
    assert facts in headwise.refused("plan", *arguments)


def test_plan_imports_no_torch() -> None:
    script = (
        "import sys; sys.argv = ['headwise', 'plan', 'gpt2']\n"
        "from headwise.cli import run_cli\n"
        "try: run_cli()\n"
        "except SystemExit: pass\n"
        "print([name for name in ('torch', 'transformers', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
