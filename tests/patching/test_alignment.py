from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tokenizers import normalizers

from headwise.errors import OptionError
from headwise.models.loaded import LoadedModel
from headwise.patching.alignment import AlignmentError, align_pairs
from headwise.patching.prompts import PromptPair
from headwise.watching.running import forward

from ..pruning.tiny_models import SPECIAL, words_tokenizer
from .tiny_prompts import framed_tokenizer, load_encoder, load_tiny, pieces_tokenizer

CLS, SEP, MASK = (SPECIAL[name] for name in ("[CLS]", "[SEP]", "[MASK]"))


def pair_of(length: int, number: int = 0) -> PromptPair:
    """A pair of `length` words that differ in the first one, with answers."""
    rest = [f"w{20 + place}" for place in range(length - 1)]
    texts = (" ".join([f"w{5 + number + change}", *rest]) for change in (0, 1))
    return PromptPair(*texts, " w7", " w8")


def token_list(prompts: Any) -> list[list[int]]:
    ids: list[list[int]] = prompts["input_ids"].tolist()
    return ids


def test_equal_lengths_share_batches_in_the_order_of_the_list() -> None:
    lengths = (5, 3, 5, 5, 3, 5)
    pairs = [pair_of(length, number) for number, length in enumerate(lengths)]
    batches = align_pairs(load_tiny("gpt2"), pairs, batch_tokens=17)
    assert [batch.indices for batch in batches] == [(1, 4), (0, 2, 3), (5,)]
    assert token_list(batches[0].clean) == [[6, 20, 21], [9, 20, 21]]
    assert token_list(batches[0].corrupted) == [[7, 20, 21], [10, 20, 21]]
    assert batches[0].tokens == (("w6", "w20", "w21"), ("w9", "w20", "w21"))
    for batch in batches:
        assert batch.clean["attention_mask"].all()
        assert batch.corrupted["attention_mask"].all()


def test_a_prompt_longer_than_a_batch_is_a_batch_of_its_own() -> None:
    batches = align_pairs(load_tiny("gpt2"), [pair_of(5), pair_of(5, 3)], batch_tokens=2)
    assert [batch.indices for batch in batches] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("tokenizer", "ids", "position"),
    [(words_tokenizer, [5, 20, 21], 2), (framed_tokenizer, [CLS, 5, 20, 21, SEP], 3)],
)
def test_a_causal_model_answers_after_the_last_word(
    tokenizer: Any, ids: list[int], position: int
) -> None:
    (batch,) = align_pairs(load_tiny("llama", tokenizer()), [pair_of(3)])
    assert token_list(batch.clean) == [ids]
    assert batch.position.tolist() == [position]
    assert batch.answer is not None and batch.answer.tolist() == [7]
    assert batch.instead is not None and batch.instead.tolist() == [8]


@pytest.mark.parametrize("place", ["[MASK]", "___"])
def test_a_masked_model_answers_at_the_mask(place: str) -> None:
    pair = PromptPair(f"w5 w9 {place} w6", f"w8 w9 {place} w6", "w7", " w8")
    (batch,) = align_pairs(load_tiny("bert", framed_tokenizer()), [pair])
    assert token_list(batch.clean) == [[CLS, 5, 9, MASK, 6, SEP]]
    assert batch.position.tolist() == [3]
    assert batch.answer is not None and batch.answer.tolist() == [7]


def test_a_mask_that_takes_the_space_before_it_has_answers_with_that_space() -> None:
    tokenizer = pieces_tokenizer()
    pair = PromptPair("When the key ___ old", "When the keys ___ old", "is", " are")
    (batch,) = align_pairs(load_tiny("roberta", tokenizer), [pair])
    assert batch.answer is not None and batch.instead is not None
    assert tokenizer.decode(batch.answer) == " is"
    assert tokenizer.decode(batch.instead) == " are"


def test_a_mask_without_a_space_before_it_has_answers_without_one() -> None:
    tokenizer = pieces_tokenizer()
    pair = PromptPair("___ the key", "___ the keys", "a", "b")
    (batch,) = align_pairs(load_tiny("roberta", tokenizer), [pair])
    assert batch.answer is not None and tokenizer.decode(batch.answer) == "a"


@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_batches_are_inputs_of_the_model(family: str) -> None:
    place = " ___" if family == "bert" else ""
    pairs = [PromptPair(f"w5 w6{place}", f"w9 w6{place}", "w7", "w8")]
    loaded = load_tiny(family)
    (batch,) = align_pairs(loaded, pairs)
    assert forward(loaded.model, batch.clean).logits.shape[:2] == batch.clean["input_ids"].shape


def test_pairs_without_answers_need_no_prediction_head() -> None:
    (batch,) = align_pairs(load_encoder(framed_tokenizer()), [PromptPair("w5 w6", "w7 w6")])
    assert token_list(batch.corrupted) == [[CLS, 7, 6, SEP]]
    assert batch.position.tolist() == [0]
    assert batch.answer is None and batch.instead is None


def test_a_model_with_a_decoder_reads_the_prompt_in_both_stacks() -> None:
    (batch,) = align_pairs(load_tiny("t5"), [PromptPair("w5 w6", "w7 w6")])
    assert torch.equal(batch.clean["decoder_input_ids"], batch.clean["input_ids"])


def test_answers_are_read_in_their_place() -> None:
    tokenizer = pieces_tokenizer()
    pair = PromptPair("When the", "When to", " key", " keys")
    (batch,) = align_pairs(load_tiny("gpt2", tokenizer), [pair])
    assert batch.answer is not None and tokenizer.decode(batch.answer) == " key"


