"""What if: its answers equal runs of the model with heads silenced or gated."""

from dataclasses import replace

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from headwise.errors import OptionError
from headwise.explorer import what_if
from headwise.explorer.session import Session
from headwise.explorer.what_if import LONGEST, compare_gated
from headwise.heads import HeadId, parse_heads
from headwise.objectives.losses import MaskedToken
from headwise.objectives.scored_model import open_scored_model
from headwise.pruning.surgery.cut import count_parameters, cut
from headwise.watching.gates import silence

from ..pruning.tiny_models import words_tokenizer
from .sessions import WORDS, minilm, tiny_session

TEXTS = ["The cat sat on the mat.", "A kitten lay on a rug.", "Stocks fell."]


def silenced(heads: str) -> dict[HeadId, float]:
    return dict.fromkeys(parse_heads(heads), 0.0)


@torch.no_grad()
def test_similarities_are_those_of_embeddings_with_heads_silenced() -> None:
    session = minilm()
    scored = session.scored
    answer = compare_gated(scored, TEXTS, silenced("L2H3 L5H0"), session.num_heads)
    inputs = scored.tokenizer(TEXTS, padding=True, return_tensors="pt")
    before = scored.objective.output(scored.model, inputs)
    with silence(scored.model, "L2H3 L5H0"):
        after = scored.objective.output(scored.model, inputs)
    similarity = answer.similarity
    for got, want in ((similarity.before, before), (similarity.after, after)):
        torch.testing.assert_close(torch.tensor(got), want @ want.T, rtol=0, atol=2e-4)
    assert similarity.kept == pytest.approx((before * after).sum(-1).tolist(), abs=2e-4)
    assert similarity.kept[0] < 0.9999 and answer.heads_off == 2


def test_savings_equal_the_parameters_that_a_cut_removes() -> None:
    session = minilm()
    answer = compare_gated(session.scored, TEXTS, silenced("L2H3 L5H0 L5H1"), session.num_heads)
    model = open_scored_model("minilm").model
    before = count_parameters(model)
    cut(model, "L2H3 L5H0 L5H1")
    assert answer.savings.saved == before - count_parameters(model)
    assert answer.savings.parameters == before and answer.savings.cannot_cut is None


def test_savings_say_why_heads_cannot_be_cut() -> None:
    session = tiny_session("llama")
    answer = compare_gated(session.scored, [WORDS], silenced("L0H1"), session.num_heads)
    assert answer.savings.saved == 0 and "share keys and values" in answer.savings.cannot_cut
    whole = compare_gated(session.scored, [WORDS], silenced("L0H0 L0H1 L0H2"), session.num_heads)
    assert whole.savings.saved > 0 and whole.savings.cannot_cut is None


@torch.no_grad()
@pytest.mark.parametrize("factor", [0.0, 0.5, 2.0])
def test_next_tokens_are_those_of_the_gated_model(factor: float) -> None:
    session = tiny_session("llama")
    scored, head = session.scored, HeadId(1, 2)
    answer = compare_gated(scored, [WORDS], {head: factor}, session.num_heads)
    inputs = scored.tokenizer([WORDS], return_tensors="pt")
    ids = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
    before = scored.model(**ids).logits[0, -1].softmax(-1)
    hook = scored.model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(
        lambda _, args: (scaled(args[0], 2, factor),)
    )
    try:
        after = scored.model(**ids).logits[0, -1].softmax(-1)
    finally:
        hook.remove()
    numbers = scored.tokenizer.convert_tokens_to_ids(answer.prediction.names)
    assert answer.prediction.before == pytest.approx(before[numbers].tolist(), abs=1e-5)
    assert answer.prediction.after == pytest.approx(after[numbers].tolist(), abs=1e-5)
    assert answer.prediction.what == "next"
    assert int(before.argmax()) == numbers[0] and answer.prediction.title == "Likeliest next tokens"
    apart = (before * (before.log() - after.log())).sum()
    assert answer.prediction.divergence == pytest.approx(float(apart), abs=1e-4)


def scaled(concat: torch.Tensor, head: int, factor: float) -> torch.Tensor:
    changed = concat.clone().unflatten(-1, (6, -1))
    changed[:, :, head] *= factor
    return changed.flatten(-2)


