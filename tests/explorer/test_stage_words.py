"""Words on the stage: every token belongs to one word, in order, or the reason is given."""

import pytest
from hypothesis import given, strategies as st

from headwise.explorer.api_types import StageWord
from headwise.explorer.stage_words import (
    DROPPED,
    NO_OFFSETS,
    NO_SPACES,
    StageText,
    Tokens,
    read_stage_text,
    split_text,
)
from headwise.objectives.scored_model import ScoredModel
from headwise.reading.reader import Reader

from .sessions import minilm, smollm2

ANIMAL = "The animal didn't cross the street because it was too tired."


def stage_text(scored: ScoredModel, text: str) -> StageText:
    reader = Reader(scored.tokenizer, scored.model.config, length=4096)
    return read_stage_text(text, Tokens.of_window(reader, reader.windows([text])[0]))


def shown(words: tuple[StageWord, ...]) -> str:
    """Words as a line: a space where one stands, <> around special tokens, | before marks."""
    sides = {"word": ("", ""), "mark": ("|", ""), "special": ("<", ">")}
    parts = ("{}" + word.text + "{}" for word in words)
    texts = (part.format(*sides[word.kind]) for part, word in zip(parts, words, strict=True))
    return "".join(" " * word.space + text for word, text in zip(words, texts, strict=True))


def test_words_are_whole_and_special_tokens_keep_their_place() -> None:
    stage = stage_text(minilm().scored, ANIMAL)
    line = "<[CLS]> The animal didn't cross the street because it was too tired|. <[SEP]>"
    assert shown(stage.words) == line
    assert stage.groups[3] == (3, 4, 5) and stage.why_no_words is None
    causal = stage_text(smollm2().scored, ANIMAL)
    assert shown(causal.words) == line[8:-8] and causal.groups[2] == (2, 3)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('He said: "No..."', 'He said|: |"No|...|"'),
        ("well-known, e.g. 3.14—yes", "well-known|, e.g|. 3.14|—yes"),
        ("'tis the dogs' way", "|'tis the dogs|' way"),
        ("naïve 日本語 café 😀", "naïve 日本語 café 😀"),
        ("hide [MASK] here", "hide <[MASK]> here"),
        ("<|im_start|>user", "<|im_start|>user"),
        ("a\u200bb \u200b co\u00adop", "a\u200bb co\u00adop"),
        ("unbelievably  wide\nspaces ", "unbelievably wide spaces"),
    ],
)
def test_words_of_a_word_piece_tokenizer(text: str, line: str) -> None:
    stage = stage_text(minilm().scored, text)
    assert shown(stage.words) == f"<[CLS]> {line} <[SEP]>"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('She said "OK."', 'She said |"OK|."'),  # one token for a full stop and a quotation mark
        ("naïve 日本語 café 😀", "naïve 日本語 café 😀"),
        ("<|im_start|>user said", "<<|im_start|>>user said"),
        ("one  two\nthree ", "one two|↵ three|␣"),
        ("if x:\n    return y", "if x|:|↵ return y"),
    ],
)
def test_words_of_a_byte_level_tokenizer(text: str, line: str) -> None:
    assert shown(stage_text(smollm2().scored, text).words) == line


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60))
def test_every_token_is_in_exactly_one_word(text: str) -> None:
    for scored in (minilm().scored, smollm2().scored):
        if len(scored.tokenizer(text, add_special_tokens=False)["input_ids"]) < 2:
            continue
        stage = stage_text(scored, text)
        if stage.why_no_words is None:
            positions = [position for group in stage.groups for position in group]
            assert positions == list(range(len(stage.pieces)))
            assert len(stage.words) == len(stage.groups)
            assert stage.word_of == tuple(
                word for word, group in enumerate(stage.groups) for _ in group
            )
        else:
            assert stage.words == stage.groups == ()


@given(st.text(max_size=80))
def test_split_words_are_in_order_and_leave_out_only_white_space(text: str) -> None:
    spans = [span for span, _ in split_text(text)]
    ends = [0, *(end for _, end in spans)]
    gaps = [text[end:start] for end, (start, _) in zip(ends, spans, strict=False)]
    assert not "".join([*gaps, text[ends[-1] :]]).strip()
    assert all(text[slice(*span)].strip() for span in spans)


@pytest.mark.parametrize("text", ["東京は日本の首都です。", "今天天气很好", "ประเทศไทย สวยมาก"])
def test_a_text_without_spaces_has_only_pieces(text: str) -> None:
    for scored in (minilm().scored, smollm2().scored):
        stage = stage_text(scored, text)
        assert stage.why_no_words == NO_SPACES and not stage.words
        assert len(stage.pieces) >= 4


class Fake:
    """A tokenizer of words at spaces that drops some of them, with or without offsets."""

    all_special_ids: tuple[int, ...] = ()
    unk_token_id = None

    def __init__(self, *, is_fast: bool = True, drops: str = "") -> None:
        self.is_fast, self.drops = is_fast, drops

    def __call__(self, text: str, **_: object) -> dict[str, list[object]]:
        spans = [span for span, _ in split_text(text) if text[slice(*span)] != self.drops]
        return {"input_ids": list(range(len(spans))), "offset_mapping": spans}

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"t{number}" for number in ids]

    def decode(self, ids: list[int]) -> str:
        return f"t{ids[0]}"


def fake_text(text: str, tokenizer: Fake) -> StageText:
    ids = tuple(tokenizer(text)["input_ids"])
    return read_stage_text(text, Tokens(ids, (0, 0), tokenizer))  # type: ignore[arg-type]


def test_words_that_a_tokenizer_drops_are_named() -> None:
    assert shown(fake_text("a bc d", Fake()).words) == "a bc d"
    stage = fake_text("a bc d", Fake(drops="bc"))
    assert stage.why_no_words == DROPPED.format(word="bc") and len(stage.pieces) == 2


def test_without_offsets_there_are_only_pieces() -> None:
    stage = fake_text("a bc d", Fake(is_fast=False))
    assert stage.why_no_words == NO_OFFSETS and not stage.groups


def test_words_beyond_the_last_token_are_left_out() -> None:
    tokenizer = Fake()
    stage = read_stage_text("a bc d", Tokens((0, 1), (0, 0), tokenizer))
    assert shown(stage.words) == "a bc" and stage.why_no_words is None
