"""Failures: says in one sentence why a model cannot read some inputs."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from headwise.errors import OWN, HeadwiseError, OptionError
from headwise.models.load_errors import one_sentence
from headwise.models.modalities import why_text_is_not_enough
from headwise.reading.batch import Inputs
from headwise.reading.tensors import check_input_names, non_text_inputs, why_unreadable


@contextmanager
def explain_failures(model: nn.Module, inputs: Inputs) -> Iterator[None]:
    """Turn an error of the model inside the block, which reads `inputs`, into an OptionError.

    Errors of headwise's own code and of memory stay as they are.
    """
    try:
        yield
    except (HeadwiseError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as err:  # models fail in many ways if inputs are missing
        *_, (innermost, _) = traceback.walk_tb(err.__traceback__)
        if innermost.f_globals.get("__name__", "").split(".")[0] in OWN:  # a bug in headwise
            raise
        name = type(model).__name__
        if reason := why_unreadable(getattr(model, "config", None), inputs):
            raise OptionError(f"{name} cannot read this: {reason}") from err
        if isinstance(err, TypeError | ValueError):
            check_input_names(model, inputs, is_strict=True)
        reason = one_sentence(err)
        if non_text_inputs(inputs):
            raise OptionError(
                f"{name} cannot read these inputs ({reason}): pass inputs=[...] with everything "
                "it needs"
            ) from err
        advice = why_text_is_not_enough(model) or "pass inputs=[...] with everything it needs"
        raise OptionError(f"{name} cannot read text alone ({reason}): {advice}") from err
