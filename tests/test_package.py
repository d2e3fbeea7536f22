"""The public names, the errors, and the versions that are asked for."""

import ast
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


@pytest.mark.parametrize("name", headwise.__all__)
def test_a_public_name_resolves_to_itself(name: str) -> None:
    value = getattr(headwise, name)
    assert getattr(value, "__name__", name).removeprefix("headwise.") == name
    assert name in dir(headwise)


def test_public_names_are_sorted_and_listed_once() -> None:
    names = [name for group in headwise._NAMES.values() for name in group]
    assert len(names) == len(set(names))
    assert headwise.__all__ == sorted([*names, "__version__", "nn"])


def test_type_checkers_see_the_names_where_python_finds_them() -> None:
    tree = ast.parse(Path(headwise.__file__).read_text("utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    homes = {name: f"headwise.{module}" for name, module in headwise._MODULE_OF.items()}
    assert seen == {**homes, "nn": "headwise"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'headwise' has no attribute 'atend'"):
        headwise.atend  # noqa: B018


def test_the_version_is_the_one_in_pyproject() -> None:
    assert headwise.__version__ == PROJECT["version"]


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
