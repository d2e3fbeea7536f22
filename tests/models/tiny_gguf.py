"""Writes a tiny random Llama with a SentencePiece vocabulary as a GGUF file."""

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

LAYERS, HEADS, D_KEY, WIDTH = 2, 3, 14, 42
LETTERS = "▁etaoinshrdlucmfwypvbgkjqxz.,"
TOKENS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]
KINDS = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *[TokenType.BYTE] * 256]


def write_gguf(path: Path, *, adds_bos: bool | None) -> Path:
    """Write the model; `adds_bos` is what the file says of BOS, None if it says nothing."""
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(67)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(11)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(D_KEY)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([-float(rank) for rank in range(len(TOKENS))])
    writer.add_token_types([*KINDS, *[TokenType.NORMAL] * len(LETTERS)])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if adds_bos is not None:
        writer.add_add_bos_token(adds_bos)
    random = np.random.default_rng(0)
    for name, shape in _shapes().items():
        weights = random.normal(size=shape) * 0.2 + (1 if len(shape) == 1 else 0)
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (len(TOKENS), WIDTH),
        "output": (len(TOKENS), WIDTH),
        "output_norm": (WIDTH,),
    }
    for layer in range(LAYERS):
        block = {"attn_q": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH)}
        block |= dict.fromkeys(("attn_k", "attn_v"), (D_KEY, WIDTH))
        block |= dict.fromkeys(("ffn_gate", "ffn_up"), (11, WIDTH)) | {"ffn_down": (WIDTH, 11)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
        shapes |= {f"blk.{layer}.{name}_norm": (WIDTH,) for name in ("attn", "ffn")}
    return shapes
