"""Load errors: turns exceptions from transformers, the hub and GGUF files into one sentence."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from io import StringIO
from threading import RLock
from typing import Any

import numpy as np
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from transformers.utils import logging

from headwise.errors import HeadwiseError, ModelError
from headwise.hub import why_download_failed
from headwise.models.embedded import WHAT_WORKS

LONGEST_REASON = 240
"""Maximum number of characters to quote from another library's error message."""
PATCHED = RLock()
"""Lock to hold from changing process-wide settings until restoring them."""


@contextmanager
def explain_errors(name: str, *, is_local: bool = False) -> Iterator[None]:
    """Turn any error inside the block, which loads `name`, into a ModelError of one sentence.

    With `is_local`, the files are on disk, so no error is explained as a failed download.
    """
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:  # damaged files can make transformers raise anything
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"{name} comes with its own code, which runs only if you allow it: read it, "
                "then use --trust-remote-code, or LoadOptions(allows_remote_code=True)"
            ) from error
        if not is_local and (reason := why_download_failed(error)):
            raise ModelError(f"{name} cannot be loaded: {reason}; {WHAT_WORKS}") from error
        reason = one_sentence(error)
        if isinstance(error, SafetensorError):
            reason = f"one of its safetensors files is damaged or incomplete: {reason}"
        elif not isinstance(error, OSError | ValueError | KeyError | ImportError | RuntimeError):
            reason = f"transformers could not build it from its config.json: {reason}"
        raise ModelError(f"{name} cannot be loaded: {reason}") from error


def one_sentence(error: Exception) -> str:
    """An error's message on one line, shortened to whole sentences if it is long."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(message.split()) or type(error).__name__
    if len(text) <= LONGEST_REASON:
        return text
    sentences, stop, _ = text[:LONGEST_REASON].rpartition(". ")
    return f"{sentences}." if stop else f"{text[:LONGEST_REASON]}..."


@contextmanager
def parse_gguf_once() -> Iterator[None]:
    """Parse a GGUF file only once inside the block, for config, weights and tokenizer together."""
    if find_spec("gguf") is None:
        yield
        return
    import gguf

    class ArrayReader(gguf.GGUFReader):
        """Reads from a plain array, because slicing a memmap a million times takes 3 s longer."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    with PATCHED:
        originals = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
        for name, parse in {**originals, "GGUFReader": ArrayReader}.items():
            setattr(gguf, name, functools.cache(parse))
        try:
            yield
        finally:
            for name, parse in originals.items():
                setattr(gguf, name, parse)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs and progress bars of transformers and the hub inside the block."""
    with PATCHED:
        level, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        hub_level = hub_logging.get_verbosity()
        hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            with redirect_stderr(StringIO()):  # no setting turns off the GGUF progress bar
                yield
        finally:
            logging.set_verbosity(level)
            hub_logging.set_verbosity(hub_level)
            if had_bars:
                logging.enable_progress_bar()
