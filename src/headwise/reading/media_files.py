"""Media files: sound from WAV files, and pictures through Pillow.

In: a file. Out: samples at the rate that a model wants, or a picture. models/processors.py turns
them into a model's inputs.
"""

import importlib
import wave
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import MissingPackage, OptionError

Samples = NDArray[np.float32]
FULL_SCALE = {1: 2**7, 2: 2**15, 3: 2**23, 4: 2**31}
"""One more than the largest sample, by bytes per sample."""


def read_wav(file: Path, rate: int) -> Samples:
    """The sound in a WAV file as one channel of samples in -1 to 1, `rate` of them per second."""
    try:
        with wave.open(str(file), "rb") as wav:
            width, channels, own_rate = wav.getsampwidth(), wav.getnchannels(), wav.getframerate()
            content = wav.readframes(wav.getnframes())
    except FileNotFoundError as error:
        raise OptionError(f"there is no file {file}: give a WAV file") from error
    except (wave.Error, EOFError, OSError) as error:
        raise OptionError(
            f"{file} is not a WAV file of whole-number samples ({error or 'it is empty'}): convert "
            "it, for example with ffmpeg -i FILE -c:a pcm_s16le OUT.wav"
        ) from error
    samples = _as_numbers(content, width).reshape(-1, channels).mean(1)
    if len(samples) == 0:
        raise OptionError(f"{file} contains no sound: give a WAV file with samples")
    return _resample(samples, own_rate, rate)


def _as_numbers(content: bytes, width: int) -> NDArray[np.float64]:
    """Samples in -1 to 1; those of one byte are unsigned, all others signed, lowest byte first."""
    if width == 1:
        return (np.frombuffer(content, np.uint8).astype(np.float64) - 128) / FULL_SCALE[1]
    parts = np.frombuffer(content, np.uint8).reshape(-1, width)
    wide = np.zeros((len(parts), 4), np.uint8)
    wide[:, 4 - width :] = parts
    return wide.view("<i4")[:, 0] / FULL_SCALE[4]


def _resample(samples: NDArray[np.float64], own_rate: int, rate: int) -> Samples:
    """The same sound at another rate: frequencies that the new rate cannot carry are dropped."""
    if own_rate == rate:
        return samples.astype(np.float32)
    count = max(1, round(len(samples) * rate / own_rate))
    spectrum = np.fft.rfft(samples)[: count // 2 + 1]
    resampled = np.fft.irfft(spectrum, count) * (count / len(samples))
    return resampled.astype(np.float32)


def read_image(file: Path) -> Any:
    """A picture in three colours; raises MissingPackage without Pillow."""
    if find_spec("PIL") is None:
        raise MissingPackage("pictures need Pillow: pip install 'headwise[images]'")
    pillow: Any = importlib.import_module("PIL.Image")
    try:
        with pillow.open(file) as image:
            return image.convert("RGB")
    except FileNotFoundError as error:
        raise OptionError(f"there is no file {file}: give a picture") from error
    except OSError as error:  # Pillow's own errors are subclasses of it
        raise OptionError(
            f"{file} cannot be read as a picture: give a PNG, JPEG or another format of Pillow"
        ) from error
