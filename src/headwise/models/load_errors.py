"""Errors of transformers, the hub and GGUF files, each as one sentence."""

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib.util import find_spec
from io import StringIO
from threading import RLock
from typing import Any

import numpy as np
from huggingface_hub import constants
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import logging as hub_logging
from safetensors import SafetensorError
from transformers.utils import logging

from headwise.errors import HeadwiseError, ModelError
from headwise.formats import join_words
from headwise.models import embedded

LONGEST_REASON = 240
"""Characters of another library's error that fit into one readable sentence."""


PATCHED = RLock()
"""Held by whoever has changed what the whole process shares, until that is as it was."""


WHAT_WORKS = f"give {', '.join(embedded.MODELS)}, a directory, or, with a network, a hub's id"


@contextmanager
def explained(name: str, *, is_here: bool = False) -> Iterator[None]:
    """Turn what transformers raises when a model cannot be had into one sentence.

    A model that `is_here` needs no network.
    """
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:  # files of others can make transformers fail in any way
        if "trust_remote_code" in str(error):
            raise ModelError(
                f"{name} comes with code of its own, which runs only if you allow it: read it, "
                "then give --trust-remote-code, or LoadOptions(allows_remote_code=True)"
            ) from error
        if not is_here and (reason := hub_reason(error)):
            raise ModelError(f"{name} cannot be loaded{reason}; {WHAT_WORKS}") from error
        is_missed = os.environ.get("HF_HUB_OFFLINE") and not is_here
        offline = " (offline: HF_HUB_OFFLINE is set)" if is_missed else ""
        reason = one_sentence(error)
        if isinstance(error, SafetensorError):
            reason = f"a safetensors file of it is broken or was not copied whole: {reason}"
        elif not isinstance(error, OSError | ValueError | KeyError | ImportError | RuntimeError):
            reason = f"transformers could not make it of its config.json: {reason}"
        raise ModelError(f"{name} cannot be loaded{offline}: {reason}") from error


def hub_reason(error: BaseException | None) -> str:
    """Why a hub did not give a model, to be said after what failed; empty for other failures."""
    while error is not None:
        if isinstance(error, LocalEntryNotFoundError):
            missing = ["there is no directory of that name"]
            missing.append("no files of it were downloaded before")
            if constants.is_offline_mode():
                return f" (offline: HF_HUB_OFFLINE is set): {join_words(missing)}"
            return f": {join_words([*missing, f'{constants.ENDPOINT} does not answer'])}"
        if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
            return f": {constants.ENDPOINT} has no such model, or none that you may read"
        if isinstance(error, HFValidationError):
            return ": it is no directory, and no hub's id is written so"
        error = error.__cause__ or error.__context__
    return ""


def one_sentence(error: Exception) -> str:
    """What an error says, on one line and not at length: its first sentences, if it has several."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    text = " ".join(said.split()) or type(error).__name__
    if len(text) <= LONGEST_REASON:
        return text
    whole, stop, _ = text[:LONGEST_REASON].rpartition(". ")
    return f"{whole}." if stop else f"{text[:LONGEST_REASON]}..."


@contextmanager
def parsed_once() -> Iterator[None]:
    """While it lasts a GGUF file is parsed once, not for config, weights and tokenizer each."""
    if find_spec("gguf") is None:
        yield
        return
    import gguf

    class Reader(gguf.GGUFReader):
        """Reads from a plain array: slices of a memmap, a million here, cost three seconds more."""

        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, np.asarray(value) if name == "data" else value)

    with PATCHED:
        kept = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
        for name, parse in {**kept, "GGUFReader": Reader}.items():
            setattr(gguf, name, functools.cache(parse))
        try:
            yield
        finally:
            for name, parse in kept.items():
                setattr(gguf, name, parse)


@contextmanager
def quiet() -> Iterator[None]:
    """transformers and the hub without bars and remarks, which are as they were afterwards."""
    with PATCHED:
        level, had_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        hub_level = hub_logging.get_verbosity()
        hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            with redirect_stderr(StringIO()):  # reading GGUF draws a bar that no setting stops
                yield
        finally:
            logging.set_verbosity(level)
            hub_logging.set_verbosity(hub_level)
            if had_bars:
                logging.enable_progress_bar()
