"""Own text: text that a causal model writes itself, one more kind of text to judge its heads on.

In: a causal language model with its tokenizer. Out: windows of tokens, sampled one token after the
other with the model's own probabilities. They follow its training text, in any language. Samples
are kept in the user's cache folder, because writing takes much longer than reading.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList

from headwise.checks import whole_number
from headwise.errors import ModelError, OutputError
from headwise.files import cache_folder, make_folder, write_aside
from headwise.models.fingerprint import (
    digest_config,
    digest_texts,
    digest_tokenizer,
    digest_weights,
)
from headwise.models.loaded import LoadedModel
from headwise.objectives.evaluation import LENGTH
from headwise.progress import Progress, no_progress
from headwise.reading.batch import has_decoder
from headwise.reading.reader import Reader, Window
from headwise.watching.running import in_evaluation

STAGE = "sampling text from the model"
"""Name of the progress stage, which counts tokens."""
TOGETHER = 16
"""Windows to write at once: on one thread, smollm2 gains little from more of them."""
END_OF_TEXT = "<|endoftext|>"
"""The token between training documents in many models that add no token before a text."""
VERSIONS = ("headwise", "torch", "transformers")


def sample_windows(
    loaded: LoadedModel,
    *,
    tokens: int = 2048,
    length: int = LENGTH,
    seed: int = 0,
    uses_cache: bool = True,
    progress: Progress = no_progress,
) -> list[Window]:
    """Windows that the model writes at temperature 1, with at least `tokens` tokens in total.

    Each has `length` tokens, or as many as the model reads if that is fewer, and begins like a new
    document; where a document ends, the model starts another. `Evaluation.of_windows` reads them.
    Raises ModelError if the model cannot write text, for the reason that `why_not_sampled` returns.
    If `uses_cache` is False, the windows of an earlier call are neither read nor replaced.
    """
    tokens = whole_number("tokens", tokens, least=1)
    seed = whole_number("seed", seed, least=0)
    if why := why_not_sampled(loaded):
        raise ModelError(f"{loaded.name} cannot write its own text: {why}")
    reader = Reader(loaded.tokenizer, loaded.model.config, length=whole_number("length", length))
    start, length = _start_of_text(loaded), reader.length
    count = -(-tokens // length)
    file = None
    if uses_cache and (folder := cache_folder()) is not None:
        facts = {"start": start, "count": count, "length": length, "seed": seed}
        file = folder / "own_text" / f"{_digest_source(loaded, facts)}.json"
    rows = None if file is None else _read_rows(file, (count, length), _vocabulary(loaded))
    if rows is None:
        rows = _sample(loaded, torch.tensor([start] * count), length, seed, progress).tolist()
        if file is not None:
            _write_rows(file, rows)
    progress(STAGE, count * length, count * length)
    return [Window(index, tuple(row)) for index, row in enumerate(rows)]


def why_not_sampled(loaded: LoadedModel) -> str:
    """The reason why a model cannot write text of its own; "" if it can."""
    model: Any = loaded.model
    can_generate = getattr(model, "can_generate", None)
    if can_generate is None or not can_generate() or has_decoder(model.config):
        return f"{type(model).__name__} is not a causal language model"
    if loaded.tokenizer is None:
        return "it has no tokenizer"
    if not _start_of_text(loaded):
        return "its tokenizer has no token that begins or ends a text"
    return ""


def _start_of_text(loaded: LoadedModel) -> list[int]:
    """Tokens before a new document; empty if the tokenizer and the generation config have none."""
    model: Any = loaded.model
    tokenizer, written = loaded.tokenizer, model.generation_config
    before, _ = Reader(tokenizer, model.config).around
    named = (
        *(tokenizer.get_vocab().get(END_OF_TEXT), tokenizer.bos_token_id, tokenizer.eos_token_id),
        *(written.bos_token_id, written.eos_token_id),
    )
    ids = (token[0] if isinstance(token, list) and token else token for token in named)
    known = [token for token in ids if isinstance(token, int) and token < _vocabulary(loaded)]
    return list(before) or known[:1]


def _vocabulary(loaded: LoadedModel) -> int:
    """Number of tokens that the model can read."""
    model: Any = loaded.model
    return int(model.config.get_text_config().vocab_size)


def _sample(
    loaded: LoadedModel, starts: Tensor, length: int, seed: int, progress: Progress
) -> Tensor:
    """Continue each row of `starts` to `length` tokens, `TOGETHER` rows at a time."""
    model: Any = loaded.model
    random, done, total = torch.Generator().manual_seed(seed), starts.numel(), len(starts) * length

    def add_noise(ids: Tensor, logits: Tensor) -> Tensor:
        """Add Gumbel noise: the largest logit is then a sample from the softmax of all."""
        nonlocal done
        progress(STAGE, done, total)
        done += len(ids)
        noise = torch.empty(logits.shape).exponential_(generator=random).log()
        return logits - noise.to(logits)

    settings = GenerationConfig(max_length=length, do_sample=False, pad_token_id=int(starts[0, 0]))
    rows: list[Tensor] = []
    with in_evaluation(model), _plain_generation(model):
        for ids in starts.to(loaded.device).split(TOGETHER):
            rows += model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=settings,
                logits_processor=LogitsProcessorList([add_noise]),
            ).cpu()
    return torch.stack(rows)


@contextmanager
def _plain_generation(model: Any) -> Iterator[None]:
    """Replace the model's generation config inside the block: no end, no penalties, no warping."""
    own = model.generation_config
    model.generation_config = GenerationConfig()
    try:
        yield
    finally:
        model.generation_config = own


def _digest_source(loaded: LoadedModel, settings: dict[str, Any]) -> str:
    """Digest of everything that samples depend on."""
    model, tokenizer = loaded.model, loaded.tokenizer
    facts = settings | {name: version(name) for name in VERSIONS}
    digests = (digest_weights(model), digest_config(model.config), digest_tokenizer(tokenizer))
    return digest_texts([json.dumps(facts), *digests])


def _read_rows(file: Path, shape: tuple[int, int], vocabulary: int) -> list[list[int]] | None:
    """The tokens in a cache file; None if it is missing or damaged."""
    try:
        rows = torch.tensor(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError, RuntimeError):
        return None
    is_sound = rows.shape == shape and rows.dtype == torch.int64
    return rows.tolist() if is_sound and 0 <= rows.min() <= rows.max() < vocabulary else None


def _write_rows(file: Path, rows: list[list[int]]) -> None:
    with suppress(OutputError):  # a full disk, or a home that is not writable: sample again later
        make_folder(file.parent)
        write_aside(file, json.dumps(rows))
