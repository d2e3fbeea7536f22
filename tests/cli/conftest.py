"""What every test of the command line may ask for."""

from pathlib import Path

import pytest

from ..models.test_loading import save
from .running import Runner


@pytest.fixture
def headwise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(monkeypatch, capsys)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny model, which no test may change."""
    return save("llama", tmp_path_factory.mktemp("models") / "llama")
