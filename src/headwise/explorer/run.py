"""Run: the explorer on a port of this machine, until Ctrl-C."""

import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from headwise.errors import OptionError
from headwise.explorer.server import Explorer
from headwise.explorer.session import Session

HOST = "127.0.0.1"
USUAL = 8123
"""The port that is tried first where none is asked for."""


def bound(port: int | None) -> socket.socket:
    """A socket on the port asked for; without one, on the usual port or any that is free."""
    for number in [port] if port is not None else [USUAL, 0]:
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, number))
        except (OSError, OverflowError) as error:
            found.close()
            if port is not None:
                why = getattr(error, "strerror", None) or "there is no such port"
                raise OptionError(f"port {port} cannot be used: {why}") from error
            continue
        return found
    raise OptionError("no port of this machine is free")


def serve(
    session: Session, here: socket.socket, *, say: Callable[[str], None], opens: bool
) -> None:
    """Answer until interrupted."""
    here.listen(128)  # who comes before the server is ready waits
    address = f"http://{HOST}:{here.getsockname()[1]}/"
    say(address)
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
        threading.Timer(0.5, webbrowser.open, [address]).start()
    server = uvicorn.Server(config)
    try:
        server.run(sockets=[here])
    finally:
        for job in session.jobs.values():
            job.stop()
