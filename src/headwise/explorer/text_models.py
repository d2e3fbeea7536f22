"""Whether the explorer can read texts with a model, and which of the model it does not show.

In: a ScoredModel. Out: nothing, a warning, or an OptionError, each in one sentence.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from headwise.errors import HeadwiseError, OptionError, warn_user
from headwise.formats import join_words
from headwise.models.load_errors import one_sentence
from headwise.models.loaded import LoadedModel
from headwise.models.modalities import OPTIONS, kind_instead_of_text, other_kinds
from headwise.reading.batch import Inputs
from headwise.watching.calls import Call
from headwise.watching.running import forward_batch
from headwise.watching.watch import watch


def _instead(kinds: list[str]) -> str:
    """Advice on what works for a model that reads these kinds of input."""
    flags = " and ".join(OPTIONS[kind] for kind in kinds if kind in OPTIONS)
    commands = f"use headwise scan or headwise trace with {flags}, or " if flags else ""
    return f"{commands}pass tensors to headwise.scan as inputs="


def check_explorable(loaded: LoadedModel) -> None:
    """Raise OptionError for a model of images or sound, or without a tokenizer."""
    if kind := kind_instead_of_text(loaded.model):
        raise OptionError(
            f"{loaded.name} reads {kind}, and the explorer shows only heads that read text: "
            f"{_instead([kind])}"
        )
    if loaded.tokenizer is None:
        raise OptionError(
            f"{loaded.name} has no tokenizer, which the explorer needs to read text: pass one"
        )


def check_same_length(loaded: LoadedModel, inputs: Inputs) -> None:
    """Raise OptionError if layers of one stack attend between different numbers of positions."""
    sizes: dict[str, set[tuple[int, int]]] = {}

    def note(call: Call) -> None:
        sizes.setdefault(call.stack, set()).add((call.num_queries, call.num_keys))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # given when the heads are counted
        with watch(loaded.model, note):
            forward_batch(loaded.model, inputs)
    if any(len(pairs) > 1 for pairs in sizes.values()):
        raise OptionError(
            f"{loaded.name} shortens its text between layers, which the explorer cannot show: use "
            "headwise scan"
        )


@contextmanager
def reading_text(loaded: LoadedModel) -> Iterator[None]:
    """Run the model on text alone inside the block.

    Raises OptionError if it needs other inputs as well; warns if it could read them.
    """
    others = other_kinds(loaded.model)
    kinds = join_words(others)
    try:
        yield
    except HeadwiseError:
        raise
    except Exception as error:
        problem = (
            f"does not read text without {kinds}, which the explorer does not show"
            if kinds
            else f"does not run on a text ({one_sentence(error)}), and the explorer has no more"
        )
        raise OptionError(f"{loaded.name} {problem}: {_instead(others)}") from error
    if kinds:
        warn_user(f"{loaded.name} also reads {kinds}: the explorer shows only heads that read text")
