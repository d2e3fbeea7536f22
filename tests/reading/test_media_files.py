"""Sound and pictures are read from files; a file that is neither is named with a remedy."""

import importlib.util
import wave
from pathlib import Path

import numpy as np
import pytest

from headwise.errors import MissingPackage, OptionError
from headwise.reading import media_files
from headwise.reading.media_files import read_image, read_wav

from .wav_files import tone, write_wav


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_samples_of_every_width_are_read(width: int, channels: int, tmp_path: Path) -> None:
    file = write_wav(tmp_path / "a.wav", width=width, channels=channels, rate=16_000)
    got = read_wav(file, 16_000)
    assert got.dtype == np.float32 and len(got) == len(tone(16_000))
    assert np.abs(got - tone(16_000)).max() < 2 / 2 ** (8 * width - 1) + 1e-6


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100])
def test_a_sound_at_another_rate_is_the_same_sound(rate: int, tmp_path: Path) -> None:
    got = read_wav(write_wav(tmp_path / "a.wav", rate=rate), 16_000)
    assert len(got) == len(tone(16_000))
    middle = slice(len(got) // 8, -len(got) // 8)  # a tone that is cut off rings at its ends
    assert np.abs(got - tone(16_000))[middle].max() < 0.02


def test_frequencies_above_the_new_rate_are_dropped(tmp_path: Path) -> None:
    got = read_wav(write_wav(tmp_path / "a.wav", rate=44_100, pitch=9_000), 16_000)
    assert np.abs(got[len(got) // 8 : -len(got) // 8]).max() < 0.02


def test_files_that_are_no_sound_are_named(tmp_path: Path) -> None:
    text, empty = tmp_path / "text.wav", tmp_path / "empty.wav"
    text.write_text("no sound at all, only words")
    with wave.open(str(empty), "wb") as wav:
        wav.setparams((1, 2, 16_000, 0, "NONE", ""))
    with pytest.raises(OptionError, match=r"text\.wav is not a WAV file .*ffmpeg"):
        read_wav(text, 16_000)
    with pytest.raises(OptionError, match=r"empty\.wav contains no sound"):
        read_wav(empty, 16_000)
    with pytest.raises(OptionError, match=r"there is no file .*none\.wav"):
        read_wav(tmp_path / "none.wav", 16_000)


def test_pictures_without_pillow_name_the_install_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(media_files, "find_spec", lambda name: None if name == "PIL" else known)
    with pytest.raises(MissingPackage, match=r"pip install 'headwise\[images\]'"):
        read_image(tmp_path / "a.png")


def test_pictures_are_read_in_three_colours(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(np.full((5, 7), 61, np.uint8)).save(tmp_path / "a.png")
    image = read_image(tmp_path / "a.png")
    assert (image.mode, image.size) == ("RGB", (7, 5))
    (tmp_path / "b.png").write_text("no picture")
    with pytest.raises(OptionError, match=r"b\.png cannot be read as a picture"):
        read_image(tmp_path / "b.png")
    with pytest.raises(OptionError, match=r"there is no file .*c\.png"):
        read_image(tmp_path / "c.png")
