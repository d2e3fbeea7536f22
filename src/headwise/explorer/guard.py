"""A guard around the application, which rejects unsafe requests and adds security headers.

It rejects requests whose Host header does not name this machine (as in DNS rebinding), limits the
size of requests, and keeps the page from loading anything from other servers.
"""

from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost", "[::1]")
LARGEST_BODY = 1 << 20
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class TooLarge(Exception):
    """A request's body is larger than LARGEST_BODY."""


def error_response(status: int, sentence: str) -> Response:
    """A JSON response with a one-sentence error."""
    return JSONResponse({"error": sentence}, status)


@dataclass(frozen=True)
class Guard:
    """Wraps the whole application, including its error responses."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an HTTP request on or reject it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        received = 0

        async def receive_some() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > LARGEST_BODY:  # the stated length may be wrong, or missing
                raise TooLarge
            return message

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        rejection = _rejection(Headers(scope=scope), scope["method"], scope["path"])
        app: Any = self.app if rejection is None else error_response(*rejection)
        await app(scope, receive_some, send_with_headers)


def _rejection(headers: Headers, method: str, path: str) -> tuple[int, str] | None:
    """Status and message for a rejected request; None if it is allowed."""
    host = headers.get("host", "")
    name, _, port = host.rpartition(":")
    if (name if port.isdigit() else host) not in HOSTS:
        return 421, "this server only answers requests to 127.0.0.1 and localhost"
    origin = headers.get("origin")
    is_elsewhere = path.startswith("/api/") and headers.get("sec-fetch-site") == "cross-site"
    if is_elsewhere or (origin is not None and origin.partition("://")[2] != host):
        return 403, "this server only answers requests from its own page"
    if method in ("POST", "PUT", "PATCH"):
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            return 415, "the request's body must be application/json"
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return 413, f"the request's body is too large: send at most {LARGEST_BODY:,} bytes"
    return None
