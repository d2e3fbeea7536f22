"""The command line: each command's file parses options, calls the library and prints.

Only `run_cli` turns an error into one sentence on stderr and exit code 2. Listing the commands
imports all of these files, so they import the library only inside functions.
"""

import functools
import gc
import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from itertools import dropwhile
from typing import Annotated, Any

import typer
from typer.core import TyperOption
from typer.exceptions import TyperException

from headwise.cli import (
    compare,
    doctor,
    explore,
    importance,
    patch,
    plan,
    prune,
    report,
    scan,
    sweep,
    trace,
)
from headwise.errors import HeadwiseError, HeadwiseWarning

BAD_INPUT, INTERRUPTED = 2, 130  # 2 is usual for bad options; 130 is 128 + SIGINT

# Imports create many objects that are never freed. Collecting garbage after every 700 new objects,
# Python's default, takes a tenth of a short command's time.
OBJECTS_BETWEEN_COLLECTIONS = 10_000


_option_class: Any = TyperOption
if _display_type := getattr(_option_class, "display_type_rich", None):
    # Since version 0.29, typer writes `<bool>` after every flag in a help text.
    _option_class.display_type_rich = lambda self, ctx: (
        None if self.is_flag else _display_type(self, ctx)
    )

app = typer.Typer(
    name="headwise", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False
)
app.command("scan")(scan.scan_command)
app.command("trace")(trace.trace_command)
app.command("importance")(importance.importance_command)
app.command("patch")(patch.patch_command)
app.command("prune")(prune.prune_command)
app.command("compare")(compare.compare_command)
app.command("report")(report.report_command)
app.add_typer(plan.app, name="plan")
app.command("sweep")(sweep.sweep_command)
app.command("explore")(explore.explore_command)
app.command("doctor")(doctor.doctor_command)


def _print_version(is_given: bool) -> None:
    if is_given:
        from headwise import __version__

        typer.echo(f"headwise {__version__}")
        raise typer.Exit


@app.callback()
def _headwise(
    context: typer.Context,
    skip_check: Annotated[
        bool,
        typer.Option(
            "--skip-check",
            help="Do not compare the model's watched outputs with its unwatched ones; give this "
            "before the command.",
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Multi-head attention you can run, read and reshape."""
    if skip_check:
        from headwise.watching.output_check import skip_check as skip

        context.with_resource(skip())


@functools.cache
def _root_command() -> Any:
    return typer.main.get_command(app)  # slow, so cached


def _find_command(words: list[str]) -> tuple[str, Any]:
    """Full name of the command that `words` invoke, and the command itself."""
    command, name = _root_command(), "headwise"
    for word in dropwhile(lambda word: word.startswith("-"), words):
        if word not in getattr(command, "commands", {}):
            break
        command, name = command.commands[word], f"{name} {word}"
    if isinstance(command, plan.WithDefault):
        command = next(iter(command.commands.values()))
    return name, command


def parser_message(error: TyperException, command_name: str) -> str:
    """One sentence for an error from typer's parser; empty if the command printed its help."""
    details: Any = error
    path = getattr(getattr(details, "ctx", None), "command_path", command_name)
    if (options := getattr(details, "possibilities", None)) is not None:
        similar = get_close_matches(details.option_name, options, cutoff=0.7)
        advice = f"did you mean {similar[0]}?" if similar else f"{path} --help lists its options"
        return f"{path} has no option {details.option_name}: {advice}"
    message = details.format_message().strip().removesuffix(".")
    for parser_words, plain_words in PLAIN_WORDS.items():
        message = message.replace(parser_words, plain_words)
    if message.startswith(UNEXPECTED):
        message = f"{path} does not take {message.removeprefix(UNEXPECTED).removesuffix(')')}"
    causes: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    value = str(causes[0].get("input", "")) if causes else ""
    if value and repr(value) not in message:
        message = f"{message.partition(', unable to parse')[0]}, not {value!r}"
    if not message:
        return ""
    message = message[0].lower() + message[1:]
    return message if ": " in message else f"{message}: see {path} --help"


UNEXPECTED = "Got unexpected extra argument(s) ("
PLAIN_WORDS = {
    "No such command": "there is no command",
    ". Did you mean": ": did you mean",
    "Value error, ": "",
    "Input should be a valid integer": "give a whole number",
    "Input should be a valid number": "give a number",
}
"""Phrases in messages from typer and pydantic, and what replaces them."""


def option_message(error: HeadwiseError, command: Any, words: list[str]) -> str:
    """The error's message, with a parameter name at its start replaced by the option in `words`.

    `num_heads is 0` becomes `--heads is 0` if the command was called with `--heads`.
    """
    message, name = str(error), getattr(error, "option", "")
    options = {word.partition("=")[0] for word in words}
    for parameter in command.params:
        is_named = name and parameter.name in (name, name.removeprefix("num_"))
        if is_named and message.startswith(name) and options & set(parameter.opts):
            return f"{parameter.opts[0]}{message.removeprefix(name)}"
    return message


def stop_message(words: list[str]) -> str:
    """Message to print after Ctrl-C; empty for the explorer, which is always stopped that way."""
    name, _ = _find_command(words)
    if name == "headwise explore":
        return ""
    has_folder = any(word.partition("=")[0] == "--out" for word in words)
    can_resume = name == "headwise sweep" or (
        name in ("headwise scan", "headwise patch") and has_folder
    )
    return "stopped; run the same command again to continue" if can_resume else "stopped"


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print headwise's own warnings inside the block as one sentence, without a line of code."""
    show = warnings.showwarning

    def print_sentence(message: Any, category: type[Warning], *place: Any, **options: Any) -> None:
        if issubclass(category, HeadwiseWarning):
            typer.echo(f"headwise: {message}", err=True)
        else:
            show(message, category, *place, **options)

    with warnings.catch_warnings():
        warnings.showwarning = print_sentence
        yield


def run_cli() -> None:
    """Run the command in `sys.argv`; report a user's mistake in a sentence, not a traceback."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # tests may replace the streams
            stream.reconfigure(errors="replace")  # the terminal's encoding may lack some characters
    words, code, message = sys.argv[1:], BAD_INPUT, ""
    try:
        with _plain_warnings():
            code = _root_command()(prog_name="headwise", standalone_mode=False) or 0
    except TyperException as err:
        message = parser_message(err, _find_command(words)[0])
        code = BAD_INPUT if message else 0
    except HeadwiseError as err:
        message = option_message(err, _find_command(words)[1], words)
    except OSError as err:  # such as a full disk or a name that is too long: not a bug in headwise
        message = f"{'' if err.filename is None else f'{err.filename}: '}{err.strerror or err}"
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:  # typer may return this code instead of raising
        message = stop_message(words)
    if message:
        typer.echo(f"headwise: {message}", err=True)
    sys.exit(code)
