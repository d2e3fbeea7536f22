"""The command line: one file a command, each of which parses, calls the library and prints.

`run_command` is the one place where a HeadwiseError becomes a sentence on stderr and exit code 2.
The files of the commands are imported to list them, so they import the library inside `run` only.
"""

import functools
import gc
import io
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperOption
from typer.exceptions import TyperException

from headwise.cli import doctor, explore, importance, plan, prune, report, scan, sweep, trace
from headwise.cli.mistakes import sentence_of, with_option
from headwise.errors import HeadwiseError

BAD_INPUT, INTERRUPTED = 2, 130  # 2 is what a wrong option exits with; 130 is 128 + SIGINT

# Imports make a great many objects that all stay: to look through them every 700 new ones, as
# Python does unasked, takes a tenth of a short command's time.
OBJECTS_BETWEEN_COLLECTIONS = 10_000


def leave_flags_bare() -> None:
    """Have helps show flags as they are given: typer writes `<bool>` behind them, as for values."""
    kind: Any = TyperOption
    shown = getattr(kind, "display_type_rich", None)  # as of typer 0.29
    if shown is not None:
        kind.display_type_rich = lambda self, ctx: None if self.is_flag else shown(self, ctx)


leave_flags_bare()
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


def _print_version(is_asked: bool) -> bool:
    if is_asked:
        from headwise import __version__

        typer.echo(f"headwise {__version__}")
        raise typer.Exit
    return is_asked


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
def whole_command() -> Any:
    """`headwise` with everything below it; typer takes a while to make it."""
    return typer.main.get_command(app)


def command_in(words: list[str]) -> tuple[str, Any]:
    """The full name of the command that these words call, and the command."""
    command = whole_command()
    called = ["headwise"]
    for word in words:
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
        called.append(word)
    if isinstance(command, plan.WithDefault):
        command = command.default
    return " ".join(called), command


def after_a_stop(words: list[str]) -> str:
    """What a stop by Ctrl-C leaves to do; of the explorer, which has no other end, nothing."""
    command, _ = command_in(words)
    if command == "headwise explore":
        return ""
    has_folder = any(word.partition("=")[0] == "--out" for word in words)
    is_kept = command == "headwise sweep" or (command == "headwise scan" and has_folder)
    return "stopped; run the same command again to continue" if is_kept else "stopped"


def run_command() -> tuple[int, str]:
    """Run the command; its exit code, and the sentence that a mistake or a stop gets."""
    try:
        run = whole_command()
        code = run(prog_name="headwise", standalone_mode=False) or 0  # 130 after a Ctrl-C, too
    except TyperException as err:
        sentence = sentence_of(err, command_in(sys.argv[1:])[0])
        return BAD_INPUT if sentence else 0, sentence
    except HeadwiseError as err:
        return BAD_INPUT, with_option(str(err), command_in(sys.argv[1:])[1], sys.argv[1:])
    except OSError as err:  # a disk that is full, a name that is too long: no mistake of headwise
        where = "" if err.filename is None else f"{err.filename}: "
        return BAD_INPUT, f"{where}{err.strerror or err}"
    except KeyboardInterrupt:
        code = INTERRUPTED
    return code, after_a_stop(sys.argv[1:]) if code == INTERRUPTED else ""


def main() -> None:
    """Run the command named in `sys.argv`; a user's mistake is one sentence, not a traceback."""
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # tests may have put something else there
            stream.reconfigure(errors="replace")  # a terminal may not know every character
    code, sentence = run_command()
    if sentence:
        typer.echo(f"headwise: {sentence}", err=True)
    sys.exit(code)
