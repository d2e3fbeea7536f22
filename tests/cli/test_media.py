"""Commands read sound and pictures, or say in one sentence what they need."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import headwise as hw
from headwise.models.loading import LoadOptions, load_model
from headwise.models.processors import write_tokens

from ..measures.tiny_whisper import (
    DECODER_HEADS,
    ENCODER_HEADS,
    FRAMES,
    MELS,
    VOCABULARY,
    save_whisper,
    tiny_whisper,
)
from ..pruning.tiny_models import words_tokenizer
from ..reading.wav_files import write_wav
from ..watching.tiny import tiny
from .running import Runner

NO_TEXT = "reads sound, not text: give --audio FILE"


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a speech model without a tokenizer; tests must not change it."""
    return save_whisper(tmp_path_factory.mktemp("models") / "whisper")


@pytest.fixture
def sounds(tmp_path: Path) -> list[Path]:
    pitches = (300, 400, 500, 600)
    return [write_wav(tmp_path / f"{pitch}.wav", pitch=pitch) for pitch in pitches]


@pytest.mark.parametrize(
    "command",
    [
        ("scan",),
        ("trace",),
        ("importance",),
        ("prune", "--cut", 1, "--out", "smaller"),
    ],
)
@pytest.mark.parametrize("has_tokenizer", [True, False])
def test_a_speech_model_without_sound_is_refused_in_one_sentence(
    command: tuple[object, ...], has_tokenizer: bool, headwise: Runner, tmp_path: Path
) -> None:
    folder = save_whisper(tmp_path / "whisper")
    if has_tokenizer:
        words_tokenizer().save_pretrained(folder)
    assert NO_TEXT in headwise.refused(command[0], folder, *command[1:])
    export = ("--text", "w5 w6", "--export", tmp_path / "page.html")
    assert "trace with --audio FILE" in headwise.refused("explore", folder, *export)


def test_a_model_of_text_and_images_without_images_is_refused_in_one_sentence(
    headwise: Runner, tmp_path: Path
) -> None:
    tiny("clip", dtype=torch.float32)[0].save_pretrained(tmp_path / "clip")
    words_tokenizer().save_pretrained(tmp_path / "clip")
    said = headwise.refused("scan", tmp_path / "clip")
    assert "cannot read text alone" in said and "it also reads images; give --image FILE" in said


def test_a_decoder_that_reads_the_mask_of_its_encoder_writes_tokens() -> None:
    sizes = {f"{stack}_num_attention_heads": 3 for stack in ("encoder", "decoder")}
    sizes |= {f"{stack}_num_hidden_layers": 1 for stack in ("encoder", "decoder")}
    config = transformers.MoonshineConfig(
        vocab_size=VOCABULARY, hidden_size=24, intermediate_size=31, **sizes
    )
    model = transformers.MoonshineForConditionalGeneration(config).eval()
    ids = write_tokens(model, {"input_values": torch.randn(1, 1600)}, most=5)
    assert ids.shape[0] == 1 and 1 < ids.shape[1] <= 5


@pytest.mark.parametrize("option", ["--audio", "--image"])
def test_explore_says_which_commands_read_sound_and_pictures(
    option: str, headwise: Runner, sounds: list[Path]
) -> None:
    said = headwise.refused("explore", "minilm", option, sounds[0])
    assert f"headwise trace read pictures and sound: leave out {option}" in said


def test_scan_reads_sound(headwise: Runner, whisper: Path, sounds: list[Path]) -> None:
    ran = headwise("scan", whisper, "--audio", sounds[0], "--audio", sounds[1])
    assert ran.code == 0, ran.err
    assert f"{ENCODER_HEADS + 4 * DECODER_HEADS} heads" in ran.out
    assert "cross-attention" in ran.out and "on silence" in ran.out


def test_trace_and_importance_read_sound(
    headwise: Runner, whisper: Path, sounds: list[Path]
) -> None:
    traced = headwise("trace", whisper, "--audio", sounds[0], "--stack", "cross", "--layer", 1)
    assert traced.code == 0 and "cross.layer 1" in traced.out
    measured = headwise("importance", whisper, *(x for s in sounds for x in ("--audio", s)))
    assert measured.code == 0 and "cross.L1H" in measured.out
    assert "one --audio" in headwise.refused(
        "trace", whisper, "--audio", sounds[0], "--audio", sounds[1]
    )


