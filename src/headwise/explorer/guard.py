"""The guard: every request and response of the explorer passes it.

It lets in only requests that name this machine (a page elsewhere that has its name point here is
kept out), bounds their size, and sends headers that forbid a page everything but its own server.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost", "[::1]")
LARGEST_BODY = 1 << 20
POLICY = "; ".join(
    (
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"),
        *("img-src 'self' blob: data:", "base-uri 'none'", "form-action 'none'"),
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def refused(status: int, sentence: str) -> JSONResponse:
    """An error as JSON, in a sentence."""
    return JSONResponse({"error": sentence}, status_code=status)


class Guard:
    """Around the whole application, with its answers to faults of its own."""

    def __init__(self, app: ASGIApp) -> None:
        """Around which application."""
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, or say why not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        said = objection(headers, scope["method"], scope["path"])
        guarded = with_headers(send)
        if said is not None:
            await refused(*said)(scope, receive, guarded)
            return
        await self.app(scope, bounded(receive), guarded)


def objection(headers: Headers, method: str, path: str) -> tuple[int, str] | None:
    """Status and sentence for a request that is not let in."""
    host = headers.get("host", "")
    if bare(host) not in HOSTS:
        return 421, "this server answers to 127.0.0.1 and localhost alone"
    origin = headers.get("origin")
    is_elsewhere = path.startswith("/api/") and headers.get("sec-fetch-site") == "cross-site"
    if is_elsewhere or (origin is not None and not is_own(origin, host)):
        return 403, "requests from other pages are not answered"
    if method in ("POST", "PUT", "PATCH"):
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return 415, "the body of a request must be application/json"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return 413, f"the body of a request has at most {LARGEST_BODY:,} bytes"
    return None


def is_own(origin: str, host: str) -> bool:
    """Whether an origin is the page's own; one that cannot be read is not."""
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def bare(host: str) -> str:
    """A host without its port."""
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host


class TooLarge(Exception):
    """More came than a request may bring."""


def bounded(receive: Receive) -> Receive:
    """The same messages, until they are too many: a length may be wrong, or missing."""
    taken = 0

    async def some() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > LARGEST_BODY:
            raise TooLarge
        return message

    return some


def with_headers(send: Send) -> Callable[[Message], Any]:
    """The same, with headers for every response that has none of the kind."""

    async def more(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return more
