"""The server: the page, and JSON and numbers under /api/, on this machine alone.

In: a session. Out: a Starlette application. Each answer is read from the request by `asked`, worked
out by the session at the `desk`, and sent; what is wrong with a request is said in one sentence.
"""

from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headwise.errors import HeadwiseError
from headwise.explorer import api_types
from headwise.explorer.guard import Guard, TooLarge, refused
from headwise.explorer.head_panel import head_figures, links as strongest
from headwise.explorer.jobs import Stopped
from headwise.explorer.lesson.lesson import LessonStep, as_json, check, lesson
from headwise.explorer.maps import (
    OVERVIEW,
    TILE,
    MapOptions,
    as_bytes,
    axes_of,
    part_of_map,
    thinned,
    weights_between,
    whole_map,
)
from headwise.explorer.session import Session, TextNotCached, known_plans
from headwise.explorer.text_analysis import TextAnalysis
from headwise.explorer.what_if import compare_gated
from headwise.explorer.work import Busy, ModelQueue, Told
from headwise.heads import HeadId, check_head
from headwise.planning.plans import head_choices, plan
from headwise.planning.shapes import make_shape
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.surgery.cut import plan_slices
from headwise.reading.labels import Labels
from headwise.tracing.maps import Maps
from headwise.views.trace import maps_svg

THUMB = 64
"""Most rows and columns of a small map."""
THUMB_ROWS = 8
"""Rows that are worked out for each row of a small map."""
MOST_IN_IMAGE = 96
KINDS = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
}


