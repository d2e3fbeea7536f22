"""Which heads carry the difference between the sentences of a pair, and when this is unknown."""

import pytest
import torch
from transformers import BertForSequenceClassification

from headwise.explorer import pair_carriers
from headwise.explorer.api_requests import PageRequest
from headwise.explorer.pair_carriers import (
    CANDIDATES,
    NO_DIFFERENCE,
    NO_MASK,
    OTHER_LENGTH,
    TOO_LONG,
)
from headwise.explorer.save_page import saved_data
from headwise.explorer.session import Session
from headwise.heads import HeadId
from headwise.objectives.losses import Divergence
from headwise.objectives.scored_model import ScoredModel
from headwise.patching.alignment import align_pairs
from headwise.patching.attribution import attribute_heads
from headwise.patching.exact import patch_each_head
from headwise.patching.metrics import CleanCosine, CleanDivergence, Metric
from headwise.patching.prompts import PromptPair
from headwise.patching.runs import run_pairs

from ..pruning.tiny_models import model_of, words_tokenizer
from .sessions import ANIMAL, WORDS, minilm, tiny_session

OTHER = WORDS.replace("w12", "w40")
MASKED, OTHER_MASKED = (text.replace("w55", "[MASK]") for text in (WORDS, OTHER))


@pytest.mark.parametrize(
    ("name", "text", "other", "metric"),
    [
        ("embedding", WORDS, OTHER, CleanCosine()),
        ("gpt2", WORDS, OTHER, CleanDivergence()),
        ("bert", MASKED, OTHER_MASKED, CleanDivergence()),
    ],
)
def test_shares_are_those_of_attribution_patching(
    name: str, text: str, other: str, metric: Metric
) -> None:
    session = tiny_session(name)
    answer = session.pair_answer(text, other)
    assert answer.carries is not None and answer.why_no_carries is None
    (batch,) = align_pairs(session.scored, [PromptPair(text, other)])
    runs = run_pairs(session.scored.model, batch, metric)
    heads = list(map(HeadId.parse, answer.carries))
    every = [
        HeadId(call.layer, head, call.stack)
        for call in runs.calls["noise"]
        for head in range(call.num_heads)
    ]
    outputs = runs.replacements("denoise")
    estimates = attribute_heads(runs, "denoise", outputs, every)[:, 0]
    assert len(heads) == min(CANDIDATES, len(every))
    assert every[int(estimates.abs().argmax())] in heads
    changes = patch_each_head(runs, "denoise", outputs, heads)[:, 0]
    shares = (changes / (runs.clean - runs.corrupted)).tolist()
    assert list(answer.carries.values()) == pytest.approx(shares, abs=1e-4)


def test_sentences_of_different_lengths_have_no_shares_and_say_so() -> None:
    answer = tiny_session("embedding").pair_answer(WORDS, f"{WORDS} w40")
    assert answer.carries is None and answer.why_no_carries == OTHER_LENGTH


def test_every_other_reason_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    session = tiny_session("bert")
    assert session.pair_answer(WORDS, OTHER).why_no_carries == NO_MASK
    moved = WORDS.replace("w90", "[MASK]")
    assert session.pair_answer(MASKED, moved).why_no_carries == NO_MASK
    assert session.pair_answer(MASKED, MASKED).why_no_carries == NO_DIFFERENCE
    monkeypatch.setattr(pair_carriers, "MAX_TOKENS", 8)
    longer = WORDS.replace("w12", "w41")
    assert tiny_session("embedding").pair_answer(WORDS, longer).why_no_carries == TOO_LONG


def test_classes_are_compared_by_their_divergence() -> None:
    torch.manual_seed(0)
    model = BertForSequenceClassification(model_of("bert").config).eval()  # type: ignore[arg-type]
    for weight in model.parameters():
        weight.data *= 10  # fresh weights are too small for a difference
    scored = ScoredModel("classes", model, words_tokenizer(), objective=Divergence())
    answer = Session(scored).pair_answer(WORDS, OTHER)
    assert answer.carries is not None and any(answer.carries.values())


def test_a_saved_page_keeps_the_shares() -> None:
    wide = ANIMAL.replace("tired", "wide")
    answer = minilm().pair_answer(ANIMAL, wide)
    assert answer.carries is not None
    assert max(answer.carries, key=lambda head: answer.carries[head]) == "L5H9"
    saved = saved_data(minilm(), PageRequest(ANIMAL, wide)).pair
    assert saved is not None and saved.carries == answer.carries
