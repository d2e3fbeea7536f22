"""Digests of a model and of what it reads, to tell whether earlier results still hold for both.

In: texts, tensors, a model, its config and tokenizer. Out: SHA-256 as text.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

SAMPLED = 1024  # at most this many evenly spaced values per tensor are hashed bit for bit
SUMMED_AT_ONCE = 1 << 22  # values of a tensor to sum at a time; as int64 they take 32 MiB
SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes per value


def digest_texts(texts: Iterable[str]) -> str:
    """SHA-256 of some texts, in order."""
    return _digest(text.encode("utf-8", "surrogatepass") for text in texts)


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def digest_inputs(inputs: Iterable[Mapping[str, Tensor]]) -> str:
    """SHA-256 of every bit in some batches of tensors."""

    def parts() -> Iterator[bytes]:
        for tensors in inputs:
            yield str(len(tensors)).encode()
            for name, tensor in tensors.items():
                yield _header(name, tensor)
                if isinstance(tensor, Tensor):
                    yield _as_integers(tensor).cpu().numpy().tobytes()

    return _digest(parts())


def digest_config(config: Any) -> str:
    """SHA-256 of a config, without the model's location and attention implementation."""
    text = config.to_json_string() if hasattr(config, "to_json_string") else repr(config)
    return digest_texts([text])


def digest_tokenizer(tokenizer: Any) -> str:
    """SHA-256 of a tokenizer without padding and truncation, which change from call to call."""
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
    """SHA-256 of every weight tensor's name, shape, dtype and sum, and of a sample of its values.

    The sum is over the bits read as integers, so it is exact and changes if any weight changes.
    Tensors on the meta device have no values: only their names, shapes and dtypes count.
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
    """All values of a tensor, flattened, as integers with the same bits."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.detach().contiguous().flatten().view(SAME_SIZE[plain.element_size()])
