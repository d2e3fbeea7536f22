"""Fixture of all tests of watching: transformers logs only errors.

Unrouted families would warn that they cannot switch to eager, which they already use.
"""

from collections.abc import Iterator

import pytest
import transformers


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)
