"""Run: the explorer on a port of this machine, until Ctrl-C."""

import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from headwise.explorer.ports import HOST
from headwise.explorer.server import Explorer
from headwise.explorer.session import Session


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
