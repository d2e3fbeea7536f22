"""Digests: short names of what a scan reads, which differ where that differs.

In: texts, tensors, sentences, a model, its config and tokenizer. Out: SHA-256 as text. That of the
weights is made of a sample and of an exact sum of all, and takes no longer than to read them once.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from typing import Any

import torch
from torch import Tensor, nn

from headwise.probes.sentences import ProbeSentence

SAMPLED = 1024
"""Numbers of a tensor, evenly spread, whose bits and places count."""
SUMMED_AT_ONCE = 1 << 22
"""Numbers of a tensor that are added up at a time, as int64: 32 MiB."""
SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers by their bytes: what the bits of other numbers are read as."""


def digest(texts: Iterable[str]) -> str:
    """SHA-256 of some texts, one after the other."""
    return digest_of_bytes(text.encode("utf-8", "surrogatepass") for text in texts)


def digest_of_bytes(parts: Iterable[bytes]) -> str:
    """SHA-256 of some parts, each with its length."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def digest_of_sentences(sentences: Iterable[ProbeSentence]) -> str:
    """SHA-256 of words and arcs."""
    return digest(json.dumps(astuple(sentence)) for sentence in sentences)


def digest_of_inputs(inputs: Iterable[Mapping[str, Tensor]]) -> str:
    """SHA-256 of batches of tensors, every bit of them."""

    def parts() -> Iterator[bytes]:
        for tensors in inputs:
            yield str(len(tensors)).encode()
            for name, tensor in tensors.items():
                yield from described(name, tensor)
                if isinstance(tensor, Tensor):
                    yield bits(tensor).cpu().numpy().tobytes()

    return digest_of_bytes(parts())


def digest_of_config(config: Any) -> str:
    """SHA-256 of what a config says; neither of where it came from nor of which attention runs."""
    said = config.to_json_string() if hasattr(config, "to_json_string") else repr(config)
    return digest([said])


def digest_of_tokenizer(tokenizer: Any) -> str:
    """SHA-256 of how a tokenizer splits, what is special to it, and how much it takes.

    How it pads and where it cuts off changes from call to call, and is left out.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None and hasattr(backend, "to_str"):
        said = json.loads(backend.to_str()) | {"truncation": None, "padding": None}
    else:
        said = getattr(tokenizer, "get_vocab", dict)()
    limit = getattr(tokenizer, "model_max_length", None)
    facts = [type(tokenizer).__name__, tokenizer.all_special_ids, limit, said]
    return digest([json.dumps(facts, sort_keys=True, default=str)])


@torch.no_grad()
def digest_of_weights(model: nn.Module) -> str:
    """SHA-256 of the names, shapes and dtypes of all weights, a sample of each and its sum.

    The sum is of the bits read as whole numbers: one changed weight changes it, and the order in
    which processors add does not. Weights that are not in memory count by name and shape alone.
    """

    def parts() -> Iterator[bytes]:
        for name, tensor in model.state_dict().items():
            yield from described(name, tensor)
            if isinstance(tensor, Tensor) and not tensor.is_meta and tensor.numel():
                whole = bits(tensor)
                yield whole[:: -(-len(whole) // SAMPLED)].cpu().numpy().tobytes()
                yield str(sum(int(part.sum()) for part in whole.split(SUMMED_AT_ONCE))).encode()

    return digest_of_bytes(parts())


def described(name: str, value: object) -> Iterator[bytes]:
    """A tensor's name, shape and dtype; of anything else what it looks like."""
    said = f"{list(value.shape)} {value.dtype}" if isinstance(value, Tensor) else repr(value)
    yield f"{name} {said}".encode()


def bits(tensor: Tensor) -> Tensor:
    """All numbers of a tensor in a row, as whole numbers with the same bits."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.detach().contiguous().flatten().view(SAME_SIZE[plain.element_size()])
