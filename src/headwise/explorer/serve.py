"""Serve the explorer on a port of this machine, until Ctrl-C.

In: a model, or its name. Out: a page at the loopback address. Nothing large is imported before the
port is known to be free.
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
DEFAULT_PORT = 8123
BACKLOG = 128
"""Largest number of connections that wait for the server."""


def open_socket(port: int | None) -> socket.socket:
    """A listening socket on `port`; without one, on the default port or any that is free.

    It listens at once: nobody else gets the port, and early browsers wait until it is ready.
    """
    for package in ("starlette", "uvicorn", "msgspec"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(f"the explorer needs {package}: pip install 'headwise[explorer]'")
    for number in [port] if port is not None else [DEFAULT_PORT, 0]:
        # asyncio sends at once only if the protocol is named; otherwise each answer waits 40 ms.
        sock = socket.socket(proto=socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, number))
            sock.listen(BACKLOG)
        except (OSError, OverflowError) as error:
            sock.close()
            if port is not None:
                reason = getattr(error, "strerror", None) or "ports are 0 to 65535"
                raise OptionError(
                    f"cannot use port {port}: {reason}; omit the port to get a free one"
                ) from error
            continue
        return sock
    raise OptionError("no port of this machine is free: close a program that uses one")


@dataclass(frozen=True)
class ExplorerServer:
    """A loaded model, and the socket that its page is served on."""

    session: "Session"
    socket: socket.socket

    @property
    def address(self) -> str:
        """URL of the page."""
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

    With `opens`, open a browser. In a notebook use `headwise.view`, which does not block.
    """
    if _is_in_notebook():
        raise OptionError(
            "explore would block this notebook until it is interrupted: use headwise.view here, or "
            "run headwise explore in a terminal"
        )
    with open_socket(port) as sock:
        server = prepare(model, sock, tokenizer=tokenizer, options=options)
        print(f"{server.session.subject.name} is at {server.address}  (Ctrl-C ends)", flush=True)
        with suppress(KeyboardInterrupt):
            serve(server, opens=opens)


def _is_in_notebook() -> bool:
    """Whether an event loop is running, as in notebooks."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def prepare(
    model: "Source",
    sock: socket.socket,
    *,
    tokenizer: Any = None,
    options: "LoadOptions | None" = None,
) -> ExplorerServer:
    """Load the model and start its session."""
    from headwise.explorer.session import Session
    from headwise.objectives.model_objective import open_subject

    return ExplorerServer(Session(open_subject(model, tokenizer, options=options)), sock)


def serve(server: ExplorerServer, *, opens: bool) -> NoReturn:
    """Answer until interrupted, then raise KeyboardInterrupt."""
    import uvicorn

    from headwise.explorer.server import Explorer

    config = uvicorn.Config(
        Explorer(server.session).app(),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        server_header=False,
        h11_max_incomplete_event_size=65536,
    )
    if opens:
        threading.Timer(0.5, webbrowser.open, [server.address]).start()
    try:
        uvicorn.Server(config).run(sockets=[server.socket])
    finally:
        for job in server.session.jobs.values():
            job.stop()
    raise KeyboardInterrupt  # uvicorn re-raises the signal, but on a busy machine not always
