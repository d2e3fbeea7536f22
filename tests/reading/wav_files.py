"""Writes WAV files of a plain tone."""

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SECONDS, PITCH = 0.3, 440.0


def tone(rate: int, pitch: float = PITCH) -> NDArray[np.float64]:
    """A tone at half of the full loudness."""
    return 0.5 * np.sin(2 * np.pi * pitch * np.arange(round(SECONDS * rate)) / rate)


def write_wav(
    file: Path, *, rate: int = 16_000, width: int = 2, channels: int = 1, pitch: float = PITCH
) -> Path:
    """A WAV file of the tone, the same in each channel."""
    samples = np.repeat(tone(rate, pitch), channels)
    whole = np.round(samples * (2 ** (8 * width - 1) - 1)).astype(np.int64)
    if width == 1:
        whole += 128
    content = whole.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width].tobytes()
    with wave.open(str(file), "wb") as wav:
        wav.setparams((channels, width, rate, 0, "NONE", ""))
        wav.writeframes(content)
    return file
