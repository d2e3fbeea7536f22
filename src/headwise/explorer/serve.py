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


def address(sock: socket.socket) -> str:
    """URL of the page that is served on a socket."""
    return f"http://{HOST}:{sock.getsockname()[1]}/"


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
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass  # no event loop is running: this is not a notebook
    else:
        raise OptionError(
            "explore would block this notebook until it is interrupted: use headwise.view here, or "
            "run headwise explore in a terminal"
        )
    with open_socket(port) as sock:
        session = start_session(model, tokenizer, options)
        print(f"{session.scored.name} is at {address(sock)}  (Ctrl-C ends)", flush=True)
        with suppress(KeyboardInterrupt):
            serve(session, sock, opens=opens)


def start_session(model: "Source", tokenizer: Any, options: "LoadOptions | None") -> "Session":
    """Load a model for the explorer."""
    from headwise.explorer.session import Session
    from headwise.objectives.scored_model import open_scored_model

    return Session(open_scored_model(model, tokenizer, options=options))


def serve(session: "Session", sock: socket.socket, *, opens: bool) -> NoReturn:
    """Answer until interrupted, then raise KeyboardInterrupt."""
    import uvicorn

    from headwise.explorer.routes import Explorer

    config = uvicorn.Config(
        Explorer(session).app(),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        server_header=False,
        h11_max_incomplete_event_size=65536,
    )
    if opens:
        threading.Timer(0.5, webbrowser.open, [address(sock)]).start()
    try:
        uvicorn.Server(config).run(sockets=[sock])
    finally:
        for job in session.jobs.values():
            job.stop()
    raise KeyboardInterrupt  # uvicorn re-raises the signal, but on a busy machine not always
