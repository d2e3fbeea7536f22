"""The search for heads equals a search by hand, one silenced run at a time."""

import pytest
import torch

from headwise.errors import OptionError
from headwise.explorer.find_heads import MOST, find_heads
from headwise.heads import HeadId, parse_heads
from headwise.watching.gates import silence

from .sessions import WORDS, minilm, tiny_session


@torch.no_grad()
def probabilities(name: str, heads: tuple[HeadId, ...]) -> torch.Tensor:
    scored = tiny_session(name).scored
    inputs = {"input_ids": scored.tokenizer([WORDS], return_tensors="pt")["input_ids"]}
    with silence(scored.model, heads):
        return scored.model(**inputs).logits[0, -1].softmax(-1)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_heads_are_added_while_they_lower_the_likeliest_word(name: str) -> None:
    session = tiny_session(name)
    answer = find_heads(session.scored, WORDS, session.num_heads)
    every = [
        HeadId.parse(f"{layer}H{at}")
        for layer, count in session.num_heads.items()
        for at in range(count)
    ]
    target = int(probabilities(name, ()).argmax())
    found: tuple[HeadId, ...] = ()
    while len(found) < MOST:
        now = probabilities(name, found)
        if int(now.argmax()) != target:
            break
        rest = [head for head in every if head not in found]
        best = min(rest, key=lambda head: float(probabilities(name, (*found, head))[target]))
        if found and probabilities(name, (*found, best))[target] >= now[target]:
            break
        found = (*found, best)
    assert parse_heads(answer.heads) == tuple(sorted(found))
    assert answer.tried >= len(every)


def test_embedding_models_have_no_word_to_change() -> None:
    session = minilm()
    with pytest.raises(OptionError, match="by hand"):
        find_heads(session.scored, WORDS, session.num_heads)
