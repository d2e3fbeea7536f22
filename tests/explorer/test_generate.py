"""Generation equals a slow greedy loop without a cache, with and without gates."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from headwise.errors import OptionError
from headwise.explorer.generate import generate
from headwise.explorer.session import Session
from headwise.heads import HeadId
from headwise.objectives.losses import NextToken
from headwise.objectives.scored_model import ScoredModel
from headwise.progress import StopWork
from headwise.watching.gates import gate

from ..pruning.tiny_models import SPECIAL, model_of, words_tokenizer
from .sessions import WORDS, minilm, tiny_session

FAMILIES = ("llama", "gpt2", "mistral", "qwen3")


def session_of(family: str) -> Session:
    """A tiny causal model in float64, whose generation config would change the output if used."""
    model: Any = model_of(family).double()
    model.generation_config = GenerationConfig(
        do_sample=True, temperature=7.0, repetition_penalty=9.0, max_length=3
    )
    return Session(ScoredModel(family, model, words_tokenizer(), objective=NextToken()))


@torch.no_grad()
def continued(session: Session, gates: dict[str, Tensor], count: int) -> list[int]:
    """The likeliest tokens, one whole pass over the text for each."""
    model: Any = session.scored.model
    ids = session.scored.tokenizer([WORDS], return_tensors="pt")["input_ids"]
    start = ids.shape[1]
    with gate(model, gates):
        for _ in range(count):
            logits = model(input_ids=ids, use_cache=False).logits[0, -1]
            ids = torch.cat([ids, logits.argmax().view(1, 1)], dim=1)
    return ids[0, start:].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_both_continuations_equal_a_slow_loop(family: str) -> None:
    session = session_of(family)
    heads = session.num_heads["L1"]
    factors = {HeadId(0, 1): 0.0, HeadId(1, heads - 1): 0.0, HeadId(1, 0): 1.75}
    gates = {layer: torch.ones(count).double() for layer, count in session.num_heads.items()}
    gates["L0"][1] = gates["L1"][heads - 1] = 0.0
    gates["L1"][0] = 1.75
    answer = generate(session.scored, WORDS, factors, session.num_heads, max_tokens=11)
    tokenizer = session.scored.tokenizer
    for line, changed in ((answer.before, {}), (answer.after, gates)):
        ids = continued(session, changed, 11)
        assert line.added.split() == tokenizer.decode(ids, skip_special_tokens=True).split()
        assert (line.tokens, line.end) == (11, "limit")
        assert line.text == WORDS + line.added and line.added.startswith(" ")
    assert answer.before.added != answer.after.added


class Scripted(torch.nn.Module):
    """Replaces a model's last layer: the likeliest tokens follow a script."""

    def __init__(self, start: int, script: list[int], size: int) -> None:
        super().__init__()
        self.start, self.script, self.size = start, script, size
        self.place = 0

    def forward(self, states: Tensor) -> Tensor:
        logits = torch.zeros(*states.shape[:-1], self.size)
        logits[:, -1, self.script[min(self.place, len(self.script) - 1)]] = 9
        self.place += 1
        return logits


def scripted(words: str, end: int | None = None) -> Session:
    """A session whose model always continues with `words`."""
    session = tiny_session("llama")
    tokenizer = words_tokenizer()
    tokenizer.add_tokens(["w5.", "...", "5."])
    model: Any = model_of("llama")
    model.resize_token_embeddings(len(tokenizer))
    model.generation_config.eos_token_id = end
    ids = tokenizer(words, add_special_tokens=False)["input_ids"]
    model.lm_head = Scripted(len(WORDS.split()), ids, len(tokenizer))
    return replace_scored(session, replace(session.scored, model=model, tokenizer=tokenizer))


def replace_scored(session: Session, scored: ScoredModel) -> Session:
    copied = object.__new__(Session)
    copied.__dict__.update(session.__dict__, scored=scored)
    return copied


@pytest.mark.parametrize(
    ("words", "added", "end"),
    [
        ("w7 w8 w5. w9 w9", " w7 w8 w5.", "sentence"),
        ("... w8 w5. w9", " ... w8 w5.", "sentence"),
        ("w7 w8 [SEP] w9", " w7 w8", "text"),
        ("[SEP] w9", "", "text"),
        ("w7 w8 w9 w9 w9 w9 w9 w9", " w7 w8 w9 w9 w9 w9", "limit"),
    ],
)
def test_a_line_ends_with_its_sentence_or_its_text(words: str, added: str, end: str) -> None:
    session = scripted(words, SPECIAL["[SEP]"])
    answer = generate(session.scored, WORDS, {}, session.num_heads, max_tokens=6)
    for line in (answer.before, answer.after):
        assert (line.added, line.end, line.text) == (added, end, WORDS + added)


def test_the_models_own_settings_are_restored() -> None:
    session = session_of("llama")
    model: Any = session.scored.model
    own = model.generation_config
    generate(session.scored, WORDS, {}, session.num_heads, max_tokens=2)
    assert model.generation_config is own

    def stop(*_: object) -> None:
        raise StopWork

    with pytest.raises(StopWork):
        generate(session.scored, WORDS, {}, session.num_heads, progress=stop)
    assert model.generation_config is own


def test_a_text_as_long_as_the_models_limit_still_has_room() -> None:
    session = tiny_session("gpt2")
    words = " ".join(f"w{7 + place % 90}" for place in range(900))
    answer = generate(session.scored, words, {}, session.num_heads, max_tokens=5)
    assert answer.before.tokens == 5 and answer.before.text.startswith(words)
    assert answer.remarks


@pytest.mark.parametrize("name", ["bert", "t5", "embedding"])
def test_other_models_say_why_they_cannot_continue_a_text(name: str) -> None:
    session = minilm() if name == "embedding" else tiny_session(name)
    with pytest.raises(OptionError, match="causal"):
        generate(session.scored, WORDS, {}, session.num_heads)
