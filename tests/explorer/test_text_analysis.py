"""Texts are read in evaluation mode, and tokens that do not fit are counted and reported."""

import warnings

import pandas as pd
import pytest
from torch import nn

import headwise
from headwise.errors import ModelError
from headwise.explorer.session import Session
from headwise.explorer.text_analysis import analyse_text
from headwise.explorer.what_if import compare_gated
from headwise.objectives.scored_model import ScoredModel
from headwise.pruning.surgery.cut import cut
from headwise.watching.output_check import PASSED

from ..pruning.tiny_models import model_of, objective_of, words_tokenizer
from .sessions import WORDS, minilm, tiny_session
from .test_what_if import silenced


def training_model(name: str) -> ScoredModel:
    return ScoredModel(
        name, model_of(name).train(), words_tokenizer(), objective=objective_of(name)
    )


def assert_in_training(model: nn.Module) -> None:
    assert all(module.training for module in model.modules())


def test_a_text_is_read_in_eval_mode_and_training_mode_is_restored() -> None:
    scored = training_model("bert")
    table, want = analyse_text(scored, WORDS).table, tiny_session("bert").read(WORDS).table
    pd.testing.assert_frame_equal(table.df, want.df)
    assert_in_training(scored.model)


@pytest.mark.parametrize("name", ["bert", "embedding"])
def test_gated_passes_run_in_eval_mode_and_restore_training_mode(name: str) -> None:
    scored, session = training_model(name), tiny_session(name)
    changed, want = (
        compare_gated(each, [WORDS], silenced("L0H1"), session.num_heads)
        for each in (scored, session.scored)
    )
    assert changed == want
    assert_in_training(scored.model)


def test_a_session_keeps_training_mode_and_puts_the_copy_in_eval_mode() -> None:
    session = Session(training_model("bert"))
    assert_in_training(session.scored.model)
    assert not any(module.training for module in session.job_model.model.modules())
    assert session.counts == tiny_session("bert").counts


LIMIT = 61
"""Largest number of words that a tiny model reads."""


@pytest.mark.parametrize("more", [0, 1, 2, 39, LIMIT, LIMIT + 1])
def test_tokens_beyond_the_limit_are_counted(more: int) -> None:
    reading = tiny_session("bert").read("w7 " * (LIMIT + more))
    assert (reading.batch.num_tokens, reading.left_out) == (LIMIT, more)


@pytest.mark.parametrize(("more", "counts"), [(0, []), (1, ["1 token"]), (39, ["39 tokens"])])
def test_a_view_warns_of_tokens_that_were_left_out(more: int, counts: list[str]) -> None:
    with warnings.catch_warnings(record=True) as remarks:
        warnings.simplefilter("always")
        view = headwise.view(model_of("bert"), "w7 " * (LIMIT + more), tokenizer=words_tokenizer())
    messages = [f"the text is {count} too long: its end was left out" for count in counts]
    assert [str(remark.message) for remark in remarks] == messages
    assert all(remark.filename == __file__ for remark in remarks) and view.text["tokens"] == LIMIT


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_model_without_heads_raises(name: str) -> None:
    model, tokenizer = model_of(name), words_tokenizer()
    counts = tiny_session(name).num_heads
    cut(model, [f"{layer}H{head}" for layer, heads in counts.items() for head in range(heads)])
    scored = ScoredModel("bare", model, tokenizer, objective=objective_of(name))
    with pytest.raises(ModelError, match=r"bare.* heads"):
        Session(scored)
    with pytest.raises(ModelError, match=r"bare.* heads"):
        analyse_text(scored, WORDS)
    with pytest.raises(ModelError, match=f"{type(model).__name__}.* heads"):
        headwise.view(model, WORDS, tokenizer=tokenizer)


@pytest.mark.parametrize("is_shipped", [True, False])
def test_longer_texts_of_a_shipped_model_are_not_checked_again(is_shipped: bool) -> None:
    session = Session(minilm().scored, is_fresh=True)
    if not is_shipped:
        session._shipped_scan = None
    PASSED.pop(session.scored.model, None)
    longest = []
    for count in (4, 40):
        session.read("word " * count)
        sizes = PASSED[session.scored.model].sizes.values()
        longest.append(max(size[""] for size in sizes))
    assert (longest[1] == longest[0]) == is_shipped
