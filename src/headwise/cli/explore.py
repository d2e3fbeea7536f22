"""`headwise explore`: heads, live, in the browser."""

import importlib.util
from typing import Annotated

import typer

from headwise.cli.options import Device, Dtype, Model, RemoteCode, Revision, with_head
from headwise.cli.screen import quiet_console, say
from headwise.errors import MissingPackage

Port = Annotated[int | None, typer.Option(help="Port of this machine (default: a free one).")]
Opens = Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")]


def run(
    model: Model = "minilm",
    port: Port = None,
    opens: Opens = True,
    dtype: Dtype = "float32",
    device: Device = "cpu",
    revision: Revision = None,
    trust_remote_code: RemoteCode = False,
) -> None:
    """See heads, live, in the browser: on this machine alone, without a network."""
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(f"the explorer needs {package}: pip install 'headwise[explorer]'")
    from headwise.explorer.ports import bound

    here = bound(port)
    with quiet_console(is_stderr=True).status("loading the model"):
        from headwise.explorer.run import serve
        from headwise.explorer.session import Session
        from headwise.pruning.setting import make_subject

        options = with_head(dtype, device, revision, trust_remote_code)
        session = Session(make_subject(model, options=options))
    console = quiet_console()

    def ready(address: str) -> None:
        say(console, f"{session.subject.name} is at {address}  (Ctrl-C ends)")

    serve(session, here, say=ready, opens=opens)
