"""Fixtures for tests in a browser: Chromium, and the page of the real model."""

import warnings
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


@pytest.fixture
def quiet_transformers() -> Iterator[None]:
    """No warnings of transformers about models that compute attention by themselves."""
    from transformers import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*attention interface.*")
        yield
    logging.set_verbosity(before)
