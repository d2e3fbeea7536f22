"""`headwise explore`: a model's heads, live in the browser."""

from typing import TYPE_CHECKING, Annotated

from typer import Option

from headwise.cli import options

if TYPE_CHECKING:
    from headwise.explorer.session import Session

Port = Annotated[int | None, Option(help="Port on this machine (default: 8123, or a free one).")]
Opens = Annotated[bool, Option("--open/--no-open", help="Open a browser.")]


def explore_command(
    model: options.Model = "minilm",
    port: Port = None,
    opens: Opens = True,
    dtype: options.Dtype = "float32",
    device: options.Device = "cpu",
    revision: options.Revision = None,
    trust_remote_code: options.RemoteCode = False,
) -> None:
    """Show a model's heads live in the browser, on this machine only and without a network."""
    from headwise.explorer.serve import address, open_socket, serve, start_session
    from headwise.views.terminal import quiet_console, say

    with open_socket(port) as sock:
        say(quiet_console(), f"{model} is at {address(sock)}  (Ctrl-C stops it)")

        def start() -> "Session":
            from headwise.models.loading import LoadOptions

            with quiet_console(is_stderr=True).status("loading the model"):
                load = LoadOptions(dtype, device, revision, trust_remote_code, keeps_head=True)
                return start_session(model, None, load)

        serve(start, sock, opens=opens)
