# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: routes requests to models, reports errors as JSON, and enforces limits.

Never opens a path or an address that a client names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from tflite_opencl import __version__
from tflite_opencl.console.errors import OneLineError, RunError, one_line
from tflite_opencl.serve import bodies, protocol
from tflite_opencl.serve.metrics import CONTENT_TYPE, Metrics
from tflite_opencl.serve.models import VERSION, Served
from tflite_opencl.serve.page import POLICY, Front, host_of
from tflite_opencl.serve.protocol import BadRequest
from tflite_opencl.serve.worker import BatchScheduler, Busy, InferenceResult, Unavailable

log = logging.getLogger("tflite_opencl")
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_RETRY_S = 1  # Retry-After
_LARGE = 1 << 16  # bytes of JSON that are parsed in another thread; minimum of responses that count
_MOST_CLASSES = 5
_STATUS: Mapping[type[Exception], int] = {
    BadRequest: 400, asyncio.TimeoutError: 408, RunError: 500, Busy: 503, Unavailable: 503,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on clients."""

    body: int  # bytes of a request
    bodies: int  # bytes of all requests in flight
    requests: int  # in flight
    seconds: float  # time limit for receiving a request


@dataclass(slots=True)
class Server:
    """The service's handlers; `state`: what it is waiting for, "" when ready."""

    bounds: Bounds
    metrics: Metrics
    state: str = "models are being loaded"
    models: dict[str, Served] = field(default_factory=dict)
    requests: int = 0  # in flight
    bodies: int = 0  # their size in bytes
    answering: int = 0  # bytes of responses not yet read by clients
    silent: set[Any] = field(default_factory=set)  # connections without a request so far
    answers: dict[int, int] = field(default_factory=dict)  # HTTP status -> number of responses
    # Requests under way, by what runs their model; a reload closes none that has any.
    users: Counter[BatchScheduler] = field(default_factory=Counter)

    def begin(self, models: Sequence[Served]) -> None:
        """Become ready, or serve these models from now on."""
        self.models = {each.name: each for each in models}
        for each in models:
            self.metrics.watch(each.name, each.worker)
        self.state = ""

    def application(self) -> web.Application:
        """Return the aiohttp application."""
        made = web.Application(middlewares=[self._answered], client_max_size=self.bounds.body)
        get, post = made.router.add_get, made.router.add_post
        get("/", self._front)
        get("/v2", self._about)
        get("/v2/health/live", self._live)
        get("/v2/health/ready", self._ready)
        get("/metrics", self._metrics)
        post("/classify", self._classify)
        for model in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            get(model, self._model)
            get(f"{model}/ready", self._model_ready)
            post(f"{model}/infer", self._infer)
        return made

    async def _front(self, request: web.Request) -> web.Response:
        if request.transport is None:
            raise ConnectionResetError
        host = host_of(request.host, request.transport.get_extra_info("sockname"))
        front = Front(self.state, [*self.models.values()], host)
        is_page = "text/html" in request.headers.get("Accept", "")  # only browsers send it
        headers = {"Vary": "Accept", "Content-Security-Policy": POLICY}
        return web.Response(
            text=front.html() if is_page else front.text(),
            content_type="text/html" if is_page else "text/plain",
            headers=headers,
        )

    async def _about(self, request: web.Request) -> web.Response:
        about = {"name": "tflite-opencl", "version": __version__}
        return web.json_response(about | {"extensions": [*protocol.EXTENSIONS]})

    async def _live(self, request: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def _ready(self, request: web.Request) -> web.Response:
        states = [each.state for each in self.models.values()]
        is_ready = not self.state and all(each["ready"] for each in states)
        told: dict[str, Any] = {"ready": is_ready, "models": states}
        if self.state:
            told["waits"] = self.state
        return web.json_response(told, status=200 if is_ready else 503)

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _model(self, request: web.Request) -> web.Response:
        return web.json_response(self._served(request).metadata)

    async def _model_ready(self, request: web.Request) -> web.Response:
        state = self._served(request).state
        return web.json_response(state, status=200 if state["ready"] else 503)

    async def _infer(self, request: web.Request) -> web.Response:
        served = self._served(request)
        with self._admitted(request, served):
            body = await self._body(request)
            length = request.headers.get(protocol.LENGTH_HEADER)
            read = partial(protocol.read_request, body, length, served.signature, served.most)
            asked = await _apart(read, len(body) if length is None else 0)
            ran = await _run(served, asked.arrays, asked.pictures)
            is_json = not all(binary for _, binary in asked.wanted)
            size = sum(array.size for array in ran.arrays) if is_json else 0
            answer = partial(protocol.answer, served.name, VERSION, served.signature, asked)
            content, head = await _apart(lambda: answer(ran.arrays, ran.device), size)
        if head is None:
            return web.Response(body=content, content_type="application/json")
        headers = {protocol.LENGTH_HEADER: str(head)}
        return web.Response(body=content, content_type="application/octet-stream", headers=headers)

    async def _classify(self, request: web.Request) -> web.Response:
        served = self._asked_for(request)
        if (pictures := served.pictures) is None:
            raise BadRequest(f"{served.name} takes no picture")
        most = request.query.get("most", str(_MOST_CLASSES))
        if not (most.isascii() and most.isdigit() and len(most) < 6):
            raise BadRequest(f"most={most:.20} is no number of classes")
        if request.content_type.startswith("multipart/"):
            raise BadRequest("the body is the picture itself: curl --data-binary @picture.jpg")
        loop = asyncio.get_running_loop()
        with self._admitted(request, served):
            body = await self._body(request)
            try:
                found = loop.run_in_executor(pictures.pool, pictures.inputs, body)
                arrays, size = await found
            except OneLineError as error:
                raise BadRequest(one_line(error)) from error
            ran = await _run(served, arrays, 1)
            told = await _apart(lambda: pictures.entry(ran.arrays, size, int(most)), _LARGE)
        about = {"model": served.name, "device": ran.device}
        return web.json_response({**about, **told}, dumps=_json)

    def _served(self, request: web.Request) -> Served:
        """Return the model named in the URL; raises HTTPNotFound, Unavailable."""
        name = request.match_info["model"]
        if self.state:
            raise Unavailable(self.state)
        if name not in self.models or request.match_info.get("version", VERSION) != VERSION:
            raise web.HTTPNotFound(reason="there is no such model, or not this version")
        return self.models[name]

    def _asked_for(self, request: web.Request) -> Served:
        """Return the model of `?model=`, or the only one."""
        if self.state:
            raise Unavailable(self.state)
        name = request.query.get("model")
        if name is None and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise BadRequest(f"?model= one of {', '.join(self.models)}")
        return self.models[name]

    def _meant(self, request: web.Request) -> str:
        """Return the name of the model that a request is for, or ""."""
        only = next(iter(self.models), "") if request.path == "/classify" else ""
        name = request.match_info.get("model", request.query.get("model", only))
        return name if name in self.models else ""

    @contextlib.contextmanager
    def _admitted(self, request: web.Request, served: Served) -> Iterator[None]:
        """Account for a request and its unread body; raises Busy."""
        bounds = self.bounds
        told = None if "Content-Encoding" in request.headers else request.content_length
        size = bounds.body if told is None else told
        if size > bounds.body:
            raise web.HTTPRequestEntityTooLarge(bounds.body, size)
        if self.requests >= bounds.requests or self.bodies + size > bounds.bodies:
            raise Busy
        self.requests, self.bodies = self.requests + 1, self.bodies + size
        self.users[served.worker] += 1
        try:
            yield
        finally:
            self.requests, self.bodies = self.requests - 1, self.bodies - size
            self.users[served.worker] -= 1

    async def _body(self, request: web.Request) -> bytes:
        packing = bodies.packing_of(request)
        body: bytes = await asyncio.wait_for(request.read(), self.bounds.seconds)
        if packing == bodies.PLAIN:
            return body
        return await _apart(lambda: bodies.unpacked(body, self.bounds.body), _LARGE)

    async def _send(self, request: web.Request, response: web.Response) -> None:
        """Wait until the client has read the response.

        Raises: Busy: too many bytes of responses are pending. ConnectionError: the client
            disconnected, or is too slow.
        """
        size = len(response.body) if isinstance(response.body, bytes) else 0
        is_large = size >= _LARGE  # small ones are bounded by the number of connections
        if is_large and self.answering and self.answering + size > self.bounds.bodies:
            raise Busy
        self.answering += size
        try:
            await bodies.send(request, response, self.bounds.seconds)
        finally:
            self.answering -= size

    @property
    def _answered(self) -> Any:
        async def answered(request: web.Request, handler: Handler) -> web.StreamResponse:
            begun = time.perf_counter()
            self.silent.discard(request.protocol)
            response = await _or_error(request, handler)
            try:
                await self._send(request, response)
            except Busy as error:
                response = _error_of(error)
            self.answers[response.status] = self.answers.get(response.status, 0) + 1
            seconds = time.perf_counter() - begun if request.method == "POST" else None
            self.metrics.answered(self._meant(request), response.status, seconds)
            return response

        return web.middleware(answered)


async def _or_error(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Return the response, or the error as one line of JSON."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        return _error(error.status, error.reason)
    except (web.RequestPayloadError, ConnectionError) as error:  # the client disconnected
        return _error(400, one_line(error))
    except Exception as error:
        response = _error_of(error)
        if response.status == 500 and not isinstance(error, RunError):
            log.error("%s: %s: %s", request.path, type(error).__name__, one_line(error))
        return response


def _error_of(error: Exception) -> web.Response:
    status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 500)
    text = one_line(error)
    if isinstance(error, Busy):
        text = "too many requests are under way"
    if isinstance(error, asyncio.TimeoutError):
        text = "the request did not arrive in time"
    response = _error(status, text)
    if isinstance(error, Busy):
        response.headers["Retry-After"] = str(_RETRY_S)
    return response


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)


def _json(told: Any) -> str:
    try:
        return json.dumps(told, allow_nan=False)
    except ValueError:
        raise RunError("the results are NaN or infinite, which JSON cannot hold") from None


async def _run(served: Served, arrays: Any, pictures: int) -> InferenceResult:
    return await asyncio.wrap_future(served.worker.submit(arrays, pictures))


async def _apart(work: Callable[[], T], size: int) -> T:
    """Call `work`, in another thread if the size is large, to keep the event loop running."""
    if size < _LARGE:
        return work()
    return await asyncio.get_running_loop().run_in_executor(None, work)
