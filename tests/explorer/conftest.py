"""Fixtures for tests in a browser: Chromium, and the page of the real model."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    from .browser import browser

    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """One session per test file, so that scans in one file do not affect another."""
    from headwise.explorer.session import Session

    from .browser import served
    from .sessions import minilm

    with served(Session(minilm().scored)) as address:
        yield address
