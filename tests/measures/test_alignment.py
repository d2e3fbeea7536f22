"""Cross-attention has its own measures: where each row's peak is, its order, and silence."""

import pandas as pd
import pytest
import torch
from torch import Tensor

from headwise.measures.alignment import Alignment
from headwise.measures.measure import RowValues, measure_rows
from headwise.measures.sequence_view import RowLayout, SequenceView
from headwise.measures.silence import Silence
from headwise.reading.sound import find_silence
from headwise.scans.scan import scan
from headwise.scans.settings import ScanSettings
from headwise.watching.sequence_weights import SequenceWeights

from .tiny_whisper import FRAMES, KEYS, MELS, tiny_whisper

HEADS = 3


def peaks_at(*rows: list[int], keys: int = 11) -> Tensor:
    """Weights of one head per list, whose largest weight in each row is on the given key."""
    weights = torch.full((len(rows), len(rows[0]), keys), 0.05)
    for head, places in enumerate(rows):
        weights[head, range(len(places)), places] = 1 - 0.05 * (keys - 1)
    return weights


def measured(
    measure: Alignment | Silence, weights: Tensor, is_silent: Tensor | None = None
) -> dict[str, RowValues]:
    sequence = SequenceWeights(
        mixed=weights.new_zeros(*weights.shape[:2], 2), known_weights=weights
    )
    rows = torch.arange(weights.shape[1])
    layout = RowLayout.of(sequence, rows, None, is_cross=True, is_silent=is_silent)
    view = SequenceView(sequence=sequence, layout=layout, output_roots=None)
    return measure_rows(view, [measure])


def test_a_head_that_reads_on_has_more_order_than_one_that_goes_back() -> None:
    columns = measured(Alignment(), peaks_at([0, 2, 2, 5, 10], [10, 5, 2, 2, 0], [1, 0, 1, 0, 1]))
    order = columns["peak_order"]
    assert order.is_defined is not None and order.is_defined.tolist() == [False, *[True] * 4]
    assert order.values[:, 1:].mean(-1).tolist() == [1.0, 0.25, 0.5]
    assert torch.allclose(columns["peak"].values[0], torch.tensor([0, 0.2, 0.2, 0.5, 1]))


def test_silence_is_the_weight_on_silent_keys_beside_equal_weights() -> None:
    weights = torch.rand(HEADS, 5, 11).softmax(-1)
    is_silent = torch.arange(11) >= 7
    columns = measured(Silence(), weights, is_silent)
    assert torch.allclose(columns["silence"].values, weights[..., 7:].sum(-1))
    assert torch.allclose(columns["uniform_silence"].values, torch.tensor(4 / 11))


@pytest.mark.parametrize("share", [0, 11])
def test_a_sound_without_silence_or_without_sound_has_no_such_column(share: int) -> None:
    is_silent = torch.arange(11) < share
    assert measured(Silence(), torch.rand(HEADS, 5, 11).softmax(-1), is_silent) == {}


def test_padding_and_pauses_of_a_sound_are_silence() -> None:
    samples = torch.sin(torch.arange(700.0))[None].repeat(2, 1)
    samples[0, 500:], samples[1, 300:400] = 0.0, 0.01
    silence = find_silence({"input_values": samples}, 7)
    assert silence is not None
    assert silence.int().tolist() == [[0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 0, 0, 0]]
    mels = torch.rand(1, 13, 70) + 3
    mels[..., 50:] = -1.5
    for features in (mels, mels.mT):
        silence = find_silence({"input_features": features}, 35)
        assert silence is not None and silence[0].tolist() == [*[False] * 25, *[True] * 10]
    assert find_silence({"input_ids": torch.ones(2, 7, dtype=torch.long)}, 7) is None


@pytest.fixture(scope="module")
def heads() -> pd.DataFrame:
    """The table of a speech model whose sound ends halfway."""
    sound = torch.rand(2, MELS, FRAMES)
    sound[..., FRAMES // 2 :] = -1.0
    inputs = {"input_features": sound, "decoder_input_ids": torch.randint(3, 59, (2, 7))}
    settings = ScanSettings(compares=False)
    return scan(tiny_whisper(), inputs=[inputs], settings=settings).df


def test_cross_attention_of_a_speech_model_has_its_measures(heads: pd.DataFrame) -> None:
    cross = heads[heads["stack"] == "cross"]
    columns = ["entropy", "confidence", "peak", "peak_order", "silence", "uniform_silence"]
    assert cross[columns].notna().all().all()
    assert cross["uniform_silence"].tolist() == pytest.approx([(KEYS // 2) / KEYS] * len(cross))


def test_only_attention_to_another_sequence_has_peaks(heads: pd.DataFrame) -> None:
    others = heads[heads["stack"] != "cross"]
    assert others[["peak", "peak_order"]].isna().all().all()
    assert heads[heads["stack"] == "decoder"]["silence"].isna().all()
    assert heads[heads["stack"] == "encoder"]["silence"].notna().all()
