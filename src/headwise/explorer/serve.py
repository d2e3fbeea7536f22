"""Run: the explorer on a port of this machine, until Ctrl-C.

In: a model, or its name. Out: a page that answers on the loopback address alone. Nothing large is
imported before the port is known to be free.
"""

import asyncio
import importlib.util
import socket
import threading
import webbrowser
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from headwise.errors import MissingPackage, OptionError

if TYPE_CHECKING:
    from headwise.explorer.session import Session
    from headwise.models.loaded import Source
    from headwise.models.loading import LoadOptions


HOST = "127.0.0.1"


USUAL = 8123
"""The port that is tried first where none is asked for."""


WAITING = 128
"""Connections that wait for the server at most."""


def open_socket(port: int | None) -> socket.socket:
    """A socket on the port asked for; without one, on the usual port or any that is free.

    It listens already: nobody else gets the port, and who comes before the server is ready waits.
    """
    for number in [port] if port is not None else [USUAL, 0]:
        # asyncio sends at once only where the protocol is named; else each answer waits 40 ms.
        found = socket.socket(proto=socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, number))
            found.listen(WAITING)
        except (OSError, OverflowError) as error:
            found.close()
            if port is not None:
                why = getattr(error, "strerror", None) or "there is no such port"
                raise OptionError(
                    f"port {port} cannot be used: {why}; leave it out, and a free one is taken"
                ) from error
            continue
        return found
    raise OptionError("no port of this machine is free")


@dataclass(frozen=True)
class ExplorerServer:
    """A model that is loaded, and the socket that its page is to be served on."""

    session: "Session"
    socket: socket.socket

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self.socket.getsockname()[1]}/"


def explore(
    model: "Source" = "minilm",
    *,
    tokenizer: Any = None,
    port: int | None = None,
    opens: bool = True,
    options: "LoadOptions | None" = None,
) -> None:
    """Serve the explorer: print its address, and answer until interrupted.

    With `opens` a browser is opened on it. In a notebook use `headwise.view`, which does not wait.
    """
    if is_in_notebook():
        raise OptionError(
            "explore answers until it is interrupted, and a notebook would wait for it: use "
            "headwise.view here, or run headwise explore in a terminal"
        )
    with reserved(port) as here:
        ready = prepare(model, here, tokenizer=tokenizer, options=options)
        print(f"{ready.session.subject.name} is at {ready.address}  (Ctrl-C ends)", flush=True)
        with suppress(KeyboardInterrupt):
            serve(ready, opens=opens)


def is_in_notebook() -> bool:
    """Whether an event loop runs already, as it does in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def reserved(port: int | None) -> socket.socket:
    """A socket to serve on, taken before anything large is imported."""
    for package in ("starlette", "uvicorn"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(f"the explorer needs {package}: pip install 'headwise[explorer]'")
    return open_socket(port)


def prepare(
    model: "Source",
    here: socket.socket,
    *,
    tokenizer: Any = None,
    options: "LoadOptions | None" = None,
) -> ExplorerServer:
    """The model loaded, with what it predicts with."""
    from headwise.explorer.session import Session
    from headwise.pruning.setting import make_subject

    return ExplorerServer(Session(make_subject(model, tokenizer, options=options)), here)


def serve(ready: ExplorerServer, *, opens: bool) -> NoReturn:
    """Answer until interrupted, and then raise KeyboardInterrupt."""
    import uvicorn

    from headwise.explorer.server import Explorer

    config = uvicorn.Config(
        Explorer(ready.session).app(),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        server_header=False,
        h11_max_incomplete_event_size=65536,
    )
    if opens:
        threading.Timer(0.5, webbrowser.open, [ready.address]).start()
    try:
        uvicorn.Server(config).run(sockets=[ready.socket])
    finally:
        for job in ready.session.jobs.values():
            job.stop()
    raise KeyboardInterrupt  # uvicorn hands the signal on, and on a busy machine at times does not