class Explorer:
    """Answers to every request about one session."""

    def __init__(self, session: Session) -> None:
        """For which session."""
        self.session, self.desk = session, ModelQueue()
        self._lessons: dict[tuple[Any, ...], tuple[LessonStep, ...]] = {}
        self.files = {file.name: file.read_bytes() for file in pages()}

    def app(self) -> Guard:
        """The application."""
        at = "/api/readings/{name}"
        routes = [
            Route("/", self.page),
            Route("/static/{file}", self.page),
            Route("/api/", self.documentation),
            Route("/api/model", self.model),
            Route("/api/progress", self.progress),
            Route("/api/readings", self.read, methods=["POST"]),
            Route(f"{at}/axes", self.axes),
            Route(f"{at}/thumbs", self.thumbs),
            Route(f"{at}/map", self.map),
            Route(f"{at}/overview", self.overview),
            Route(f"{at}/head", self.head),
            Route(f"{at}/links", self.links),
            Route(f"{at}/image.svg", self.image),
            Route("/api/whatif", self.whatif, methods=["POST"]),
            Route("/api/cutplan", self.cutplan, methods=["POST"]),
            Route("/api/jobs/{job}", self.job, methods=["GET", "POST", "DELETE"]),
            Route("/api/lesson", self.lesson, methods=["POST"]),
            Route("/api/lesson/check", self.check, methods=["POST"]),
            Route("/api/plan", self.plan),
            Route("/api/plan/known", self.known),
            Route("/api/plan/heads", self.choices),
        ]
        found = Starlette(
            routes=routes,
            middleware=[Middleware(GZipMiddleware, minimum_size=2048, compresslevel=3)],
            exception_handlers={
                Busy: says(503),
                HeadwiseError: says(422),
                HTTPException: not_there,
                TextNotCached: says(410),
                Stopped: lambda *_: refused(499, "nobody waits for it any more"),
                TooLarge: lambda *_: refused(413, "the body of the request is too large"),
                Exception: lambda *_: refused(500, "something went wrong in headwise itself"),
            },
        )
        return Guard(found)

    async def page(self, request: Request) -> Response:
        """The page and its files, by their names alone."""
        name = request.path_params.get("file", "index.html")
        if name not in self.files:
            raise HTTPException(404)
        kind = KINDS[name[name.rindex(".") :]]
        return Response(self.files[name], media_type=kind, headers={"Cache-Control": "no-cache"})

    async def documentation(self, request: Request) -> Response:
        """Every address under /api/, with what it answers.

        Its own: this list.
        """
        found = [
            {"path": route.path, "methods": sorted((route.methods or set()) - {"HEAD"})}
            | {"about": (route.endpoint.__doc__ or "").strip().partition("\n")[0]}
            for route in request.app.routes
            if isinstance(route, Route) and route.path.startswith("/api/")
        ]
        return JSONResponse({"routes": found})

    async def model(self, request: Request) -> Response:
        """Name, layers and roles of the model."""
        return JSONResponse(self.session.about())

    async def progress(self, request: Request) -> Response:
        """Layers done of the work under way, and how many requests wait."""
        desk = self.desk
        return JSONResponse({"done": desk.done, "total": desk.total, "waiting": desk.waiting})

    async def read(self, request: Request) -> Response:
        """Read {text}: its tokens, and figures of every head on it."""
        text = api_types.text_in(api_types.fields(await request.body()))

        def work(told: Told) -> dict[str, Any]:
            return self.session.summary(self.session.read(text, told))

        return JSONResponse(await self.desk.do(request, work))

    async def axes(self, request: Request) -> Response:
        """Labels of a map's rows and columns, for ?head= and the ways to look."""
        reading, head, look = self.looked(request)
        rows, keys = axes_of(reading.labels(head.layer_name), look)
        sizes = {"tile": TILE, "overview": OVERVIEW, "image": MOST_IN_IMAGE}
        return JSONResponse({"rows": rows.labels, "keys": keys.labels, **sizes})

    async def thumbs(self, request: Request) -> Response:
        """Small maps of the heads of ?layer=, ?size= cells wide: roots of weights, a byte each."""
        reading = self.session.reading(request.path_params["name"])
        layer = request.query_params.get("layer", "")
        size = api_types.number_in(request.query_params, "size", 8, THUMB, 32)
        look = api_types.look_in(request.query_params)
        reading.call(layer)

        def work(_: Told) -> npt.NDArray[Any]:
            return as_bytes(thinned(reading, layer, look, size, looked_at=THUMB_ROWS))

        return numbers(await self.desk.do(request, work))

    async def map(self, request: Request) -> Response:
        """A part of one head's map, ?rows=0:256&keys=0:256: steps of 1/65535, two bytes each."""
        reading, head, look = self.looked(request)
        rows = api_types.part_in(request.query_params, "rows", TILE)
        keys = api_types.part_in(request.query_params, "keys", TILE)

        found = await self.desk.do(request, lambda _: part_of_map(reading, head, look, rows, keys))
        return numbers(*found)

    async def overview(self, request: Request) -> Response:
        """One head's whole map in at most ?size= rows and columns: the largest of each block."""
        reading, head, look = self.looked(request)
        size = api_types.number_in(request.query_params, "size", 8, OVERVIEW, OVERVIEW)
        found = await self.desk.do(request, lambda _: whole_map(reading, head, look, size))
        return numbers(*found)

    async def head(self, request: Request) -> Response:
        """Figures of ?head=: measures, roles, profile, contribution."""
        reading, head, _ = self.looked(request)

        def work(_: Told) -> dict[str, Any]:
            return head_figures(reading, head, self.session.scanned)

        return JSONResponse(await self.desk.do(request, work))

    async def links(self, request: Request) -> Response:
        """The strongest links of the tokens ?rows=0:256 in ?head=: row, key, weight."""
        reading, head, look = self.looked(request)
        rows = api_types.part_in(request.query_params, "rows", TILE)
        return JSONResponse(
            await self.desk.do(request, lambda _: strongest(reading, head, look, rows))
        )

    async def image(self, request: Request) -> Response:
        """The map of ?head= as an SVG image, of ?rows= where the text is long."""
        reading, head, look = self.looked(request)
        whole = f"0:{MOST_IN_IMAGE}"
        part = api_types.part_in({"rows": whole, **request.query_params}, "rows", MOST_IN_IMAGE)

        def work(_: Told) -> str:
            return drawn(reading, head, look, part)

        svg = await self.desk.do(request, work)
        return Response(svg, media_type="image/svg+xml")

    async def whatif(self, request: Request) -> Response:
        """What {texts} come to with {gates} on heads, beside the untouched model."""
        body = api_types.fields(await request.body())
        texts, changes = api_types.texts_in(body), api_types.changes_in(body)
        session = self.session

        def work(_: Told) -> dict[str, Any]:
            return compare_gated(session.subject, texts, changes, session.counts, session.untouched)

        return JSONResponse(await self.desk.do(request, work))

    async def cutplan(self, request: Request) -> Response:
        """A plan that cuts {heads}, if they can be cut, as a file for headwise prune --plan."""
        heads = api_types.heads_in(api_types.fields(await request.body()))
        session = self.session
        chosen = tuple(check_head(head, session.num_heads) for head in heads)
        await self.desk.do(request, lambda _: plan_slices(session.subject.model, chosen))
        reasons = dict.fromkeys(chosen, "silenced by hand in the explorer")
        found = CutPlan(chosen, session.subject.name, session.counts, "hand", reasons)
        named = {"Content-Disposition": 'attachment; filename="plan.json"'}
        return Response(found.to_json(), media_type="application/json", headers=named)

    async def job(self, request: Request) -> Response:
        """Long work, scan or importance: POST begins, DELETE stops it, GET says how far it is.

        What it found before is there while it runs again, and after it was stopped.
        """
        name = request.path_params["job"]
        if name not in self.session.jobs:
            raise HTTPException(404)
        job = self.session.jobs[name]
        if request.method == "POST":
            self.session.start(name)
        elif request.method == "DELETE":
            job.stop()
        found = job.as_json()
        if job.result is not None:
            found["found"] = self.session.found(name)
        return JSONResponse(found)

    async def lesson(self, request: Request) -> Response:
        """The lesson's steps on {text}, with its real numbers; {layer, head, position} if given."""
        steps = await self.steps(request, api_types.fields(await request.body()))
        return JSONResponse(as_json(steps))

    async def check(self, request: Request) -> Response:
        """Whether {answer} to the question of {step} of that lesson is right, and why."""
        body = api_types.fields(await request.body())
        by_name = {step.name: step for step in await self.steps(request, body)}
        step = api_types.choice_in(body, "step", by_name)
        return JSONResponse(check(by_name[step], body.get("answer", "")))

    async def steps(self, request: Request, body: dict[str, Any]) -> tuple[LessonStep, ...]:
        """The lesson that a request asks for, kept until another one is asked for."""
        text, place = api_types.text_in(body), api_types.place_in(body)
        key = (text, *place.values(), self.session.scanned is not None)
        if key not in self._lessons:
            session = self.session

            def work(_: Told) -> tuple[LessonStep, ...]:
                return lesson(session.subject, text, table=session.scanned, **place)

            self._lessons = {key: await self.desk.do(request, work)}
        return self._lessons[key]

    async def plan(self, request: Request) -> Response:
        """What attention costs for ?d_model=, heads, kv_heads, layers, length, batch and dtype."""
        values = request.query_params
        num_heads = api_types.number_in(values, "heads", 1, 1024, 12)
        shape = make_shape(
            d_model=api_types.number_in(values, "d_model", 1, 65536, 768),
            num_heads=num_heads,
            num_kv_heads=api_types.number_in(values, "kv_heads", 1, 1024, num_heads),
            d_key=api_types.number_in(values, "d_key", 1, 4096) if "d_key" in values else None,
            num_layers=api_types.number_in(values, "layers", 1, 1024, 12),
        )
        found = plan(
            shape=shape,
            length=api_types.number_in(values, "length", 1, 10_000_000, 1024),
            batch=api_types.number_in(values, "batch", 1, 65536, 1),
            dtype=values.get("dtype", "bfloat16")[:20],
        )
        return JSONResponse(found.to_json())

    async def known(self, request: Request) -> Response:
        """The known models, with what their attention costs."""
        return JSONResponse(known_plans())

    async def choices(self, request: Request) -> Response:
        """Every number of heads that divides ?d_model=, and what speaks against each."""
        values = request.query_params
        width = api_types.number_in(values, "d_model", 1, 65536, 768)
        length = api_types.number_in(values, "length", 1, 10_000_000, 1024)
        found = [
            {"heads": one.num_heads, "d_key": one.d_key, "remarks": one.remarks}
            | {"parameters": one.plan.layer_parameters, "multiply_adds": one.plan.per_token}
            for one in head_choices(width, length=length)
        ]
        return JSONResponse(found)

    def looked(self, request: Request) -> tuple[TextAnalysis, HeadId, MapOptions]:
        """The reading, the head and the way to look that a request names."""
        reading = self.session.reading(request.path_params["name"])
        head = reading.checked(api_types.head_in(request.query_params))
        return reading, head, api_types.look_in(request.query_params)


