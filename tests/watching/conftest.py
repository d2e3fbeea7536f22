"""What every test of watching runs under: transformers keeps its remarks to itself."""

from collections.abc import Iterator

import pytest
import transformers


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)
