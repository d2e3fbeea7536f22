"""Modalities: what kinds of input a model reads besides text, by the names of its inputs."""

import inspect
from typing import Any

from headwise.errors import OptionError
from headwise.formats import join_words
from headwise.models.loaded import LoadedModel

OTHER_INPUTS = {
    "pixel_values": "images",
    "pixel_values_videos": "videos",
    "flattened_patches": "images",
    "input_features": "sound",
    "input_values": "sound",
    "audio_mel": "sound",
    "spectrogram": "sound",
    "past_values": "series of numbers",
}
"""Inputs of transformers models that are not text."""
OPTIONS = {"images": "--image FILE", "sound": "--audio FILE"}
"""The option of the command line that reads files of each kind."""


def other_kinds(model: Any) -> list[str]:
    """Kinds of input other than text that the model's forward takes."""
    parameters = inspect.signature(model.forward).parameters
    return list(dict.fromkeys(kind for name, kind in OTHER_INPUTS.items() if name in parameters))


def kind_instead_of_text(model: Any) -> str:
    """The kind of input that the model reads instead of text; "" if it reads text."""
    if "input_ids" in inspect.signature(model.forward).parameters:
        return ""
    main = getattr(model, "main_input_name", "")
    main = main[0] if isinstance(main, list) and main else main
    if main in OTHER_INPUTS:
        return OTHER_INPUTS[main]
    return next(iter(other_kinds(model)), "")


def how_to_read(kinds: list[str]) -> str:
    """Advice on how to pass these kinds of input to a model."""
    flags = [OPTIONS[kind] for kind in kinds if kind in OPTIONS]
    tensors = "tensors by the names of its inputs, as inputs=[...] or batches=[...]"
    return f"give {' and '.join(flags)}, or in Python {tensors}" if flags else f"pass {tensors}"


def check_reads_text(loaded: LoadedModel) -> None:
    """Raise OptionError if a model reads sound, images or numbers instead of text."""
    if kind := kind_instead_of_text(loaded.model):
        raise OptionError(f"{loaded.name} reads {kind}, not text: {how_to_read([kind])}")


def why_text_is_not_enough(model: Any) -> str:
    """The rest of a sentence on a model that failed on text alone, and reads other kinds too."""
    kinds = other_kinds(model)
    return f"it also reads {join_words(kinds)}; {how_to_read(kinds)}" if kinds else ""
