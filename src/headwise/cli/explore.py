"""`headwise explore`: a model's heads, live in the browser."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from headwise.checks import check_characters
from headwise.cli import options
from headwise.errors import OptionError

if TYPE_CHECKING:
    from headwise.explorer.session import Session

Port = Annotated[int | None, Option(help="Port on this machine (default: 8123, or a free one).")]
Opens = Annotated[bool, Option("--open/--no-open", help="Open a browser.")]
Text = Annotated[str | None, Option(help="Sentence to save with --export, up to 256 tokens.")]
Swap = Annotated[
    str | None, Option(help="The sentence with a word swapped, to save both and their differences.")
]
Unread = Annotated[list[Path] | None, Option(hidden=True)]
"""An option of other commands, so that its refusal can say what reads it."""
Export = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        help="HTML file to write instead: the sentence with all heads, without a server.",
    ),
]


def explore_command(  # noqa: PLR0913 - one parameter per option
    model: options.Model = "minilm",
    port: Port = None,
    opens: Opens = True,
    text: Text = None,
    swap: Swap = None,
    export: Export = None,
    force: options.Force = False,
    image: Unread = None,
    audio: Unread = None,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    revision: options.Revision = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Show a model's heads live in the browser, on this machine only and without a network.

    With --export, write one sentence with all heads to an HTML file that needs neither.
    """
    options.refuse(
        "the page shows heads that read text; headwise scan and headwise trace read pictures and "
        "sound",
        {"--image": image, "--audio": audio},
    )

    def load() -> "Session":
        from headwise.explorer.serve import start_session
        from headwise.models.loading import LoadOptions
        from headwise.views.terminal import quiet_console

        with quiet_console(is_stderr=True).status("loading the model"):
            wanted = LoadOptions(dtype, device, revision, trust_remote_code, keeps_head=True)
            return start_session(model, None, wanted)

    if export is None:
        unused = {"--text": text, "--swap": swap, "--force": force}
        options.refuse("only a file written with --export uses them", unused)
        _serve(load, port, opens=opens)
    elif text is None:
        raise OptionError('--export needs a sentence: give one, as in --text "The cat sat."')
    else:
        options.refuse("--export starts no server", {"--port": port})
        _save(load, (text, swap), export, force=force)


def _serve(load: Callable[[], "Session"], port: int | None, *, opens: bool) -> None:
    """Serve the page at once, print its address when the model is loaded, until interrupted."""
    from headwise.explorer.serve import address, open_socket, serve
    from headwise.views.terminal import quiet_console, say

    with open_socket(port) as sock:

        def start() -> "Session":
            session = load()
            name = session.scored.name
            say(quiet_console(), f"{name} is at {address(sock)}  (Ctrl-C stops it)")
            return session

        serve(start, sock, opens=opens)


def _save(
    load: Callable[[], "Session"], texts: tuple[str, str | None], export: Path, *, force: bool
) -> None:
    """Write a sentence, and the sentence with a word swapped, with all heads as one HTML file."""
    from headwise.explorer.api_requests import PageRequest
    from headwise.explorer.save_page import saved_page
    from headwise.views.terminal import check_new, quiet_console, say, write_new

    check_new(export, ".html", force=force)
    text, swap = texts
    options.check_sentence(text)
    if swap is not None:
        check_characters("--swap", swap)
        if not swap.strip():
            raise OptionError("--swap is empty: give the sentence with a word swapped")
    page = saved_page(load(), PageRequest(*texts))
    write_new(export, page, ".html", force=force)
    say(quiet_console(), f"wrote {export}, {len(page.encode()) / 1000:,.0f} kB")
