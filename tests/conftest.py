"""Conditions of every test: no network, fixed seeds and width, kernels this machine survives.

headwise is never imported at the top of this file: the shape checks hook into its import first.
"""

import gc
import os
import random
import runpy
import sys
from pathlib import Path

import pytest
from hypothesis import settings

MACHINE = Path(__file__).parents[1] / "src/headwise/attention/processor.py"

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["COLUMNS"] = "80"  # width of the terminal
settings.register_profile(
    "headwise", deadline=None, derandomize="CI" in os.environ, max_examples=20
)
settings.load_profile("headwise")


def keep_amx_from_killing_the_tests() -> None:
    """Try bfloat16 once if it may kill, before torch is loaded; workers inherit the outcome."""
    machine = runpy.run_path(str(MACHINE))  # by its path, so that headwise is not imported
    variable, value = machine["SAFE_SETTING"]
    cpuinfo = Path("/proc/cpuinfo")
    has_amx = cpuinfo.is_file() and "amx" in cpuinfo.read_text("utf-8", errors="replace")
    if has_amx and variable not in os.environ and not machine["low_precision_is_safe"]():
        os.environ[variable] = value


if "PYTEST_XDIST_WORKER" not in os.environ:
    keep_amx_from_killing_the_tests()
else:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers fill the cores, and torch need not


gc.disable()


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from imported modules, which saves a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    gc.enable()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Collect doctests of the package only, not of the modules that tests share."""
    is_helper = collection_path.suffix == ".py" and not collection_path.name.startswith("test_")
    return True if is_helper and collection_path.name != "conftest.py" else None


@pytest.fixture(autouse=True)
def _own_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in an empty directory, so that files of the checkout cannot change it."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep tests away from the user's cache; what they write is shared until the last test."""
    os.environ["HEADWISE_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _same_seeds() -> None:
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)  # only the CPU
