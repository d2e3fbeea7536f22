"""Join JavaScript modules into one script, for pages and widgets that cannot fetch files.

In: files of ES modules that import only each other, in the plain style of this package: every
import and export begins a line. Out: one script in which each module is a function, so that names
of different modules do not collide. Comments on lines of their own are left out.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping

IMPORT = re.compile(
    r"^import\s+(?:\{(?P<names>[^}]*)\}|\*\s+as\s+(?P<all>[\w$]+))\s+from\s+\"(?P<path>[^\"]+)\";$",
    re.MULTILINE,
)
AS = re.compile(r"\s+as\s+")
EXPORT = re.compile(
    r"^export\s+(?=(?:async\s+)?(?:function\*?|class|const)\s+(?P<name>[\w$]+))", re.MULTILINE
)
OTHER = re.compile(r"^(?:import|export)\b.*$", re.MULTILINE)
COMMENTS = re.compile(r"^[ \t]*(?://[^\n]*|/\*(?:[^*]|\*(?!/))*\*/[ \t]*)\n", re.MULTILINE)
INDENTATION = re.compile(r"^[ \t]+", re.MULTILINE)
BLANK = re.compile(r"\n{2,}")
UNFINISHED = re.compile(r"^((?:(?!//)[^\n])*[{(\[,;])\n", re.MULTILINE)
"""A line without a comment that can be joined with the next one."""


def join_modules(files: Mapping[str, bytes], entry: str) -> str:
    """A script that defines one constant per module; `module_name(entry)` has the entry's exports.

    Modules come after the modules that they import.
    """
    order: dict[str, None] = {}
    _visit(files, entry, order, ())
    wanted: dict[str, set[str]] = {path: set() for path in order}
    for path in order:
        for target, names in _imports(path, _source(files, path)):
            wanted[target] |= names
    return "".join(_wrap(path, _source(files, path), wanted[path]) for path in order)


def module_name(path: str) -> str:
    """The constant that a module's exports have in the joined script.

    >>> module_name("stage/map_draw.js")
    '$stage_map_draw'
    """
    return "$" + re.sub(r"\W", "_", path.removesuffix(".js"))


def _visit(
    files: Mapping[str, bytes], path: str, order: dict[str, None], above: tuple[str, ...]
) -> None:
    """Add a module to `order` after all that it imports; `above` are the modules on the way."""
    if path in above:
        raise AssertionError(f"modules import each other: {' -> '.join([*above, path])}")
    if path in order:
        return
    for target, _ in _imports(path, _source(files, path)):
        _visit(files, target, order, (*above, path))
    order[path] = None


def _target(path: str, imported: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), imported))


def _source(files: Mapping[str, bytes], path: str) -> str:
    """A module's text without comments on lines of their own, and without indentation.

    Indentation stays if a string may go over several lines.
    """
    source = BLANK.sub("\n", COMMENTS.sub("", files[path].decode()))
    if _has_long_strings(source):
        return source
    return INDENTATION.sub("", source)


def _has_long_strings(source: str) -> bool:
    """Whether a string may go over several lines."""
    return any(line.count("`") % 2 for line in source.splitlines())


def _imports(path: str, source: str) -> Iterator[tuple[str, set[str]]]:
    """Each module that a module imports, and the names that it uses of it."""
    for found in IMPORT.finditer(source):
        if found["all"]:
            names = set(re.findall(rf"\b{re.escape(found['all'])}\.([\w$]+)", source))
        else:
            names = {AS.split(name.strip())[0] for name in found["names"].split(",")} - {""}
        yield _target(path, found["path"]), names


def _wrap(path: str, source: str, wanted: set[str]) -> str:
    """A module as a constant: the result of a function that returns its exports."""
    exports: list[str] = []

    def bind(found: re.Match[str]) -> str:
        module = module_name(_target(path, found["path"]))
        if found["all"]:
            return f"const {found['all']} = {module};"
        names = AS.sub(": ", found["names"])
        return f"const {{{names}}} = {module};"

    def keep(found: re.Match[str]) -> str:
        exports.append(found["name"])
        return ""

    body = EXPORT.sub(keep, IMPORT.sub(bind, source))
    if other := OTHER.search(body):
        raise AssertionError(f"{path} has a line that cannot be joined: {other[0]}")
    for name in sorted(wanted.difference(exports)):  # one statement may export several constants
        if not re.search(rf",\n[ \t]*{re.escape(name)} = ", body):
            raise AssertionError(f"{path} does not export {name}, which another module imports")
        exports.append(name)
    if not _has_long_strings(body):
        body = UNFINISHED.sub(r"\1", body)
    result = f"return {{ {', '.join(exports)} }};"
    return f"const {module_name(path)} = (() => {{\n{body.strip()}\n{result}\n}})();\n"
