"""Whether the explorer can read texts with a model, and which of the model it does not show.

In: a ScoredModel. Out: nothing, a warning, or an OptionError, each in one sentence.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwise.errors import HeadwiseError, OptionError, warn_user
from headwise.formats import join_words
from headwise.models.loaded import LoadedModel

OTHER_INPUTS = {
    "pixel_values": "images",
    "pixel_values_videos": "videos",
    "input_features": "sound",
    "input_values": "sound",
}
"""Inputs of transformers models that are not text."""
INSTEAD = "measure its heads with headwise.scan and inputs="


def other_kinds(model: Any) -> list[str]:
    """Kinds of input other than text that the model's forward takes."""
    parameters = inspect.signature(model.forward).parameters
    return list(dict.fromkeys(kind for name, kind in OTHER_INPUTS.items() if name in parameters))


def check_reads_text(loaded: LoadedModel) -> None:
    """Raise OptionError for a model of images or sound, or without a tokenizer."""
    main = OTHER_INPUTS.get(getattr(loaded.model, "main_input_name", ""))
    if main is not None:
        raise OptionError(
            f"{loaded.name} reads {main}, and the explorer shows only heads that read text: "
            f"{INSTEAD}"
        )
    if loaded.tokenizer is None:
        raise OptionError(
            f"{loaded.name} has no tokenizer, which the explorer needs to read text: pass one"
        )


@contextmanager
def reading_text(loaded: LoadedModel) -> Iterator[None]:
    """Run the model on text alone inside the block.

    Raises OptionError if it needs other inputs as well; warns if it could read them.
    """
    kinds = join_words(other_kinds(loaded.model))
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:
        if not kinds:
            raise
        raise OptionError(
            f"{loaded.name} does not read text without {kinds}, which the explorer does not show: "
            f"{INSTEAD}"
        ) from error
    if kinds:
        warn_user(f"{loaded.name} also reads {kinds}: the explorer shows only heads that read text")
