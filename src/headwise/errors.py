"""Errors caused by a user's mistake, and warnings that point to the user's own line of code.

    HeadwiseError
    ├── ShapeError      a tensor's shape does not fit (also a ValueError)
    ├── MaskError       a mask has an unusable type or shape (also a ValueError)
    ├── OptionError     an option is unknown, or contradicts another (also a ValueError)
    │   └── OutputError an output cannot be written, or already exists (also a ValueError)
    ├── PathError       the requested path cannot compute this call
    ├── CacheError      a cache is full, or belongs to another layer or batch
    ├── ModelError      a model cannot be found, loaded or watched
    └── MissingPackage  an optional package is not installed

A module may define a subclass of one of these. Each message is one sentence: what is wrong, what
was given, what would work. The command line prints it and exits with status 2. A bug in headwise
itself is an AssertionError, never one of these.
"""

import inspect
import warnings


class HeadwiseError(Exception):
    """Base class of every error caused by invalid input."""


class ShapeError(HeadwiseError, ValueError):
    """A tensor's shape does not match the other tensors or the layer."""


class MaskError(HeadwiseError, ValueError):
    """A mask has an unusable type or shape."""


class OptionError(HeadwiseError, ValueError):
    """An option is unknown, out of range, or contradicts another.

    `option` is the parameter's name in Python if the message opens with it; the command line then
    prints the name of the matching option instead.
    """

    def __init__(self, message: str = "", *, option: str = "") -> None:
        super().__init__(message)
        self.option = option


class PathError(HeadwiseError):
    """The requested path cannot compute this call; headwise does not fall back to another."""


class CacheError(HeadwiseError):
    """A cache is full, or belongs to another layer, batch or window."""


class ModelError(HeadwiseError):
    """A model cannot be found, loaded or watched; the message names it and the reason."""


class OutputError(OptionError):
    """An output cannot be written: it already exists, belongs to another run, or the disk fails."""


class MissingPackage(HeadwiseError):
    """An optional package is not installed; the message contains the command that installs it."""


class HeadwiseWarning(UserWarning):
    """A warning of headwise's own; the command line prints it as one sentence."""


def warn_user(message: str) -> None:
    """Issue a warning that points to the line outside headwise that caused it."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, HeadwiseWarning, stacklevel=level)


OWN = ("headwise", "contextlib", "jaxtyping", "beartype")
"""Packages whose frames may be between the user's line and the code that warns."""