def test_an_answer_that_would_merge_with_the_prompt_is_read_alone() -> None:
    tokenizer = pieces_tokenizer()
    pair = PromptPair("When the key", "When the bag", "s", " is")
    (batch,) = align_pairs(load_tiny("gpt2", tokenizer), [pair])
    assert batch.answer is not None and tokenizer.decode(batch.answer) == "s"


def test_prompts_of_different_length_name_the_place() -> None:
    good = PromptPair("When Mary", "When John")
    pair = PromptPair("When Mary went", "When Rose went")
    with pytest.raises(AlignmentError) as caught:
        align_pairs(load_tiny("gpt2", pieces_tokenizer()), [good, pair])
    assert str(caught.value) == (
        "pair 2 cannot be aligned: clean has 3 tokens ('When', ' Mary', ' went') and corrupted 7 "
        "('When', ' ', 'R', 'o', 's', 'e', ' went'); they first differ at token 2, ' Mary' against "
        "' ', 'R', 'o', 's', 'e'; use words with the same number of tokens"
    )


def test_a_missing_word_differs_from_nothing_and_long_lists_end_early() -> None:
    words = " ".join(["w5"] * 50)
    with pytest.raises(AlignmentError, match=r"51 tokens .*'w5', \.\.\.\).*'w6' against nothing"):
        align_pairs(load_tiny("gpt2"), [PromptPair(f"w6 {words}", words)])


CAUSAL, MASKED = ("gpt2", words_tokenizer), ("bert", words_tokenizer)
PIECES = ("gpt2", pieces_tokenizer)


@pytest.mark.parametrize(
    ("model", "texts", "facts"),
    [
        (CAUSAL, ("w5 w6", "w5  w6"), "pair 1 .*same tokens, 'w5', 'w6': change a word"),
        (CAUSAL, ("w5", "w6", "w7", " w7"), "answer 'w7' and instead ' w7'.*same token 'w7'"),
        (CAUSAL, ("w5", "w6", "w7", "w8 w9"), "instead 'w8 w9', which is 2 tokens, 'w8', 'w9'"),
        (CAUSAL, ("w5", "w6", "hello", "w8"), "answer 'hello', which the tokenizer does not know"),
        (
            PIECES,
            ("When key", "When bag", "Mary", " he"),
            "'Mary', which is .* write it as ' Mary'",
        ),
        (PIECES, ("When key", "When bag", " z", " he"), "' z', which is .* write it as 'z'"),
        (PIECES, ("When key", "When bag", " Xerxes", " he"), "' Xerxes', .* use another word"),
        (MASKED, ("w5 w6", "w5 ___"), "pair 1 has 0 mask tokens in its clean .*MASK.* or ___"),
        (MASKED, ("w5 ___", "w5 ___ ___"), "clean has 2 tokens .* and corrupted 3"),
        (MASKED, ("w5 ___ w6", "w5 ___ ___"), "2 mask tokens in its corrupted prompt"),
        (MASKED, ("w5 ___", "___ w5"), "token 2 of the clean .* token 1 of the corrupted"),
        (PIECES, ("When" * 41, "to"), "pair 1 has 41 tokens.*tiny-gpt2 reads at most 40"),
    ],
)
def test_a_pair_that_does_not_fit_says_why(
    model: tuple[str, Any], texts: Sequence[str], facts: str
) -> None:
    family, tokenizer = model
    with pytest.raises(AlignmentError, match=facts):
        align_pairs(load_tiny(family, tokenizer()), [PromptPair(*texts)])


def test_a_prompt_that_the_tokenizer_drops_is_refused() -> None:
    tokenizer = words_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Replace("\u200b", "")
    with pytest.raises(AlignmentError, match="pair 1 has no tokens in the prompt"):
        align_pairs(load_tiny("gpt2", tokenizer), [PromptPair("\u200b", "w5")])


@pytest.mark.parametrize(
    ("pairs", "facts"),
    [
        ([], "no pairs of prompts"),
        ([pair_of(3), "w5"], "pair 2 is a str: pass PromptPair"),
        ([pair_of(3), PromptPair("w5", "w6")], "pair 2 has no answer, unlike pair 1"),
        ([PromptPair("w5", "w6"), pair_of(3)], "pair 2 has an answer, unlike pair 1"),
    ],
)
def test_a_bad_list_of_pairs_is_refused(pairs: Any, facts: str) -> None:
    with pytest.raises(OptionError, match=facts):
        align_pairs(load_tiny("gpt2"), pairs)


def test_batch_tokens_is_checked() -> None:
    with pytest.raises(OptionError, match="batch_tokens is 0: it must be at least 1"):
        align_pairs(load_tiny("gpt2"), [pair_of(3)], batch_tokens=0)


def _without_mask() -> Any:
    tokenizer = words_tokenizer()
    tokenizer.mask_token = None
    return tokenizer


@pytest.mark.parametrize(
    ("loaded", "facts"),
    [
        (LoadedModel("bare", load_tiny("gpt2").model, None), "bare has no tokenizer"),
        (load_tiny("vit"), "tiny-vit reads images, not text"),
        (load_tiny("bert", _without_mask()), "tiny-bert predicts masked .* no mask token"),
        (load_encoder(), "tiny-encoder is a BertModel, .*keeps_head=True"),
        (load_tiny("t5"), "tiny-t5 is a T5.*, which has no head .* leave out the answers"),
    ],
)
def test_a_model_that_cannot_answer_says_why(loaded: LoadedModel, facts: str) -> None:
    with pytest.raises(OptionError, match=facts) as caught:
        align_pairs(loaded, [pair_of(3)])
    assert not isinstance(caught.value, AlignmentError)
