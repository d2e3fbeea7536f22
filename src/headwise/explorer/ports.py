"""Ports: a socket of this machine to serve on, known before anything large is loaded."""

import socket

from headwise.errors import OptionError

HOST = "127.0.0.1"
USUAL = 8123
"""The port that is tried first where none is asked for."""
WAITING = 128
"""Connections that wait for the server at most."""


def bound(port: int | None) -> socket.socket:
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
