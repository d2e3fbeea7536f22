"""The command line: each command has its own file, which parses, calls the library and prints.

`run_command` is the one place where an error becomes a sentence on stderr and exit code 2.
Listing the commands imports their files, so these import the library inside functions only.
"""

import functools
import gc
import io
import sys
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperOption
from typer.exceptions import TyperException

from headwise.cli import doctor, explore, importance, plan, prune, report, scan, sweep, trace
from headwise.errors import HeadwiseError

BAD_INPUT, INTERRUPTED = 2, 130  # 2 is what a wrong option exits with; 130 is 128 + SIGINT

# Imports create many objects that all stay. Looking through them after every 700 new ones, as
# Python does by default, takes a tenth of a short command's time.
OBJECTS_BETWEEN_COLLECTIONS = 10_000


def _show_flags_without_a_type() -> None:
    """Stop typer from writing `<bool>` behind every flag in a help text."""
    option_class: Any = TyperOption
    display = getattr(option_class, "display_type_rich", None)  # new in typer 0.29
    if display is not None:
        option_class.display_type_rich = lambda self, ctx: (
            None if self.is_flag else display(self, ctx)
        )


_show_flags_without_a_type()
app = typer.Typer(
    name="headwise",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("scan")(scan.scan_command)
app.command("trace")(trace.trace_command)
app.command("importance")(importance.importance_command)
app.command("prune")(prune.prune_command)
app.command("report")(report.report_command)
app.add_typer(plan.app, name="plan")
app.command("sweep")(sweep.sweep_command)
app.command("explore")(explore.explore_command)
app.command("doctor")(doctor.doctor_command)


def _print_version(is_given: bool) -> bool:
    if is_given:
        from headwise import __version__

        typer.echo(f"headwise {__version__}")
        raise typer.Exit
    return is_given


@app.callback()
def _headwise(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Multi-head attention you can run, read and reshape."""


@functools.cache
def _root_command() -> Any:
    return typer.main.get_command(app)  # takes typer a while


def _find_command(words: list[str]) -> tuple[str, Any]:
    """Full name of the command that `words` call, and the command itself."""
    command, names = _root_command(), ["headwise"]
    for word in words:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
        names.append(word)
    if isinstance(command, plan.WithDefault):
        command = command.default
    return " ".join(names), command


def parser_message(error: TyperException, command_name: str) -> str:
    """One sentence for an error of typer's parser; empty if the command printed its help."""
    details: Any = error
    path = getattr(getattr(details, "ctx", None), "command_path", command_name)
    options = getattr(details, "possibilities", None)
    if options is not None:
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
"""Phrases of typer and pydantic, and how headwise writes them."""


def option_message(error: HeadwiseError, command: Any, words: list[str]) -> str:
    """The error's message; a parameter's name at its start becomes the option in `words`.

    `num_heads is 0` becomes `--heads is 0` for a command that was called with `--heads`.
    """
    message, name = str(error), getattr(error, "option", "")
    options = {word.partition("=")[0] for word in words}
    for parameter in command.params:
        is_named = name and parameter.name in (name, name.removeprefix("num_"))
        if is_named and message.startswith(name) and options & set(parameter.opts):
            return f"{parameter.opts[0]}{message.removeprefix(name)}"
    return message


def stop_message(words: list[str]) -> str:
    """The sentence after Ctrl-C; empty for the explorer, which has no other way to end."""
    name, _ = _find_command(words)
    if name == "headwise explore":
        return ""
    has_folder = any(word.partition("=")[0] == "--out" for word in words)
    can_resume = name == "headwise sweep" or (name == "headwise scan" and has_folder)
    return "stopped; run the same command again to continue" if can_resume else "stopped"


def run_command() -> tuple[int, str]:
    """Run the command in `sys.argv`; its exit code, and a sentence if it failed or was stopped."""
    words = sys.argv[1:]
    try:
        code = _root_command()(prog_name="headwise", standalone_mode=False) or 0
    except TyperException as err:
        message = parser_message(err, _find_command(words)[0])
        return BAD_INPUT if message else 0, message
    except HeadwiseError as err:
        return BAD_INPUT, option_message(err, _find_command(words)[1], words)
    except OSError as err:  # a full disk, a name that is too long: not a bug in headwise
        file = "" if err.filename is None else f"{err.filename}: "
        return BAD_INPUT, f"{file}{err.strerror or err}"
    except KeyboardInterrupt:
        code = INTERRUPTED
    return code, stop_message(words) if code == INTERRUPTED else ""  # typer may also return 130


def run_cli() -> None:
    """Run the command in `sys.argv`; a user's mistake prints one sentence, not a traceback."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # tests may replace the streams
            stream.reconfigure(errors="replace")  # the terminal may lack some characters
    code, message = run_command()
    if message:
        typer.echo(f"headwise: {message}", err=True)
    sys.exit(code)
