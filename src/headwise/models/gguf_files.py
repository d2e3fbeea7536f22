"""GGUF files: a model in a single file, with its config and tokenizer as metadata.

In: a path. Out: the tokenizer beside the file or in it, which adds the token that begins every
text if the file says that the model was trained with one: transformers leaves it out.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from headwise.errors import MissingPackage, ModelError
from headwise.models.bos_tokens import adds_bos

SUFFIX = ".gguf"
PACKAGES = ("gguf", "accelerate")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "*.model")
BEGINS = {"llama": True, "gpt2": False}
"""Whether llama.cpp adds a BOS token if the file does not say so, by kind of tokenizer: `llama` is
SentencePiece, `gpt2` is byte-level BPE."""


def check_gguf_packages() -> None:
    """Raise MissingPackage unless everything that reads GGUF files is installed."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackage(
            f"GGUF files need {' and '.join(missing)}: pip install 'headwise[gguf]'"
        )


def check_gguf_file(path: Path) -> None:
    """Raise ModelError unless the file begins like a GGUF file; raise if packages are missing."""
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(
                f"{path} is not a GGUF file: it does not begin with GGUF; pass one, or a directory "
                "with config.json and safetensors files"
            )
    check_gguf_packages()


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder contains a tokenizer's files."""
    return any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES)


def load_gguf_tokenizer(path: Path, common: dict[str, Any]) -> tuple[Any, str]:
    """The tokenizer saved in the GGUF file's folder, or else the one in the file, and a remark.

    The remark says whether it leaves out the BOS token that the model was trained with. The one in
    the file then adds it; one beside the file stays as it was saved.
    """
    is_beside = has_tokenizer(path.parent)
    options = {name: value for name, value in common.items() if name != "gguf_file"}
    options |= {} if is_beside else {"gguf_file": path.name}
    tokenizer: Any = AutoTokenizer.from_pretrained(path.parent, **options)
    bos = tokenizer.bos_token
    if bos is None or adds_bos(tokenizer) or not _begins_with_bos(path):
        return tokenizer, ""
    problem = f"does not add {bos} before a text, but the model was trained with it"
    if is_beside:
        return tokenizer, (
            f"the tokenizer beside {path.name} {problem}: set tokenizer.add_bos_token = True and "
            "save it there again, or move it away to use the one in the file"
        )
    tokenizer.add_bos_token = True
    remedy = "headwise adds it" if adds_bos(tokenizer) else f"begin your texts with {bos}"
    return tokenizer, (
        f"the tokenizer that transformers reads from {path.name} {problem}: {remedy}; outside "
        "headwise, set tokenizer.add_bos_token = True"
    )


def _begins_with_bos(path: Path) -> bool:
    """Whether the model in the file was trained on texts that begin with the BOS token."""
    import gguf

    fields: Any = gguf.GGUFReader(str(path)).fields
    if (field := fields.get("tokenizer.ggml.add_bos_token")) is not None:
        return bool(field.contents())
    kind = fields.get("tokenizer.ggml.model")
    return kind is not None and BEGINS.get(kind.contents(), False)
