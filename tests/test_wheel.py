"""The wheel contains every file of the package, including static ones, and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return zipfile.ZipFile(path)


def test_the_wheel_is_the_package(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    files = {
        str(path.relative_to(source))
        for path in (source / "headwise").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == files
    assert {"headwise/py.typed", "headwise/explorer/static/index.html"} <= names


def test_the_wheel_starts_the_command_and_carries_the_license(wheel: zipfile.ZipFile) -> None:
    about = {Path(name).name: name for name in wheel.namelist() if ".dist-info/" in name}
    assert b"headwise = headwise.__main__:main" in wheel.read(about["entry_points.txt"])
    assert wheel.read(about["LICENSE"]) == (ROOT / "LICENSE").read_bytes()
