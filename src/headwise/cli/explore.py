"""`headwise explore`: heads, live in the browser."""

from typing import Annotated

import typer

from headwise.cli.options import Device, Dtype, Model, RemoteCode, Revision, with_head

Port = Annotated[
    int | None, typer.Option(help="Port on this machine (default: 8123, or a free one).")
]
Opens = Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")]


def explore_command(
    model: Model = "minilm",
    port: Port = None,
    opens: Opens = True,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Revision = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """Show heads live in the browser, on this machine only and without a network."""
    from headwise.explorer.serve import address, open_socket, serve, start_session
    from headwise.views.terminal import quiet_console, say

    with open_socket(port) as sock:
        with quiet_console(is_stderr=True).status("loading the model"):
            options = with_head(dtype, device, revision, trust_remote_code)
            session = start_session(model, None, options)
        say(quiet_console(), f"{session.subject.name} is at {address(sock)}  (Ctrl-C stops it)")
        serve(session, sock, opens=opens)
