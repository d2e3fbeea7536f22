"""Digests of what a scan reads, to tell whether a stopped scan may be resumed.

In: texts, tensors, a model, its config and tokenizer. Out: SHA-256 as text. The digest of weights
covers a sample and an exact sum of all, and takes as long as reading them once.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

SAMPLED = 1024  # evenly spaced numbers of a tensor whose bits and positions count
SUMMED_AT_ONCE = 1 << 22  # numbers of a tensor that are added up at a time, as int64: 32 MiB
SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per number


def digest_texts(texts: Iterable[str]) -> str:
    """SHA-256 of some texts, in their order."""
    return _digest(text.encode("utf-8", "surrogatepass") for text in texts)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def digest_inputs(inputs: Iterable[Mapping[str, Tensor]]) -> str:
    """SHA-256 of every bit of batches of tensors."""

    def parts() -> Iterator[bytes]:
        for tensors in inputs:
            yield str(len(tensors)).encode()
            for name, tensor in tensors.items():
                yield _header(name, tensor)
                if isinstance(tensor, Tensor):
                    yield _as_integers(tensor).cpu().numpy().tobytes()

    return _digest(parts())


def digest_config(config: Any) -> str:
    """SHA-256 of a config, without the place it came from and the attention implementation."""
    text = config.to_json_string() if hasattr(config, "to_json_string") else repr(config)
    return digest_texts([text])


def digest_tokenizer(tokenizer: Any) -> str:
    """SHA-256 of how a tokenizer splits text, its special tokens and its limit.

    Excludes padding and truncation, which change from call to call.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and hasattr(backend, "to_str"):
        splitting = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    else:
        splitting = getattr(tokenizer, "get_vocab", dict)()
    limit = getattr(tokenizer, "model_max_length", None)
    facts = [type(tokenizer).__name__, tokenizer.all_special_ids, limit, splitting]
    return digest_texts([json.dumps(facts, sort_keys=True, default=str)])


@torch.no_grad()
def digest_weights(model: nn.Module) -> str:
    """SHA-256 of the names, shapes and dtypes of all weights, a sample of each and its sum.

    The sum is of the bits read as integers: one changed weight changes it, and the order in which
    processors add does not. Weights that are not in memory count by name and shape only.
    """

    def parts() -> Iterator[bytes]:
        for name, tensor in model.state_dict().items():
            yield _header(name, tensor)
            if isinstance(tensor, Tensor) and not tensor.is_meta and tensor.numel():
                integers = _as_integers(tensor)
                yield integers[:: -(-len(integers) // SAMPLED)].cpu().numpy().tobytes()
                sums = (int(part.sum()) for part in integers.split(SUMMED_AT_ONCE))
                yield str(sum(sums)).encode()

    return _digest(parts())


def _header(name: str, value: object) -> bytes:
    """Name, shape and dtype of a tensor; name and repr of anything else."""
    facts = f"{list(value.shape)} {value.dtype}" if isinstance(value, Tensor) else repr(value)
    return f"{name} {facts}".encode()


def _as_integers(tensor: Tensor) -> Tensor:
    """All numbers of a tensor in one axis, as integers with the same bits."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.detach().contiguous().flatten().view(SAME_SIZE[plain.element_size()])
