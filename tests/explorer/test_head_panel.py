"""A head's panel agrees with its full weight matrix."""

import json
from dataclasses import asdict

import msgspec
import pytest
import torch

from headwise.explorer.api_types import HeadAnswer, ServedBy
from headwise.explorer.head_panel import head_answer, role_evidence
from headwise.explorer.text_analysis import LONGEST, AnalysisCache, analyse_text
from headwise.heads import HeadId
from headwise.objectives.scored_model import open_scored_model
from headwise.scans.scan import scan
from headwise.scans.settings import ScanSettings

from ..pruning.tiny_models import model_of, words_tokenizer
from ..watching.helpers import allow_weights
from .sessions import CAT, WORDS, cat, minilm, tiny_session

pytestmark = allow_weights
HEAD = HeadId(3, 1)


def click(head: HeadId = HEAD) -> HeadAnswer:
    return head_answer(cat(), head, None)


def test_the_profile_is_the_mean_of_every_diagonal() -> None:
    profile = click().profile
    weights = cat().call("L3").weights()[0, 1]
    size = len(weights)
    assert profile.offsets == list(range(-min(16, size - 1), min(16, size - 1) + 1))
    for offset, mean in zip(profile.offsets, profile.means, strict=True):
        assert mean == pytest.approx(float(weights.diagonal(offset).mean()), abs=1e-5)


def test_the_panel_says_whether_roles_come_from_a_scan() -> None:
    table = tiny_session("llama").read("w7 w8 w9").table
    reading = tiny_session("llama").read(WORDS)
    for scanned, roles in ((None, reading.table), (table, table)):
        panel = head_answer(reading, HeadId(1, 4), scanned)
        assert panel.is_scanned == (scanned is not None)
        assert panel.roles == role_evidence(roles, HeadId(1, 4))


def test_contributions_are_lengths_before_and_after_the_projection() -> None:
    contribution, call = click().contribution, cat().call("L3")
    assert contribution is not None
    mixed, parts = call.mixed[0], call.output_weight.unflatten(0, (12, -1))
    after = (mixed @ parts).norm(dim=-1)
    want = {"before": mixed[1].norm(dim=-1), "after": after[1], "share": after[1] / after.sum(0)}
    for name, values in want.items():
        torch.testing.assert_close(
            torch.tensor(getattr(contribution, name)), values, rtol=0, atol=1e-4
        )
    assert contribution.equal_share == 1 / 12


def test_measures_are_those_of_a_scan_of_the_text() -> None:
    scored = minilm().scored
    settings = ScanSettings(compares=False, repeats=False)
    table = scan(scored.model, CAT, tokenizer=scored.tokenizer, settings=settings)
    want = {name: float(table[HEAD][name]) for name in ("entropy", "first", "distance")}
    measures = {measure.name: measure.value for measure in click().measures}
    assert {name: measures[name] for name in want} == pytest.approx(want)
    assert not any(name.startswith("sink_") for name in measures)
    roles = {role.role: role for role in click().roles}
    assert roles["sink"].score == pytest.approx(float(table[HEAD]["sink_score"]))
    assert roles["sink"].is_held == ("sink" in table[HEAD]["roles"])
    assert role_evidence(table, HEAD) == click().roles


def test_a_kv_head_is_named_where_heads_share_it() -> None:
    reading = tiny_session("llama").read(WORDS)
    panel = head_answer(reading, HeadId(1, 4), None)
    assert panel.served_by == ServedBy(1, 2)
    assert click().served_by is None


@pytest.mark.parametrize("name", ["bert", "llama", "bloom", "bart"])
def test_the_answers_of_every_family_are_valid_json(name: str) -> None:
    reading = tiny_session(name).read(WORDS)
    for layer in reading.calls:
        head = HeadId.parse(f"{layer}H0")
        answer = head_answer(reading, head, None)
        assert json.loads(msgspec.json.encode(answer))["head"] == str(head)
        json.dumps(asdict(answer), allow_nan=False)


def test_a_long_text_is_read_in_part_and_says_so() -> None:
    text = "one two three four five " * 300
    reading = minilm().read(text)
    assert reading.batch.num_tokens == 512
    assert reading.left_out == 1500 - 510
    assert minilm().text_answer(text).left_out == 990
    assert LONGEST > 512


def test_the_cache_drops_old_analyses_and_keeps_the_last() -> None:
    scored = open_scored_model("minilm")
    cache = AnalysisCache(most=2)
    readings = [analyse_text(scored, f"text number {number}") for number in range(3)]
    for reading in readings:
        cache.put(reading)
    assert cache.get(readings[0].name) is None
    assert all(cache.get(reading.name) is reading for reading in readings[1:])
    small = AnalysisCache(most_bytes=1)
    small.put(readings[0])
    small.put(readings[1])
    assert small.get(readings[0].name) is None
    assert small.get(readings[1].name) is readings[1]
    assert readings[0].bytes >= 4 * 6 * 5 * 384 * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_size_of_an_analysis_counts_float32_copies(dtype: torch.dtype) -> None:
    scored = open_scored_model(model_of("llama").to(dtype), words_tokenizer())
    reading = analyse_text(scored, WORDS)
    counted = reading.bytes
    tasks = [reading.sequence(layer).computation for layer in reading.calls]
    stored = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for held in (*reading.calls.values(), *tasks)
        for tensor in (held.queries, held.keys, held.values)
    }
    mixed = [
        call.mixed.numel() * (4 + 2 * (dtype != torch.float32)) for call in reading.calls.values()
    ]
    assert counted == sum(stored.values()) + sum(mixed)


def test_an_error_in_the_progress_callback_stops_the_analysis() -> None:
    done = []

    def stop(stage: str, layers: int, total: int) -> None:
        done.append((layers, total))
        if layers == 2:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        analyse_text(minilm().scored, CAT, progress=stop)
    assert done == [(1, 6), (2, 6)]
    assert cat().batch.num_tokens == analyse_text(minilm().scored, CAT).batch.num_tokens
