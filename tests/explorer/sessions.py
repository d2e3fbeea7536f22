"""Sessions to explore: one of the real model, and tiny ones of other kinds, made once."""

import functools

from headwise.explorer.session import Session
from headwise.explorer.text_analysis import TextAnalysis
from headwise.objectives.scored_model import ScoredModel, open_scored_model

from ..pruning.tiny_models import model_of, objective_of, words_tokenizer

CAT = "The cat sat on the mat because it was unbelievably warm."
ANIMAL = "The animal didn't cross the street because it was too tired."
WORDS = "w7 w31 w12 w31 w90 w55 w18 w7 w31"


@functools.cache
def minilm() -> Session:
    return Session(open_scored_model("minilm"), is_fresh=True)


@functools.cache
def smollm2() -> Session:
    return Session(open_scored_model("smollm2"), is_fresh=True)


@functools.cache
def tiny_session(name: str) -> Session:
    return fresh_session(name)


def fresh_session(name: str) -> Session:
    tokenizer = words_tokenizer()
    return Session(ScoredModel(name, model_of(name), tokenizer, objective=objective_of(name)))


@functools.cache
def cat() -> TextAnalysis:
    return minilm().read(CAT)


@functools.cache
def animal() -> TextAnalysis:
    return minilm().read(ANIMAL)
