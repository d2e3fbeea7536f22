"""A text is read by a model at rest, which is afterwards as it was."""

import pandas as pd
import pytest
from torch import nn

from headwise.explorer.readings import read
from headwise.explorer.session import Session
from headwise.explorer.whatif import outcome
from headwise.pruning.setting import Subject

from ..pruning.subjects import model_of, objective_of, words_tokenizer
from .sessions import WORDS, tiny_session
from .test_whatif import silenced


def subject_in_training(name: str) -> Subject:
    return Subject(name, model_of(name).train(), words_tokenizer(), objective_of(name))


def assert_in_training(model: nn.Module) -> None:
    assert all(module.training for module in model.modules())


def test_a_model_in_training_is_read_at_rest_and_goes_on_training() -> None:
    subject = subject_in_training("bert")
    found, want = read(subject, WORDS).table, tiny_session("bert").read(WORDS).table
    pd.testing.assert_frame_equal(found.df, want.df)
    assert_in_training(subject.model)


@pytest.mark.parametrize("name", ["bert", "embedding"])
def test_a_change_is_seen_at_rest_and_the_model_goes_on_training(name: str) -> None:
    subject, session = subject_in_training(name), tiny_session(name)
    found, want = (
        outcome(one, [WORDS], silenced("L0H1"), session.counts)
        for one in (subject, session.subject)
    )
    assert found == want
    assert_in_training(subject.model)


def test_a_session_leaves_the_model_in_training_and_its_twin_at_rest() -> None:
    session = Session(subject_in_training("bert"))
    assert_in_training(session.subject.model)
    assert not any(module.training for module in session.twin.model.modules())
    assert session.counts == tiny_session("bert").counts
