"""The page's files, and an application that serves them while the model is still loading.

In: a Future of the application that answers requests under /api/. Imports nothing large, so that
the page can be drawn before torch is imported.
"""

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headwise.errors import HeadwiseError
from headwise.explorer.guard import error_response

MEDIA_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
STATIC = "/static/"


def read_files() -> dict[str, bytes]:
    """The page's files by their paths in the static folder."""
    folder = Path(str(resources.files("headwise.explorer"))) / "static"
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.suffix in MEDIA_TYPES
    }


@dataclass(frozen=True)
class PageFiles:
    """The page and its files; a path that is not one of theirs is not found."""

    files: dict[str, bytes] = field(default_factory=read_files)

    def answer(self, path: str) -> Response:
        """The page at "/", or the file at a path under /static/."""
        name = "index.html" if path == "/" else path.removeprefix(STATIC)
        if name not in self.files or not (path == "/" or path.startswith(STATIC)):
            return error_response(404, "nothing is at this address")
        media_type = MEDIA_TYPES[name[name.rindex(".") :]]
        headers = {"Cache-Control": "no-cache"}
        return Response(self.files[name], media_type=media_type, headers=headers)


@dataclass(frozen=True)
class LoadingApp:
    """Answers requests for files at once; all others wait for the application that loads."""

    loading: Future[ASGIApp]
    files: PageFiles = field(default_factory=PageFiles)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path, is_read = scope["path"], scope.get("method") in ("GET", "HEAD")
        app: ASGIApp
        if is_read and (path == "/" or path.startswith(STATIC)):
            app = self.files.answer(path)
        else:
            try:
                app = await asyncio.shield(asyncio.wrap_future(self.loading))
            except HeadwiseError as error:
                app = error_response(503, str(error))
        await app(scope, receive, send)
