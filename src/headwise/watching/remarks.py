"""Remarks: what a user should know and did not ask for, said where the user's own code asked."""

import inspect
import warnings

OWN = ("headwise", "contextlib", "jaxtyping", "beartype")
"""Packages whose frames stand between a user's line and the code that it enters."""


def remark(message: str) -> None:
    """Warn of something, at the line outside of headwise that led to it."""
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
