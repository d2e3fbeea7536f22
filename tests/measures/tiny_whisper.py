"""A tiny random Whisper, with the feature extractor that it reads sound through."""

from pathlib import Path

import torch
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

MELS, FRAMES, KEYS = 13, 100, 50
ENCODER_HEADS, DECODER_HEADS, VOCABULARY = 5, 3, 59


def tiny_whisper() -> WhisperForConditionalGeneration:
    config = WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=MELS, encoder_layers=1, decoder_layers=2,
        encoder_attention_heads=ENCODER_HEADS, decoder_attention_heads=DECODER_HEADS,
        encoder_ffn_dim=7, decoder_ffn_dim=11, d_model=30, max_source_positions=KEYS,
        max_target_positions=37, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = WhisperForConditionalGeneration(config).eval()
    model.generation_config.suppress_tokens = None
    model.generation_config.begin_suppress_tokens = None
    return model


def save_whisper(folder: Path) -> Path:
    """Save the model and its feature extractor, without a tokenizer."""
    tiny_whisper().save_pretrained(folder)
    extractor = WhisperFeatureExtractor(
        feature_size=MELS, chunk_length=1, hop_length=160, n_fft=400
    )
    extractor.save_pretrained(folder)
    return folder