def test_prune_reads_sound_and_keeps_the_files_of_the_model(
    headwise: Runner, whisper: Path, sounds: list[Path], tmp_path: Path
) -> None:
    files = [part for sound in sounds for part in ("--audio", sound)]
    out = tmp_path / "smaller"
    ran = headwise("prune", whisper, "--cut", 1, *files, "--out", out, "--no-speed")
    assert ran.code == 0, ran.err
    config = "preprocessor_config.json"
    assert (out / config).read_text() == (whisper / config).read_text()
    assert headwise("scan", out, "--audio", sounds[0]).code == 0
    few = headwise.refused("prune", whisper, "--cut", 1, *files[:4], "--out", tmp_path / "b")
    assert "2 files" in few and "at least 4" in few


def test_a_text_is_read_by_the_decoder(tmp_path: Path, headwise: Runner) -> None:
    folder = save_whisper(tmp_path / "whisper")
    sound = write_wav(tmp_path / "a.wav")
    options = (folder, "--audio", sound, "--stack", "decoder", "--text", "w5 w6 w7")
    assert "has no tokenizer for the text" in headwise.refused("trace", *options)
    words_tokenizer().save_pretrained(folder)
    ran = headwise("trace", *options, "--json")
    assert ran.code == 0 and '"w6"' in ran.out


def test_the_decoder_reads_what_the_model_writes() -> None:
    model: Any = tiny_whisper()
    inputs = {"input_features": torch.randn(1, MELS, FRAMES)}
    ids = write_tokens(model, inputs, 7)
    with torch.no_grad():
        logits = model(**inputs, decoder_input_ids=ids).logits
    assert ids.shape == (1, 7)
    assert torch.equal(ids[0, 1:], logits[0, :-1].argmax(-1))


def test_a_directory_without_a_tokenizer_is_scanned_with_tensors(whisper: Path) -> None:
    features = torch.randn(2, MELS, FRAMES)
    inputs = {
        "input_features": features,
        "decoder_input_ids": torch.randint(3, VOCABULARY, (2, 5)),
    }
    table = hw.scan(whisper, inputs=[inputs], settings=hw.ScanSettings(compares=False))
    assert set(table.stacks) == {"encoder", "decoder", "cross"}
    assert load_model(whisper, LoadOptions()).tokenizer is None


def test_wrong_kinds_of_file_are_refused(headwise: Runner, whisper: Path, llama: Path) -> None:
    assert "reads no images" in headwise.refused("scan", whisper, "--image", "a.png")
    assert "reads no sound" in headwise.refused("scan", llama, "--audio", "a.wav")
    assert "no file a.wav" in headwise.refused("scan", whisper, "--audio", "a.wav")
    probe = headwise.refused("scan", whisper, "--audio", "a.wav", "--probe")
    assert "leave out --probe" in probe


def test_a_model_without_a_processor_names_what_to_save(headwise: Runner, tmp_path: Path) -> None:
    tiny_whisper().save_pretrained(tmp_path / "bare")
    sound = write_wav(tmp_path / "a.wav")
    assert "has no processor for sound" in headwise.refused(
        "scan", tmp_path / "bare", "--audio", sound
    )


def test_scan_reads_pictures(headwise: Runner, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    config = transformers.ViTConfig(
        hidden_size=30, num_hidden_layers=1, num_attention_heads=3, intermediate_size=7,
        image_size=28, patch_size=7,
    )  # fmt: skip
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    size = {"height": 28, "width": 28}
    transformers.ViTImageProcessor(size=size).save_pretrained(tmp_path / "vit")
    pixels = np.random.default_rng(0).integers(0, 255, (41, 53, 3), dtype=np.uint8)
    pillow.fromarray(pixels).save(tmp_path / "a.png")
    ran = headwise("scan", tmp_path / "vit", "--image", tmp_path / "a.png")
    assert ran.code == 0 and "3 heads" in ran.out, ran.err
    text = tmp_path / "t.txt"
    text.write_text("some words")
    refused = headwise.refused(
        "scan", tmp_path / "vit", "--image", tmp_path / "a.png", "--text", text
    )
    assert "reads no text" in refused
