"""Fixtures for the tests of the command line."""

from pathlib import Path

import pytest

from ..models.test_loading import save
from .hostile import write_text
from .running import Runner


@pytest.fixture
def headwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(monkeypatch, capsys)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of words that tiny models know."""
    file = tmp_path / "text.txt"
    write_text(file)
    return file


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tiny model; tests must not change it."""
    return save("llama", tmp_path_factory.mktemp("models") / "llama")
