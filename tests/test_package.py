"""The public names, the errors, and the required versions."""

import importlib.metadata
import inspect
import re
import tomllib
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


def classes_in(annotation: Any) -> Iterator[type]:
    """The classes of headwise that an annotation mentions."""
    if isinstance(annotation, type) and annotation.__module__.startswith("headwise."):
        yield annotation
    for part in typing.get_args(annotation):
        yield from classes_in(part)


def annotations_of(value: Any) -> Iterator[Any]:
    """Annotations of a function, or of a class's public fields, methods and properties."""
    members = vars(value).items() if isinstance(value, type) else ()
    parts = [value, *(member for name, member in members if not name.startswith("_"))]
    if isinstance(value, type):
        parts.append(vars(value).get("__getitem__"))
    for part in parts:
        part = getattr(part, "fget", None) or getattr(part, "func", part)
        part = getattr(part, "__func__", part)
        if isinstance(part, type) or inspect.isfunction(part):
            try:
                hints = typing.get_type_hints(part)
            except NameError:  # imported for type checkers only
                continue
            yield from (hint for name, hint in hints.items() if not name.startswith("_"))


INTERNAL = set(
    "Band Bias Computation CopyIndex HeadFigures Html KeyTokens Outcome Run Scratch Sums TextPart "
    "Tile".split()
)
"""Classes of fields that only headwise itself reads."""


def test_everything_that_public_names_return_or_take_is_public() -> None:
    hidden = {
        f"{name}: {kind.__name__}"
        for name in set(headwise.__all__) - {"nn"}
        for annotation in annotations_of(getattr(headwise, name))
        for kind in classes_in(annotation)
        if kind.__name__ not in {*headwise.__all__, *INTERNAL}
    }
    assert hidden == set()
    assert "KeyValueCache" in {
        kind.__name__
        for annotation in annotations_of(headwise.MultiHeadAttention)
        for kind in classes_in(annotation)
    }


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"headwise.*atend"):
        headwise.atend  # noqa: B018


def test_the_version_is_the_installed_one() -> None:
    assert headwise.__version__ == importlib.metadata.version("headwise")


def test_every_error_is_a_headwise_error_and_drawn_in_the_tree() -> None:
    classes = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    kinds = {name: kind for name, kind in classes.items() if not issubclass(kind, Warning)}
    assert classes.keys() - kinds == {"HeadwiseWarning"}
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
