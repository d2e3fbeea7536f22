"""Windows lose no text, batches have similar lengths, and token facts are true."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from headwise.errors import OptionError
from headwise.models.loaded import LoadedModel
from headwise.models.loading import load_model
from headwise.reading.batch import TokenKinds
from headwise.reading.reader import (
    BATCH_TOKENS,
    BATCH_WINDOWS,
    SHORTEST,
    UNLIMITED,
    Reader,
    Window,
    as_documents,
    repeat_windows,
    token_limit,
)
from headwise.reading.tensors import batch_from_tensors
from headwise.scans.role_decisions import REPEAT

START, END = 1, 2
CONFIG = SimpleNamespace(max_position_embeddings=64, model_type="bert")
BOTH = SimpleNamespace(is_encoder_decoder=True)
MASK = torch.tensor([[True, True, True, False], [True] * 4])


class Numbers:
    """A tokenizer of numbers separated by spaces, with a special token on either side."""

    all_special_ids = (0, START, END)
    pad_token_id = 0
    model_max_length = 10**30

    def __call__(self, text: str, add_special_tokens: bool = True, **_: Any) -> dict[str, Any]:
        ids = [3 if part == "a" else int(part) for part in text.split()]
        return {"input_ids": [START, *ids, END] if add_special_tokens else ids}

    def __len__(self) -> int:
        return 97

    def decode(self, ids: list[int]) -> str:
        return "." if ids[0] % 7 == 0 else "a"


def reader(length: int) -> Reader:
    return Reader(Numbers(), CONFIG, length=length)


def texts(lengths: list[int]) -> list[str]:
    return [" ".join(str(10 + place) for place in range(length)) for length in lengths]


sizes = st.lists(st.integers(0, 40), min_size=1, max_size=6)


@given(sizes, st.integers(4, 17), st.integers(4, 60))
def test_whole_texts_are_not_shortened_by_a_limit(
    lengths: list[int], length: int, most: int
) -> None:
    if max(lengths) < SHORTEST:
        return
    documents = texts([min(size, length - 2) for size in lengths])
    windows = reader(length).windows(documents, most, keeps_whole=True)
    every = reader(length).windows(documents)
    assert sum(len(window.ids) for window in windows) <= most
    assert windows == every[: len(windows)] or len(windows) == 1
    used = sum(len(window.ids) for window in every[: len(windows) + 1])
    assert len(windows) == len(every) or used > most


def test_limit_ends_before_the_first_whole_text_beyond_it() -> None:
    def sizes_of(most: int, *, keeps_whole: bool) -> list[int]:
        windows = reader(16).windows(texts([5, 9, 3]), most, keeps_whole=keeps_whole)
        return [len(window.ids) - 2 for window in windows]

    assert sizes_of(17, keeps_whole=True) == [5]
    assert sizes_of(17, keeps_whole=False) == [5, 8]
    assert sizes_of(18, keeps_whole=True) == [5, 9]
    assert sizes_of(6, keeps_whole=True) == [4], "one example is needed"


@given(sizes, st.integers(4, 17))
def test_windows_contain_every_token_but_a_short_tail(lengths: list[int], length: int) -> None:
    if max(lengths) < SHORTEST:
        return
    room, place = length - 2, 0
    windows = reader(length).windows(texts(lengths))
    for size in lengths:
        text = list(range(10, 10 + size))
        tail = size % room
        tokens = text[: size - tail] if tail < SHORTEST else text
        for start in range(0, len(tokens), room):
            assert windows[place].ids == (START, *tokens[start : start + room], END)
            assert windows[place].index == place
            place += 1
    assert place == len(windows)


@given(sizes, st.integers(4, 17), st.integers(1, 100))
def test_max_tokens_is_used_up_but_never_exceeded(
    lengths: list[int], length: int, most: int
) -> None:
    number_reader = reader(length)
    if max(lengths) < SHORTEST or most < 2 + SHORTEST:
        fact = f"max_tokens is {most}: .*4" if most < 4 else "2 tokens.*4"
        with pytest.raises(OptionError, match=fact):
            number_reader.windows(texts(lengths), most)
        return
    read = sum(len(window.ids) for window in number_reader.windows(texts(lengths), most))
    every = sum(len(window.ids) for window in number_reader.windows(texts(lengths)))
    assert read <= most
    if every > most and min(lengths) > 20:  # otherwise the end of a text may leave a few
        assert most - read < 2 + SHORTEST


def test_a_length_without_room_for_text_raises() -> None:
    with pytest.raises(OptionError, match=r"length is 3.* 2 special"):
        reader(3)


@given(
    st.lists(st.integers(2, 700), max_size=60),
    st.sampled_from([BATCH_TOKENS, 1024]),
    st.sampled_from([0.5, 0.875]),
)
def test_batches_group_windows_of_similar_length(
    lengths: list[int], most_tokens: int, share: float
) -> None:
    windows = [Window(place, (3,) * length) for place, length in enumerate(lengths)]
    groups = reader(64).batches(windows, most_tokens, shortest=share)
    assert sorted(window.index for group in groups for window in group) == list(range(len(lengths)))
    for group in groups:
        longest, shortest = len(group[0].ids), len(group[-1].ids)
        assert len(group) <= BATCH_WINDOWS
        assert longest * len(group) <= most_tokens or len(group) == 1
        assert share * longest < shortest


def test_batches_are_padded_on_the_right() -> None:
    windows = [Window(7, (START, 14, 15, END)), Window(3, (START, 9, END))]
    batch = reader(64).batch(windows, "cpu")
    facts = batch.tokens[""]
    assert batch.indices == (7, 3)
    assert batch.num_tokens == 7
    assert batch.inputs["input_ids"].tolist() == [[1, 14, 15, 2], [1, 9, 2, 0]]
    assert batch.inputs["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert facts.is_special.tolist() == [[True, False, False, True], [True, False, True, True]]
    assert facts.is_punctuation.tolist() == [[False, True, False, False], [False] * 4]
    assert facts.spans[1] == slice(0, 3)


def test_tensors_give_each_stack_its_tokens() -> None:
    ids, decoder_ids = torch.randint(3, 9, (2, 5)), torch.randint(3, 9, (2, 3))
    tensors = {"input_ids": ids, "decoder_input_ids": decoder_ids}
    batch = batch_from_tensors(tensors, BOTH)
    assert {name: tuple(facts.ids.shape) for name, facts in batch.tokens.items()} == {
        **dict.fromkeys(("", "encoder", "cross", "text"), (2, 5)),
        "decoder": (2, 3),
    }
    sounds = {"input_features": torch.ones(2, 3, 4), "decoder_input_ids": decoder_ids}
    sound = batch_from_tensors(sounds, BOTH)
    assert list(sound.tokens) == ["decoder"]
    alone = batch_from_tensors({"input_ids": ids}, None)
    assert {tuple(facts.ids.shape) for facts in alone.tokens.values()} == {(2, 5)}


@pytest.mark.parametrize(
    ("config", "stack", "tensors"),
    [
        (None, "", {"inputs_embeds": torch.ones(2, 4, 3), "attention_mask": MASK}),
        (None, "decoder", {"input_ids": torch.ones(2, 4).long(), "attention_mask": MASK}),
        (BOTH, "decoder", {"labels": torch.ones(2, 4).long().where(MASK, -100)}),
        (BOTH, "decoder", {"labels": torch.ones(2, 4).long(), "decoder_attention_mask": MASK}),
        (BOTH, "cross", {"input_features": torch.ones(2, 3, 4), "attention_mask": MASK}),
    ],
)
def test_padding_follows_from_masks_and_labels(
    config: Any, stack: str, tensors: dict[str, Any]
) -> None:
    batch = batch_from_tensors(tensors, config)
    facts = batch.key_tokens(stack, 4)
    assert facts is not None and torch.equal(facts.is_real, MASK)
    assert batch.key_tokens(stack, 5) is None
    assert (facts.ids is None) == (batch.num_tokens == 0) == ("input_ids" not in tensors)


def test_labels_beside_decoder_tokens_do_not_mark_padding() -> None:
    ids = torch.ones(2, 4).long()
    labels = ids.where(MASK, -100)
    batch = batch_from_tensors({"decoder_input_ids": ids, "labels": labels}, BOTH)
    assert batch.tokens["decoder"].is_real.all()


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_position_embeddings": 64}, 64),
        ({"max_position_embeddings": 514, "model_type": "roberta", "pad_token_id": 1}, 512),
        ({"text_config": SimpleNamespace(max_position_embeddings=77)}, 77),
        ({"max_seq_len": 61}, 61),
        ({"max_position_embeddings": -1}, None),
        ({}, None),
    ],
)
def test_the_limit_is_read_from_the_config(config: dict[str, Any], limit: int | None) -> None:
    assert token_limit(Numbers(), SimpleNamespace(**config)) == limit


def test_repeat_windows_have_random_periods() -> None:
    number_reader = reader(64)
    windows = repeat_windows(number_reader, count=40, seed=0, shortest=5, longest=50)
    periods = []
    for window in windows:
        assert (window.ids[0], window.ids[-1]) == (START, END)
        middle = window.ids[1:-1]
        periods.append(len(middle) // 2)
        assert middle[: periods[-1]] == middle[periods[-1] :]
        assert not number_reader.special_ids & set(middle)
        assert len(window.ids) <= 64
    assert len(set(periods)) > 10
    assert min(periods) >= 5
    assert repeat_windows(number_reader, count=40, seed=0, shortest=5, longest=50) == windows


@pytest.mark.parametrize("length", range(4, 64))
def test_no_fixed_distance_covers_enough_rows_for_induction(length: int) -> None:
    windows = repeat_windows(reader(length), count=32, seed=0)
    periods = torch.tensor([len(window.ids) // 2 - 1 for window in windows])
    if length < 2 + 2 * 6:
        assert windows == []
        return
    assert 2 * int(periods.max()) + 2 <= length
    rows = torch.bincount(
        periods, weights=periods.double()
    )  # the rows of each half look equally far back
    assert float(rows.max() / rows.sum()) < REPEAT


def test_special_tokens_are_unknown_without_a_tokenizer() -> None:
    tensors = {"input_ids": torch.randint(3, 9, (2, 5))}
    unknown, known = (
        batch_from_tensors(tensors, CONFIG, kinds) for kinds in (None, TokenKinds(Numbers()))
    )
    unflagged, flagged = (
        batch.tokens[""].keys(0, torch.device("cpu")) for batch in (unknown, known)
    )
    assert unflagged.is_special is None and unflagged.is_punctuation is None
    assert flagged.is_special is not None and flagged.is_punctuation is not None


def test_punctuation_and_special_tokens_of_a_real_tokenizer() -> None:
    loaded = load_model("minilm")
    assert_marks(loaded, "Well, yes ( no ) ...", [",", "(", ")", ".", ".", "."], special=2)


def assert_marks(loaded: LoadedModel, text: str, marks: list[str], *, special: int) -> None:
    reader_of_model = Reader(loaded.tokenizer, loaded.model.config)
    batch = reader_of_model.batch(reader_of_model.windows([text]), "cpu")
    facts = batch.tokens[""]
    punctuation = facts.ids[0][facts.is_punctuation[0]].tolist()
    assert [loaded.tokenizer.decode([token]) for token in punctuation] == marks
    assert int(facts.is_special.sum()) == special


def test_length_counts_if_the_model_has_no_limit() -> None:
    boundless = SimpleNamespace(model_type="novel")
    assert Reader(Numbers(), boundless, length=8192).length == 8192
    assert Reader(Numbers(), boundless).length == UNLIMITED
    assert Reader(Numbers(), CONFIG, length=8192).length == 64


def test_a_file_name_instead_of_a_text_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("Some words.")
    for texts in ("book.txt", ["A text.", "book.txt"]):
        with pytest.raises(OptionError, match=r"'book\.txt'"):
            as_documents(texts)
    fine = ["book.txt is a file", "other.txt", "x" * 5000, "nul\0"]
    assert as_documents(fine) == fine
