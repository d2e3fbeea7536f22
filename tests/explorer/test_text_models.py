"""Models of images or sound are named with what the explorer does not show of them."""

import warnings

import pytest
from torch import nn
from transformers import FunnelConfig, FunnelModel

from headwise.errors import OptionError
from headwise.explorer.session import Session
from headwise.models.modalities import other_kinds
from headwise.objectives.losses import Divergence
from headwise.objectives.scored_model import ScoredModel

from ..pruning.tiny_models import model_of, words_tokenizer
from ..watching.tiny_configs import VOCABULARY
from .sessions import WORDS, tiny_session


def session_of(model: nn.Module, tokenizer: object) -> Session:
    return Session(ScoredModel("tiny", model, tokenizer, objective=Divergence()))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vit", "tiny reads images, .* only heads that read text: .*trace with --image FILE, or"),
        (
            "whisper",
            "tiny reads sound, .* only heads that read text: .*trace with --audio FILE, or",
        ),
        ("clip", "tiny does not read text without images, .*does not show: .*--image FILE, or"),
    ],
)
def test_models_that_need_more_than_text_raise_one_sentence(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        session_of(model_of(name), words_tokenizer())


def test_a_model_that_shortens_its_text_raises() -> None:
    sizes = {"d_model": 30, "n_head": 5, "d_head": 6, "d_inner": 37, "block_sizes": [1, 1]}
    model = FunnelModel(FunnelConfig(vocab_size=VOCABULARY, num_decoder_layers=1, **sizes))
    with pytest.raises(OptionError, match=r"tiny shortens its text.*headwise scan"):
        session_of(model.eval(), words_tokenizer())


def test_a_model_without_a_tokenizer_raises() -> None:
    with pytest.raises(OptionError, match=r"tiny has no tokenizer.*pass one"):
        session_of(model_of("bert"), None)


class AlsoImages(nn.Module):
    """A BERT that could read images too, and fails if it gets them or too many words."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.bert, self.fails = model_of("bert"), fails
        self.config = self.bert.config

    def forward(self, input_ids=None, attention_mask=None, pixel_values=None):  # type: ignore[no-untyped-def]
        """The BERT's output."""
        if self.fails:
            raise ValueError("pixel_values is None")
        return self.bert(input_ids=input_ids, attention_mask=attention_mask)


def test_a_model_that_also_reads_images_warns_and_shows_its_text_heads() -> None:
    with pytest.warns(UserWarning, match=r"tiny also reads images: .* only heads that read text"):
        session = session_of(AlsoImages(), words_tokenizer())
    assert len(session.num_heads) == len(tiny_session("bert").num_heads)
    with pytest.raises(OptionError, match="without images"):
        session_of(AlsoImages(fails=True), words_tokenizer())


def test_text_models_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = session_of(model_of("llama"), words_tokenizer())
    assert other_kinds(session.scored.model) == []


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_encoders_with_decoders_show_every_stack(name: str) -> None:
    session = tiny_session(name)
    answer = session.text_answer(WORDS)
    assert set(answer.stacks) == {"encoder", "decoder", "cross"}
    words = [word.text for word in answer.stacks["encoder"].pieces.rows]
    for stack, axes in answer.stacks.items():
        columns = axes.pieces.columns
        assert (columns is not None) == (stack == "cross")
        assert [word.text for word in columns or axes.pieces.rows] == words
    assert answer.start.head in answer.heads.names
    assert {head.rpartition("L")[0] for head in answer.heads.names} == {
        "encoder.",
        "decoder.",
        "cross.",
    }
