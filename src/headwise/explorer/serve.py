"""Serve the explorer on a local port until Ctrl-C.

In: a model or its name. Out: a page at the loopback address. Large packages are not imported until
the port is known to be free.
"""

import asyncio
import ctypes
import importlib.util
import socket
import threading
import webbrowser
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

from headwise.errors import MissingPackage, OptionError

if TYPE_CHECKING:
    from headwise.explorer.session import Session
    from headwise.models.loaded import Source
    from headwise.models.loading import LoadOptions

HOST = "127.0.0.1"
DEFAULT_PORT = 8123
PATIENCE = 30.0
"""Seconds to wait for the end of an interrupted thread."""


def open_socket(port: int | None) -> socket.socket:
    """A listening socket on `port` or, if that is None, on the default port or a free one.

    Listening at once reserves the port, and early requests wait until the server is ready.
    """
    for package in ("starlette", "uvicorn", "msgspec"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(f"the explorer needs {package}: pip install 'headwise[explorer]'")
    for number in [port] if port is not None else [DEFAULT_PORT, 0]:
        # asyncio sets TCP_NODELAY only if the protocol is given; without it, answers wait 40 ms.
        sock = socket.socket(proto=socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, number))
            sock.listen()
            return sock
        except (OSError, OverflowError) as error:
            sock.close()
            if port is not None:
                reason = getattr(error, "strerror", None) or "ports are 0 to 65535"
                raise OptionError(
                    f"cannot use port {port}: {reason}; omit the port to get a free one"
                ) from error
    raise OptionError("no port is free on this machine: close a program that uses one")


def address(sock: socket.socket) -> str:
    """URL of the page served on a socket."""
    return f"http://{HOST}:{sock.getsockname()[1]}/"


def explore(
    model: "Source" = "minilm",
    *,
    tokenizer: Any = None,
    port: int | None = None,
    opens: bool = True,
    options: "LoadOptions | None" = None,
) -> None:
    """Serve the explorer: print its address and answer requests until interrupted.

    If `opens`, open it in a browser. In a notebook, use `headwise.view`, which does not block.
    """
    with suppress(RuntimeError):  # no event loop is running: this is not a notebook
        asyncio.get_running_loop()
        raise OptionError(
            "explore would block this notebook until it is interrupted: use headwise.view here, or "
            "run headwise explore in a terminal"
        )
    with open_socket(port) as sock, suppress(KeyboardInterrupt):

        def start() -> "Session":
            session = start_session(model, tokenizer, options)
            print(f"{session.scored.name} is at {address(sock)}  (Ctrl-C to stop)", flush=True)
            return session

        serve(start, sock, opens=opens)


def start_session(model: "Source", tokenizer: Any, options: "LoadOptions | None") -> "Session":
    """Load a model for the explorer."""
    from headwise.explorer.session import Session
    from headwise.objectives.scored_model import open_scored_model

    scored = open_scored_model(model, tokenizer, options=options)
    return Session(scored, is_fresh=isinstance(model, str | PathLike))


def serve(start: Callable[[], "Session"], sock: socket.socket, *, opens: bool) -> NoReturn:
    """Answer requests until interrupted, then raise KeyboardInterrupt.

    `start` loads the model in a thread, while the page is already served. If it fails, the server
    stops and its error is raised.
    """
    import uvicorn

    from headwise.explorer.guard import Guard
    from headwise.explorer.page_files import LoadingApp

    loading: Future[Any] = Future()
    config = uvicorn.Config(
        Guard(LoadingApp(loading)),
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        server_header=False,
        h11_max_incomplete_event_size=65536,
    )
    server, sessions = uvicorn.Server(config), []

    def load() -> None:
        try:
            sessions.append(start())
            loading.set_result(make_app(sessions[0]))
        except BaseException as error:
            loading.set_exception(error)
            server.should_exit = True

    loader = threading.Thread(target=load, daemon=True)
    loader.start()
    if opens:
        threading.Timer(0.5, webbrowser.open, [address(sock)]).start()
    try:
        server.run(sockets=[sock])
    finally:
        interrupt(loader)
        for job in [job for session in sessions for job in session.jobs.values()]:
            job.stop()
    if loading.done() and (error := loading.exception()):
        raise error
    raise KeyboardInterrupt  # uvicorn re-raises the signal, but not always on a busy machine


def interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread and wait for its end: torch aborts if it is left running.

    A thread notices only between two Python instructions, and may be in a long one.
    """
    if thread.is_alive() and thread.ident is not None:
        set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
        set_exception(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
        thread.join(PATIENCE)


def make_app(session: "Session") -> Any:
    """The application for a session."""
    from headwise.explorer.routes import Explorer

    return Explorer(session).unguarded_app()
