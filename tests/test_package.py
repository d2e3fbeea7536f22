"""The public names, the errors, and the versions that are asked for."""

import importlib.metadata
import re
import tomllib
import warnings
from pathlib import Path

import pytest

import headwise
from headwise import errors

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text("utf-8").splitlines()


def plain(package: str) -> str:
    """A package's name as an index compares it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def test_every_public_name_is_found_where_the_stub_says() -> None:
    wrong = []
    for name in headwise.__all__:
        value = getattr(headwise, name)
        if getattr(value, "__name__", name).removeprefix("headwise.") != name:
            wrong.append(name)
    assert wrong == []
    assert "scan" in dir(headwise)
    assert headwise.__all__ == sorted(set(headwise.__all__))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"headwise.*atend"):
        headwise.atend  # noqa: B018


def test_the_version_is_the_installed_one() -> None:
    assert headwise.__version__ == importlib.metadata.version("headwise")


def test_every_error_is_a_headwise_error_and_drawn_in_the_tree() -> None:
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    drawn = re.findall(r"(\w+) .*?(also a ValueError)?\)?$", errors.__doc__ or "", re.MULTILINE)
    tree = {name for name, _ in drawn if name in kinds}
    assert tree | {"HeadwiseError"} == set(kinds)
    assert all(issubclass(kind, errors.HeadwiseError) for kind in kinds.values())
    assert {name for name, note in drawn if note} == {
        name for name, kind in kinds.items() if issubclass(kind, ValueError)
    }


def test_a_warning_of_ours_is_an_error_here() -> None:
    with pytest.raises(UserWarning, match="ours"):
        warnings.warn_explicit(
            "ours", UserWarning, "core.py", 1, module="headwise.attention.attend"
        )


def test_every_dependency_is_pinned_and_no_host_is_named() -> None:
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    asked = {plain(re.split(r"[^\w.-]", line)[0]) for group in groups for line in group}
    pins = [line for line in CONSTRAINTS if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in pins)
    assert asked <= {plain(line.split("==")[0]) for line in pins}
    assert "torch==2.13.0" in pins