def pages() -> list[Any]:
    """The files of the page."""
    folder = resources.files("headwise.explorer") / "static"
    return [file for file in folder.iterdir() if file.name.endswith(tuple(KINDS))]


def numbers(found: npt.NDArray[Any], largest: float = 1.0) -> Response:
    """Numbers as bytes, with their shape in a header."""
    shape = ",".join(map(str, found.shape))
    headers = {"X-Shape": shape, "X-Largest": f"{largest:.9g}"}
    content = np.ascontiguousarray(found).tobytes()
    return Response(content, media_type="application/octet-stream", headers=headers)


def drawn(reading: TextAnalysis, head: HeadId, look: MapOptions, part: slice) -> str:
    """The map of a head between the same tokens."""
    rows, keys = axes_of(reading.labels(head.layer_name), look)
    some, columns = (slice(part.start, min(part.stop, len(axis))) for axis in (rows, keys))
    weights = weights_between(reading, head.layer_name, look, some, columns, head=head.head)
    labels = Labels(rows.labels[some], keys.labels[columns])
    return maps_svg(Maps(weights, (str(head),), labels))


def says(status: int) -> Callable[[Request, Exception], Response]:
    """A handler that sends an error's own sentence."""

    def handle(_: Request, error: Exception) -> Response:
        return refused(status, str(error))

    return handle


def not_there(_: Request, error: Exception) -> Response:
    """What Starlette itself refuses."""
    status = getattr(error, "status_code", 404)
    said = {404: "there is nothing at this address", 405: "this address takes no such request"}
    return refused(status, said.get(status, "the request was refused"))
