"""Module paths: dotted names of modules in a model, such as `encoder.layer.3.attention`."""

from collections.abc import Iterator


def join_path(*parts: str) -> str:
    """A module's path from its parts, which may be empty."""
    return ".".join(filter(None, parts))


def path_and_parents(path: str) -> Iterator[str]:
    """A module's path, then the paths of all its parents, up to "" for the model."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield path


def is_inside(path: str, outer: str) -> bool:
    """Whether a module is `outer` or part of it.

    >>> is_inside("layer.1.attention", "layer.1"), is_inside("layer.10", "layer.1")
    (True, False)
    """
    return not outer or f"{path}.".startswith(f"{outer}.")


def path_inside(path: str, outer: str) -> str:
    """The path of a module in `outer`, of which it is a part; "" if it is `outer`.

    >>> path_inside("layer.1.attention", "layer.1")
    'attention'
    """
    return path.removeprefix(outer).removeprefix(".")


def common_ancestor(first: str, second: str) -> str:
    """Path of the smallest module that contains both.

    >>> common_ancestor("layer.1.attention.self", "layer.1.attention.output.dense")
    'layer.1.attention'
    """
    return next(path for path in path_and_parents(first) if is_inside(second, path))