def test_a_masked_model_predicts_its_mask_or_its_last_word() -> None:
    session = tiny_session("bert")
    masked = compare_gated(session.scored, ["w7 [MASK] w9"], {}, session.num_heads)
    assert (
        masked.prediction.what == "masked"
        and masked.prediction.title == "Likeliest tokens at the first masked token"
        and masked.prediction.divergence == 0
    )
    last = compare_gated(session.scored, ["w7 w8 w9"], {}, session.num_heads)
    assert last.prediction.title == "Likeliest tokens at the last word, 'w9', masked"
    with pytest.raises(OptionError, match=r"\b3\b.* special"):
        compare_gated(session.scored, ["[CLS] [SEP] [CLS]"], {}, session.num_heads)


def test_a_masked_model_without_a_mask_token_raises() -> None:
    session = tiny_session("bert")
    scored = replace(session.scored, objective=MaskedToken(None))
    with pytest.raises(OptionError, match=r"bert\b.* mask"):
        compare_gated(scored, [WORDS], {}, session.num_heads)


def test_the_next_token_follows_the_end_of_a_long_text() -> None:
    session = tiny_session("gpt2")
    words = [f"w{7 + place % 90}" for place in range(1200)]
    answer = compare_gated(session.scored, [" ".join(words)], {}, session.num_heads)
    room = min(LONGEST, session.scored.model.config.max_position_embeddings)
    alone = compare_gated(session.scored, [" ".join(words[-room:])], {}, session.num_heads)
    assert (answer.prediction.names, answer.prediction.before) == (
        alone.prediction.names,
        alone.prediction.before,
    )
    assert answer.remarks == [f"Only the last {room} of 1,200 tokens in text 1 are read."]
    assert answer.prediction.title == "Likeliest next tokens" and alone.remarks == []


def test_sentences_may_be_one_word_and_long_ones_get_a_remark() -> None:
    session = tiny_session("embedding")
    texts = ["w7", "w31 " * 1200]
    answer = compare_gated(session.scored, texts, {}, session.num_heads)
    room = min(LONGEST, session.scored.model.config.max_position_embeddings)
    assert answer.remarks == [f"Only the first {room} of 1,200 tokens in text 2 are read."]
    assert answer.similarity.before[0][0] == pytest.approx(1, abs=1e-4)
    with pytest.raises(OptionError, match=r"text 2.*'  '"):
        compare_gated(session.scored, ["w7", "  "], {}, session.num_heads)


def test_tokens_and_classes_are_called_by_their_names() -> None:
    session = tiny_session("t5")
    answer = compare_gated(session.scored, [WORDS], {}, session.num_heads)
    assert (
        answer.prediction.what == "end"
        and answer.prediction.title == "Likeliest tokens at the end of the text"
    )
    assert all(name.startswith(("w", "[")) for name in answer.prediction.names)
    sizes = {"hidden_size": 20, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=101, num_labels=3, intermediate_size=8, **sizes)
    model = BertForSequenceClassification(config).eval()
    judge = Session(open_scored_model(model, words_tokenizer()))
    answer = compare_gated(judge.scored, [WORDS], {}, judge.num_heads)
    assert answer.prediction.what == "class" and answer.prediction.title == "Likeliest classes"
    assert sorted(answer.prediction.names) == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_unknown_heads_raise() -> None:
    session = minilm()
    refused = {
        "L0H12": r"L0\b.*0\.\.11",
        "L6H0": "L6H0.*L0",
        "encoder.L0H0": "encoder",
    }
    for name, message in refused.items():
        with pytest.raises(OptionError, match=message):
            compare_gated(session.scored, TEXTS, silenced(name), session.num_heads)


def test_the_unchanged_model_runs_once_per_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "MAX_BASELINES", 2)
    session, baselines = tiny_session("llama"), {}
    passes: list[str] = []
    hook = session.scored.model.register_forward_hook(lambda *_: passes.append(text))
    try:
        for text in ("w7", "w7", "w8", "w9", "w8", "w7"):
            compare_gated(session.scored, [text], {}, session.num_heads, baselines)
    finally:
        hook.remove()
    assert passes == ["w7", "w7", "w7", "w8", "w8", "w9", "w9", "w8", "w7", "w7"]
