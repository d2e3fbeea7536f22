"""BOS tokens: whether a tokenizer adds the token that begins every text a model was trained on.

In: a tokenizer, the model's type and the folder that both were saved in. Out: a remark if the
tokenizer leaves the token out although the model was trained with it. A `bos_token_id` in a config
proves nothing, because GPT-2, Pythia and SmolLM2 have one and begin no text with it. What a GGUF
file says is read in gguf_files.py.
"""

import json
from pathlib import Path
from typing import Any

TRAINED_WITH_BOS = (
    *("cohere", "cohere2", "gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n", "gemma3n_text"),
    *("gemma4", "gemma4_text", "llama4", "llama4_text", "opt", "recurrent_gemma", "vaultgemma"),
)
"""Model types whose published models were all trained on texts that begin with a BOS token."""


def adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer begins a text with its BOS token."""
    return tokenizer.bos_token_id in tokenizer("a")["input_ids"][:1]


def missing_bos(tokenizer: Any, model_type: str, config_file: Path | None) -> str:
    """A remark if the tokenizer leaves out a BOS token that it should add, or "".

    `config_file` is its tokenizer_config.json: transformers 5 does not read `add_bos_token` there
    if a tokenizer.json is beside it.
    """
    bos = tokenizer.bos_token
    if config_file is not None and _says_so(config_file):
        reason = "add_bos_token is true in its tokenizer_config.json"
    elif model_type in TRAINED_WITH_BOS:
        reason = f"{model_type} models are trained with it"
    else:
        return ""
    if bos is None or adds_bos(tokenizer):
        return ""
    remedy = f"begin your texts with {bos}"
    if hasattr(tokenizer, "add_bos_token"):
        remedy = f"set tokenizer.add_bos_token = True and save it there again, or {remedy}"
    return f"does not add {bos} before a text, but {reason}: {remedy}"


def _says_so(config_file: Path) -> bool:
    """Whether a tokenizer's config says that it adds the BOS token."""
    try:
        settings = json.loads(config_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and settings.get("add_bos_token") is True
