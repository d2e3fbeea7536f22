"""The server: the page at / and JSON under /api/, for this machine only.

In: a Session. Out: a Starlette application. api_requests.py reads requests; answers that need the
model are computed in the ModelQueue. Every error is one sentence.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from torch import Tensor

from headwise.errors import HeadwiseError
from headwise.explorer import api_requests as api, api_types, maps
from headwise.explorer.find_heads import find_heads
from headwise.explorer.generate import generate
from headwise.explorer.guard import Guard, TooLarge, error_response
from headwise.explorer.head_panel import head_answer
from headwise.explorer.jobs import Busy, ModelQueue
from headwise.explorer.loaded_plan import loaded_plan
from headwise.explorer.page_files import PageFiles
from headwise.explorer.random_heads import compare_random
from headwise.explorer.save_page import file_name, saved_page
from headwise.explorer.session import Session, TextNotCached
from headwise.explorer.text_analysis import TextAnalysis
from headwise.explorer.what_if import compare_gated
from headwise.heads import HeadId, check_head
from headwise.planning.known_models import KNOWN
from headwise.planning.plans import head_choices, plan
from headwise.planning.shapes import make_shape
from headwise.progress import Progress, StopWork
from headwise.pruning.selection.cut_plan import CutPlan
from headwise.pruning.surgery.cut import plan_slices

if TYPE_CHECKING:
    from headwise.explorer.lesson.lesson import Lesson


class Explorer:
    """Answers all requests for one session."""

    def __init__(self, session: Session) -> None:
        self.session, self.queue, self.files = session, ModelQueue(), PageFiles()
        self._lessons: dict[Any, Lesson] = {}

    def app(self) -> Guard:
        """The ASGI application, which rejects unsafe requests."""
        return Guard(self.unguarded_app())

    def unguarded_app(self) -> Starlette:
        """The application for a guard that is already there."""
        text = "/api/readings/{name}"
        head = f"{text}/heads/{{head}}"
        routes = [
            Route("/", self.page),
            Route("/static/{path:path}", self.page),
            Route("/api/", self.documentation),
            Route("/api/model", self.model),
            Route("/api/progress", self.progress),
            Route("/api/readings", self.read, methods=["POST"]),
            Route("/api/pair", self.pair, methods=["POST"]),
            Route("/api/page", self.save_page, methods=["POST"]),
            Route(f"{text}/weights", self.weights),
            Route(f"{text}/thumbs", self.thumbs),
            Route(f"{text}/bars", self.bars),
            Route(head, self.head),
            Route(f"{head}/map", self.map),
            Route(f"{head}/row", self.row),
            Route("/api/whatif", self.whatif, methods=["POST"]),
            Route("/api/whatif/random", self.random, methods=["POST"]),
            Route("/api/whatif/search", self.search, methods=["POST"]),
            Route("/api/generate", self.generate, methods=["POST"]),
            Route("/api/cutplan", self.cutplan, methods=["POST"]),
            Route("/api/jobs/{job}", self.job, methods=["GET", "POST", "DELETE"]),
            Route("/api/lesson", self.lesson, methods=["POST"]),
            Route("/api/lesson/check", self.check, methods=["POST"]),
            Route("/api/plan", self.plan),
            Route("/api/plan/loaded", self.plan_loaded_model),
            Route("/api/plan/known", self.plan_known_models),
            Route("/api/plan/heads", self.head_counts),
        ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(GZipMiddleware, minimum_size=2048, compresslevel=3)],
            exception_handlers={
                Busy: lambda _, error: error_response(503, str(error)),
                HeadwiseError: lambda _, error: error_response(422, str(error)),
                HTTPException: _http_error,
                TextNotCached: lambda _, error: error_response(410, str(error)),
                **dict.fromkeys((StopWork, ClientDisconnect), _gone),
                TooLarge: lambda *_: error_response(413, "the request's body is too large"),
                Exception: lambda *_: error_response(
                    500, "something went wrong in headwise itself"
                ),
            },
        )

    async def page(self, request: Request) -> Response:
        """The page or one of its files."""
        return self.files.answer(request.url.path)

    async def documentation(self, request: Request) -> Response:
        """List every path under /api/ and what it returns."""
        routes = [
            {
                "path": route.path,
                "methods": sorted((route.methods or set()) - {"HEAD"}),
                "about": (route.endpoint.__doc__ or "").strip().partition("\n")[0],
            }
            for route in request.app.routes
            if isinstance(route, Route) and route.path.startswith("/api/")
        ]
        return _json({"routes": routes})

    async def model(self, request: Request) -> Response:
        """The model's name, layers and roles."""
        return _json(self.session.about())

    async def progress(self, request: Request) -> Response:
        """Steps done and total steps of the current work, and the number of waiting requests."""
        return _json(self.queue.progress())

    async def read(self, request: Request) -> Response:
        """Read {text} and return its tokens, map labels, and every head's measures on it."""
        body = api.read_body(api.TextRequest, await request.body())
        return await self._compute(
            request, lambda progress: self.session.text_answer(body.text, progress)
        )

    async def pair(self, request: Request) -> Response:
        """Read {text} and {other}, and say which of their words correspond."""
        body = api.read_body(api.PairRequest, await request.body())
        return await self._compute(
            request, lambda progress: self.session.pair_answer(body.text, body.other, progress)
        )

    async def save_page(self, request: Request) -> Response:
        """The stage with {text}, and {swap} if it is given, as one HTML file."""
        body = api.read_body(api.PageRequest, await request.body())
        page = await self.queue.run(
            request, lambda progress: saved_page(self.session, body, progress)
        )
        name = file_name(self.session.scored.name, body.text)
        headers = {
            "Content-Disposition": f'attachment; filename="{name}"',
            "Content-Encoding": "identity",  # base64 hardly compresses
        }
        return Response(page, media_type="text/html", headers=headers)

    async def weights(self, request: Request) -> Response:
        """Weights of all heads of ?stack=, two bytes each: heads, then rows, then columns."""
        analysis, options = self._text_request(request)
        query = api.read_values(api.WeightsQuery, request.query_params)
        return await self._weights(
            request, lambda: maps.stack_weights(analysis, query.stack, options)
        )

    async def thumbs(self, request: Request) -> Response:
        """Thumbnail maps of ?layer=, ?size= cells wide: square roots of weights, as bytes."""
        analysis, options = self._text_request(request)
        query = api.read_values(api.ThumbsQuery, request.query_params)
        thumbs = await self.queue.run(
            request, lambda _: maps.thumbnails(analysis, query.layer, options, query.size)
        )
        return _bytes(thumbs.shape, thumbs.tobytes())

    async def bars(self, request: Request) -> Response:
        """Row ?at= in all heads of ?stack=: the largest share in each of ?size= blocks, as bytes.

        With ?by=1, column ?at= instead.
        """
        analysis, options = self._text_request(request)
        query = api.read_values(api.BarsQuery, request.query_params)
        bars = await self.queue.run(request, lambda _: maps.map_bars(analysis, options, query))
        return _bytes(bars.shape, bars.tobytes())

    async def head(self, request: Request) -> Response:
        """Profile, contribution, measures and roles of a head."""
        analysis, head, _ = self._map_request(request)
        table = self.session.scan_table
        return await self._compute(request, lambda _: head_answer(analysis, head, table))

    async def map(self, request: Request) -> Response:
        """A part of a head's map, such as ?rows=0:256&keys=0:256; the whole map without a part.

        Two bytes per weight. A large map is reduced to the largest weight of each block.
        """
        analysis, head, options = self._map_request(request)
        window = None
        if request.query_params.keys() & {"rows", "keys"}:
            rows, keys = (
                api.parse_range(request.query_params, axis, maps.TILE) for axis in ("rows", "keys")
            )
            window = rows, keys
        return await self._weights(request, lambda: maps.map_cells(analysis, head, options, window))

    async def row(self, request: Request) -> Response:
        """Row ?at= of a head's map, two bytes per weight; with ?by=1, column ?at=."""
        analysis, head, options = self._map_request(request)
        query = api.read_values(api.RowQuery, request.query_params)
        return await self._weights(
            request, lambda: maps.map_row(analysis, head, options, query.at, by=query.by)
        )

    async def whatif(self, request: Request) -> Response:
        """The model's outputs on {texts} with {gates} on its heads, next to its usual outputs."""
        body = api.read_body(api.WhatIfRequest, await request.body())
        factors, session = body.factors(), self.session
        return await self._compute(
            request,
            lambda _: compare_gated(
                session.scored, body.texts, factors, session.num_heads, session.baselines
            ),
        )

    async def random(self, request: Request) -> Response:
        """The model's outputs on {texts} with {gates} on as many random heads, {draws} times."""
        body = api.read_body(api.RandomRequest, await request.body())
        factors, session = body.factors(), self.session
        return await self._compute(
            request,
            lambda progress: compare_random(
                session.scored,
                body.texts,
                factors,
                session.num_heads,
                draws=body.draws,
                baselines=session.baselines,
                progress=progress,
            ),
        )

    async def search(self, request: Request) -> Response:
        """A few heads that change the prediction on {text} most, found by a greedy search."""
        body, session = api.read_body(api.TextRequest, await request.body()), self.session
        return await self._compute(
            request,
            lambda progress: find_heads(
                session.scored, body.text, session.num_heads, session.baselines, progress
            ),
        )

    async def generate(self, request: Request) -> Response:
        """Continue {text} by up to {tokens} tokens, with all heads on and with {gates}."""
        body = api.read_body(api.GenerateRequest, await request.body())
        factors, session = body.factors(), self.session
        return await self._compute(
            request,
            lambda progress: generate(
                session.scored,
                body.text,
                factors,
                session.num_heads,
                max_tokens=body.tokens,
                progress=progress,
            ),
        )

    async def cutplan(self, request: Request) -> Response:
        """A plan that cuts {heads}, if they can be cut, as a file for headwise prune --plan."""
        body, session = api.read_body(api.CutPlanRequest, await request.body()), self.session
        heads = tuple(check_head(head, session.num_heads) for head in body.head_ids())
        await self.queue.run(request, lambda _: plan_slices(session.scored.model, heads))
        reasons = dict.fromkeys(heads, "silenced by hand in the explorer")
        cut_plan = CutPlan(heads, session.scored.name, session.counts, "hand", reasons)
        headers = {"Content-Disposition": 'attachment; filename="plan.json"'}
        return Response(cut_plan.to_json(), media_type="application/json", headers=headers)

    async def job(self, request: Request) -> Response:
        """State and last result of a job, scan or importance; POST starts it, DELETE stops it."""
        name = request.path_params["job"]
        if name not in self.session.jobs:
            raise HTTPException(404)
        if request.method == "POST":
            self.session.start(name)
        elif request.method == "DELETE":
            self.session.jobs[name].stop()
        return _json(self.session.job_answer(name))

    async def lesson(self, request: Request) -> Response:
        """A {step} of the lesson on {text}, for {layer}, {head}, {position}, {other} if given."""
        body = api.read_body(api.LessonRequest, await request.body())
        return await self._compute(
            request,
            lambda progress: self._lesson(body).answer(
                body.step, progress, is_outline=body.is_outline
            ),
        )

    async def check(self, request: Request) -> Response:
        """Whether {answer} is right in a lesson's {step}: a hint on {attempt} 1, then why."""
        from headwise.explorer.lesson.quiz import check_answer

        body = api.read_body(api.LessonAnswerRequest, await request.body())
        return await self._compute(
            request,
            lambda progress: check_answer(
                self._lesson(body).step(body.step, progress), body.answer, body.attempt
            ),
        )

    def _lesson(self, body: api.LessonRequest) -> "Lesson":
        """The lesson on the request's text, from memory if possible."""
        from headwise.explorer.lesson.choice import Choice
        from headwise.explorer.lesson.lesson import MAX_LESSONS, Lesson

        table, scored = self.session.scan_table, self.session.scored
        choice = Choice(body.layer, body.head, body.position)
        key = (body.text, body.other, choice, table is not None)
        if key not in self._lessons:
            about = self.session.about()
            pair = about.lesson_pair if (body.text, choice) == (about.text, Choice()) else None
            made = Lesson(
                scored, body.text, choice=choice, other=body.other, pair=pair, table=table
            )
            self._lessons[key] = made
            if len(self._lessons) > MAX_LESSONS:
                del self._lessons[next(iter(self._lessons))]  # the oldest
        return self._lessons[key]

    async def plan(self, request: Request) -> Response:
        """Attention costs for ?d_model=, heads, kv_heads, d_key, layers, length, batch, dtype."""
        query = api.read_values(api.PlanQuery, request.query_params)
        shape = make_shape(
            d_model=query.d_model,
            num_heads=query.heads,
            num_kv_heads=query.kv_heads or query.heads,
            d_key=query.d_key,
            num_layers=query.layers,
        )
        shape = replace(shape, is_causal=query.is_causal)
        costs = plan(shape=shape, length=query.length, batch=query.batch, dtype=query.dtype[:20])
        return _json(msgspec.convert(costs.to_row(), api_types.PlanAnswer))

    async def plan_loaded_model(self, request: Request) -> Response:
        """The loaded model's attention costs, or why they are unknown."""
        return _json(loaded_plan(self.session.scored))

    async def plan_known_models(self, request: Request) -> Response:
        """The known models and their attention costs."""
        return _json(
            msgspec.convert([plan(name).to_row() for name in KNOWN], list[api_types.PlanAnswer])
        )

    async def head_counts(self, request: Request) -> Response:
        """Every head count that divides ?d_model=, with its drawbacks at ?length=."""
        query = api.read_values(api.PlanQuery, request.query_params)
        choices = [
            api_types.HeadChoiceAnswer(
                heads=choice.num_heads,
                d_key=choice.d_key,
                parameters=choice.plan.layer_parameters,
                multiply_adds_per_token=choice.plan.per_token,
                weight_matrix_bytes=choice.plan.weight_matrix_bytes,
                remarks=list(choice.remarks),
            )
            for choice in head_choices(query.d_model, length=query.length)
        ]
        return _json(choices)

    def _text_request(self, request: Request) -> tuple[TextAnalysis, maps.MapOptions]:
        analysis = self.session.analysis(request.path_params["name"])
        return analysis, api.read_values(maps.MapOptions, request.query_params)

    def _map_request(self, request: Request) -> tuple[TextAnalysis, HeadId, maps.MapOptions]:
        analysis, options = self._text_request(request)
        head = check_head(api.parse_head(request.path_params["head"]), self.session.num_heads)
        return analysis, head, options

    async def _weights(self, request: Request, work: Callable[[], Tensor]) -> Response:
        """Shares as two bytes each."""

        def compute(_: Progress) -> Response:
            shares = work()
            return _bytes(shares.shape, maps.as_steps(shares))

        return await self.queue.run(request, compute)

    async def _compute(self, request: Request, work: Callable[[Progress], object]) -> Response:
        return _json(await self.queue.run(request, work))


def _bytes(shape: Iterable[int], content: bytes) -> Response:
    """Numbers as bytes, with the size of each axis in X-Shape; they hardly compress."""
    headers = {"X-Shape": ",".join(map(str, shape)), "Content-Encoding": "identity"}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _gone(_: Request, __: Exception) -> Response:
    return error_response(499, "the client has disconnected")


def _http_error(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    sentences = {404: "nothing is at this address", 405: "this address does not accept this method"}
    return error_response(status, sentences.get(status, "the request was rejected"))
