"""Random controls: as many heads, never the chosen ones, and outputs of the silenced model."""

import http.client
import itertools
import json
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch

from headwise.errors import OptionError
from headwise.explorer.random_heads import compare_random, draw_heads
from headwise.explorer.what_if import BATCH_TOKENS, compare_gated
from headwise.heads import HeadId, parse_heads
from headwise.progress import StopWork
from headwise.watching.gates import silence
from headwise.watching.sites import find_sites

from .browser import served
from .sessions import WORDS, minilm, tiny_session

TEXTS = ["The cat sat on the mat.", "A kitten lay on a rug.", "Stocks fell."]
SIZES = {"L0": 5, "L1": 3}


def silenced(heads: str) -> dict[HeadId, float]:
    return dict.fromkeys(parse_heads(heads), 0.0)


@pytest.mark.parametrize("heads", ["L0H1", "L0H1 L1H2", "L0H0 L0H1 L0H2 L0H3 L0H4 L1H0 L1H1"])
def test_draws_are_as_many_different_heads_and_never_the_chosen_ones(heads: str) -> None:
    chosen = silenced(heads)
    drawn = draw_heads(chosen, SIZES, 10)
    sets = [frozenset(each) for each in drawn]
    assert {len(each) for each in sets} == {len(chosen)}
    assert len(set(sets)) == len(sets) and frozenset(chosen) not in sets
    every = {HeadId.parse(f"{layer}H{at}") for layer, count in SIZES.items() for at in range(count)}
    assert set().union(*sets) <= every
    assert len(sets) == min(10, len(list(itertools.combinations(every, len(chosen)))) - 1)


def test_draws_are_the_same_in_every_call_and_none_if_all_heads_are_chosen() -> None:
    assert draw_heads(silenced("L0H1 L1H2"), SIZES, 4) == draw_heads(
        silenced("L0H1 L1H2"), SIZES, 4
    )
    everything = {
        HeadId.parse(f"{layer}H{at}"): 0.0 for layer, count in SIZES.items() for at in range(count)
    }
    assert draw_heads(everything, SIZES, 10) == []


@torch.no_grad()
@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_probabilities_are_those_of_the_model_without_the_drawn_heads(family: str) -> None:
    session = tiny_session(family)
    chosen = silenced(f"{next(iter(session.num_heads))}H1")
    answer = compare_random(session.scored, [WORDS], chosen, session.num_heads, draws=5)
    told = compare_gated(session.scored, [WORDS], chosen, session.num_heads).prediction
    assert answer.names[0] == told.names[0]
    now = told.names[told.after.index(max(told.after))]
    assert now in (answer.names[0], answer.names[1]) and sorted(answer.names) == sorted(told.names)
    for draw, heads in enumerate(answer.heads):
        alone = compare_gated(
            session.scored, [WORDS], dict.fromkeys(parse_heads(heads), 0.0), session.num_heads
        ).prediction
        shares = dict(zip(alone.names, alone.after, strict=True))
        assert answer.likeliest[draw] == max(shares, key=shares.__getitem__)
        for name, values in zip(answer.names, answer.values, strict=True):
            if name in shares:
                assert values[draw] == pytest.approx(shares[name], abs=2e-5)


@torch.no_grad()
def test_cosines_are_those_of_embeddings_without_the_drawn_heads() -> None:
    session = minilm()
    scored = session.scored
    answer = compare_random(scored, TEXTS, silenced("L2H3 L5H0"), session.num_heads, draws=4)
    assert answer.pairs == [[0, 1], [0, 2], [1, 2]] and answer.names == []
    inputs = scored.tokenizer(TEXTS, padding=True, return_tensors="pt")
    for draw, heads in enumerate(answer.heads):
        with silence(scored.model, heads):
            output = scored.objective.output(scored.model, inputs)
        cosines = [float(output[one] @ output[other]) for one, other in answer.pairs]
        assert [values[draw] for values in answer.values] == pytest.approx(cosines, abs=2e-4)


def test_a_batch_of_draws_equals_a_pass_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    session, chosen = tiny_session("gpt2"), silenced("L0H1 L1H0")
    together = compare_random(session.scored, [WORDS], chosen, session.num_heads)
    assert len(together.heads) * len(WORDS.split()) > 2 * len(WORDS.split()) < BATCH_TOKENS
    monkeypatch.setattr("headwise.explorer.what_if.BATCH_TOKENS", 1)
    alone = compare_random(session.scored, [WORDS], chosen, session.num_heads)
    assert together.heads == alone.heads and together.likeliest == alone.likeliest
    for some, others in zip(together.values, alone.values, strict=True):
        assert some == pytest.approx(others, abs=2e-5)


def test_scaled_heads_are_compared_with_scaled_heads() -> None:
    session = tiny_session("llama")
    kept = {HeadId(0, 1): 1.0, HeadId(1, 2): 1.0}
    answer = compare_random(session.scored, [WORDS], kept, session.num_heads)
    usual = compare_gated(session.scored, [WORDS], {}, session.num_heads).prediction
    assert answer.values[0] == pytest.approx([usual.before[0]] * len(answer.heads), abs=2e-5)


def test_random_heads_need_a_change_and_stop_with_the_request() -> None:
    session = tiny_session("llama")
    with pytest.raises(OptionError, match="gates"):
        compare_random(session.scored, [WORDS], {}, session.num_heads)
    with pytest.raises(OptionError, match=r"L0\b.*0\.\.5"):
        compare_random(session.scored, [WORDS], silenced("L0H6"), session.num_heads)

    def stop(*_: object) -> None:
        raise StopWork

    with pytest.raises(StopWork):
        compare_random(session.scored, [WORDS], silenced("L0H1"), session.num_heads, progress=stop)


def test_draws_stop_with_their_request_and_the_next_is_served() -> None:
    session = tiny_session("llama")
    text = " ".join(f"w{7 + place % 90}" for place in range(200))  # a forward pass per draw
    passes: list[float] = []

    def slow(*_: object) -> None:
        passes.append(time.monotonic())
        time.sleep(0.1)

    def ask(path: str, content: dict[str, Any]) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=60)
        connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json"})
        return connection

    first = find_sites(session.scored.model)[0].module
    with served(session) as base, first.register_forward_pre_hook(slow):
        gates = {"L1H2": 0}
        draws = ask("/api/whatif/random", {"texts": [text], "gates": gates, "draws": 10})
        while len(passes) < 4:  # before, after, and two draws
            threading.Event().wait(0.01)
        draws.close()
        gone = time.monotonic()
        other = ask("/api/whatif", {"texts": [WORDS], "gates": gates})
        assert other.getresponse().status == 200
        seconds = time.monotonic() - gone
        threading.Event().wait(0.5)
    assert len(passes) < 10 and seconds < 3  # all draws and the other request: 14


def test_draws_may_stop_before_every_layer() -> None:
    session = tiny_session("llama")
    reports: list[int] = []

    def stop(_: str, done: int, total: int) -> None:
        reports.append(total)
        if reports.count(10) == 3:  # at the draws' start, and before two of three layers
            raise StopWork

    passes: list[object] = []
    last = find_sites(session.scored.model)[-1].module
    with (
        last.register_forward_hook(lambda *_: passes.append(_)),
        pytest.raises(StopWork),
    ):
        compare_random(session.scored, [WORDS], silenced("L0H1"), session.num_heads, progress=stop)
    assert len(passes) == 2  # before and after, and no draw
