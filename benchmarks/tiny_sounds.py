"""Sounds, time series, codes and hidden states for a model of any type.

In: a model's config. Out: keyword arguments for its forward, some of which it may not accept.
"""

from collections.abc import Callable
from typing import Any

import torch
from tiny_sizes import BATCH, LENGTH, SPECIAL, Inputs, part, size_of
from torch import Tensor


def audio(config: Any) -> Any:
    """The config of the part that hears."""
    return part(
        config, "audio_config", "audio_encoder_config", "encoder_config", "speech_config", "encoder"
    )


def frames_of(config: Any) -> tuple[int, int]:
    """Mel bins and frames of a sound."""
    one = audio(config)
    bins = size_of(
        one,
        80,
        "num_mel_bins",
        "input_feat_size",
        "input_feat_per_channel",
        "feature_size",
        "n_mels",
        "mel_dim",
        "input_dim",
        "num_mel_features",
    )
    longest = size_of(one, None, "max_source_positions")
    return bins, (2 * longest if longest and longest <= 64 else 64)


def spectrum(config: Any) -> Inputs:
    """Spectra, bins first, with masks and lengths."""
    bins, frames = frames_of(config)
    return {
        "input_features": torch.randn(BATCH, bins, frames),
        "feature_attention_mask": torch.ones(BATCH, frames, dtype=torch.long),
        "input_features_mask": torch.ones(BATCH, frames, dtype=torch.long),
        "audio_feature_lengths": torch.full((BATCH,), frames),
    }


def spectrum_of_rows(config: Any) -> Inputs:
    """Spectra, frames first, with masks and lengths."""
    made = spectrum(config)
    made["input_features"] = made["input_features"].mT.contiguous()
    made["input_features_mask"] = made["input_features_mask"].bool()
    return made


def only_spectrum(config: Any) -> Inputs:
    """Spectra, bins first."""
    return {"input_features": spectrum(config)["input_features"]}


def only_rows(config: Any) -> Inputs:
    """Spectra, frames first."""
    return {"input_features": spectrum_of_rows(config)["input_features"]}


def stacked_rows(width: int) -> Callable[[Any], Inputs]:
    """A maker of stacked frames of this width."""

    def make(config: Any) -> Inputs:
        mask = torch.ones(BATCH, 48, dtype=torch.bool)
        return {"input_features": torch.randn(BATCH, 48, width), "input_features_mask": mask}

    return make


def joined_spectra(config: Any) -> Inputs:
    """Sounds one after the other, and their lengths (Qwen-Omni's audio encoders)."""
    bins, frames = frames_of(config)
    lengths = torch.full((BATCH,), frames)
    return {
        "input_features": torch.randn(bins, BATCH * frames),
        "feature_lens": lengths,
        "aftercnn_lens": (lengths - 1) // 2 + 1,
    }


def hidden_rows(config: Any) -> Inputs:
    """Frames as wide as the hidden states."""
    return {"input_features": torch.randn(BATCH, 32, size_of(config, 64, "hidden_size"))}


def lone_features(config: Any) -> Inputs:
    """Spectra with a channel axis."""
    bins, _ = frames_of(config)
    return {
        "input_features": torch.randn(BATCH, 1, 64, bins),
        "is_longer": torch.zeros(BATCH, 1, dtype=torch.bool),
    }


def clap_features(config: Any) -> Inputs:
    """Spectra of four channels (CLAP)."""
    bins, _ = frames_of(config)
    return {
        "input_features": torch.randn(BATCH, 4, 1001, bins),
        "is_longer": torch.ones(BATCH, 1, dtype=torch.bool),
    }


def sound(config: Any) -> Inputs:
    """Samples."""
    return {"input_values": torch.randn(BATCH, 3200)}


def sound_channel(config: Any) -> Inputs:
    """Samples with a channel axis."""
    channels = size_of(config, 1, "audio_channels")
    return {
        "input_values": torch.randn(BATCH, channels, 3200),
        "audio_values": torch.randn(BATCH, 1, 3200),
    }


def sound_rows(config: Any) -> Inputs:
    """Spectra as values."""
    bins = size_of(config, 80, "num_mel_bins")
    return {"input_values": torch.randn(BATCH, size_of(config, 64, "max_length"), bins)}


def sound_ids(config: Any) -> Inputs:
    """Text, and the spectra to be spoken."""
    return {
        "input_ids": torch.randint(5, 30, (BATCH, LENGTH)),
        "input_values": torch.randn(BATCH, 24, 80),
    }


def codes(config: Any) -> Inputs:
    """Codes of all codebooks at every position."""
    count = size_of(
        config, 4, "num_codebooks", "num_quantizers", "n_codebooks", "in_channels", "num_channels"
    )
    return {"input_ids": torch.randint(5, 30, (BATCH, LENGTH, count))}


def rows_of_codes(config: Any) -> Inputs:
    """Codes with the codebooks in the batch (MusicGen)."""
    count = size_of(part(config, "decoder"), 4, "num_codebooks")
    ids = torch.randint(5, 30, (BATCH * count, LENGTH))
    return {"decoder_input_ids": ids} if hasattr(config, "decoder") else {"input_ids": ids}


def outer_states(config: Any) -> Inputs:
    """Hidden states of another model, as a decoder without an encoder reads them."""
    size = size_of(config, 64, "encoder_hidden_size", "cross_attention_hidden_size", "hidden_size")
    return {"encoder_hidden_states": torch.randn(BATCH, LENGTH + 3, size)}


def series(config: Any) -> Inputs:
    """Past and future values of time series with their features."""
    length = size_of(config, 32, "context_length")
    lags = max(size_of(config, [0], "lags_sequence") or [0])
    ahead = size_of(config, 8, "prediction_length") or 8
    features = size_of(config, 0, "num_time_features") + size_of(
        config, 0, "num_dynamic_real_features"
    )
    targets = size_of(config, 1, "input_size")
    shape = (BATCH, length + lags) if targets == 1 else (BATCH, length + lags, targets)
    ahead_shape = (BATCH, ahead) if targets == 1 else (BATCH, ahead, targets)
    return {
        "past_values": torch.randn(shape),
        "past_time_features": torch.randn(BATCH, length + lags, features),
        "past_observed_mask": torch.ones(shape),
        "static_categorical_features": torch.zeros(
            BATCH, max(1, size_of(config, 1, "num_static_categorical_features")), dtype=torch.long
        ),
        "static_real_features": torch.randn(BATCH, size_of(config, 0, "num_static_real_features")),
        "future_values": torch.randn(ahead_shape),
        "future_time_features": torch.randn(BATCH, ahead, features),
    }


def patched_series(config: Any) -> Inputs:
    """Time series with channels."""
    length = size_of(config, 32, "context_length")
    return {"past_values": torch.randn(BATCH, length, size_of(config, 1, "num_input_channels"))}


def plain_series(config: Any) -> Inputs:
    """Time series."""
    return {"past_values": torch.randn(BATCH, 64)}


def listed_series(config: Any) -> Inputs:
    """Time series in a list (TimesFM)."""
    return {"past_values": [torch.randn(64) for _ in range(BATCH)], "freq": [0] * BATCH}


def ids_only(config: Any) -> Inputs:
    """Token ids."""
    return {"input_ids": torch.randint(SPECIAL, 90, (BATCH, LENGTH))}


def hidden(config: Any) -> Tensor:
    """Hidden states."""
    return torch.randn(BATCH, LENGTH, size_of(config, 64, "hidden_size", "d_model"))
