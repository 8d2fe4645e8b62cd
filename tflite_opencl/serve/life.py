# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a service: listens, loads, gets ready, and drains on shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, TypeVar, cast

from aiohttp import web

from tflite_opencl.console.errors import CommandError, one_line
from tflite_opencl.console.service_manager import tell, tell_reloading, watchdog_s
from tflite_opencl.serve.models import Served
from tflite_opencl.serve.server import Server

log = logging.getLogger("tflite_opencl")
# aiohttp's logger prints a traceback for each body that ends after its response. server.py logs
# errors of requests.
_quiet = logging.getLogger("tflite_opencl.aiohttp")
_quiet.setLevel(logging.CRITICAL)
T = TypeVar("T")
_MOST_CONNECTIONS = 900  # below the usual limit of 1,024 file descriptors per process
_BACKLOG = 1024
_LOOK_S = 0.05  # polling interval for the last request of replaced models


async def serve(
    server: Server,
    address: tuple[str, int],
    load: Callable[[], Sequence[Served]],
    end: asyncio.Event,
    drain_seconds: float,
    listening: Callable[[tuple[Any, ...]], object] = lambda address: None,
    *,
    reload: asyncio.Event | None = None,
    longest_run: float = math.inf,
) -> None:
    """Serve until `end` is set and all accepted requests are answered.

    systemd is told when it is ready, reloads and ends, and that it is alive.

    `load`: returns the models, in a separate thread. `drain_seconds`: time limit of the
    shutdown. `listening`: called with the address, once its port is known. `reload`: set to load
    the models again. `longest_run`: seconds after which a run shows that the service hangs.
    Raises: CommandError: the address is not available. `load`'s errors.
    """
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        logger=_quiet,
        # Keep-alive requests have the time limit of a first one, or partial ones would stay.
        keepalive_timeout=server.bounds.seconds,
        auto_decompress=False,  # it has no limit, and continues after a response
        handler_cancellation=True,  # stop working for clients that have disconnected
        shutdown_timeout=drain_seconds,
    )
    await runner.setup()
    try:
        listener = await _listening(runner, address, server)
        log.info("listening: %s", url(own := listener.sockets[0].getsockname()))
        listening(own)
        loaded = _in_thread(load)
        ended = asyncio.ensure_future(end.wait())
        try:
            both: list[asyncio.Future[Any]] = [loaded, ended]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if loaded.done():
                server.begin(loaded.result())
                log.info("ready: %s", ", ".join(server.models))
                tell("READY=1", f"STATUS=serves {', '.join(server.models)} at {url(own)}")
                async with _watchdog(server, longest_run):
                    await _reloads(server, load, ended, reload or asyncio.Event())
        finally:
            ended.cancel()
            tell("STOPPING=1")
            server.state = "the service is being ended"
            listener.close()
    finally:
        await runner.cleanup()
        await _close(server.models.values())


async def _reloads(
    server: Server,
    load: Callable[[], Sequence[Served]],
    ended: asyncio.Future[Any],
    reload: asyncio.Event,
) -> None:
    """Load the models again at each `reload`, until the service is ended."""
    while not ended.done():
        asked = asyncio.ensure_future(reload.wait())
        await asyncio.wait([asked, ended], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if ended.done():
            return
        reload.clear()
        tell_reloading()
        log.info("the models are loaded again")
        loaded = _in_thread(load)
        both: list[asyncio.Future[Any]] = [loaded, ended]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if loaded.done():
            await _replace(server, loaded)
            tell("READY=1")


async def _replace(server: Server, loaded: asyncio.Future[Sequence[Served]]) -> None:
    """Serve other models, and close those from before once no request needs them."""
    try:
        models = loaded.result()
    except Exception as error:
        log.error("the models stay as they were: %s", one_line(error))
        return
    before = [*server.models.values()]
    server.begin(models)
    log.info("ready: %s", ", ".join(server.models))
    while any(server.users[each.worker] for each in before):
        await asyncio.sleep(_LOOK_S)
    for each in before:
        del server.users[each.worker]
    await _close(before)


async def _close(models: Iterable[Served]) -> None:
    for each in models:
        await asyncio.to_thread(each.close)


@contextlib.asynccontextmanager
async def _watchdog(server: Server, longest_run: float) -> AsyncIterator[None]:
    """Tell systemd, if it asks, that the service is alive, for as long as it is."""

    async def ping(pause: float) -> None:
        is_alive = True
        while True:
            workers = [each.worker for each in server.models.values()]
            was_alive, is_alive = (
                is_alive,
                all(
                    each.runner is not None and each.running_seconds < longest_run
                    for each in workers
                ),
            )
            if is_alive:
                tell("WATCHDOG=1")
            elif was_alive:
                log.error("a model has nothing to run on, or a run hangs: systemd is not told")
            await asyncio.sleep(pause)

    seconds = watchdog_s()
    pings = None if seconds is None else asyncio.ensure_future(ping(seconds / 4))
    try:
        yield
    finally:
        if pings is not None:
            pings.cancel()


async def _listening(
    runner: web.AppRunner, address: tuple[str, int], server: Server
) -> asyncio.Server:
    """Listen; clients must send a request's head in time. Raises: CommandError."""
    host, port = address
    handlers, loop = runner.server, asyncio.get_running_loop()
    assert handlers is not None

    def close_if_silent(handler: Any) -> None:
        if handler in server.silent:
            server.silent.discard(handler)
            if handler.transport is not None:
                handler.transport.abort()

    def connected() -> asyncio.BaseProtocol:
        if len(handlers.connections) >= _MOST_CONNECTIONS:
            return _RefusedConnection()
        handler: asyncio.BaseProtocol = handlers()
        server.silent.add(handler)
        loop.call_later(server.bounds.seconds, close_if_silent, handler)
        return handler

    try:
        return await loop.create_server(connected, host, port, backlog=_BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot listen to {host}:{port}: {why}") from error


class _RefusedConnection(asyncio.Protocol):
    """A connection above the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()


def _in_thread(load: Callable[[], T]) -> asyncio.Future[T]:
    """Return the future result of `load`; process exit does not wait for it."""
    loop = asyncio.get_running_loop()
    loaded: asyncio.Future[T] = loop.create_future()

    def tell(outcome: T | None, error: BaseException | None) -> None:
        if error is not None:
            loaded.set_exception(error)
        else:
            loaded.set_result(cast(T, outcome))

    def work() -> None:
        outcome, failure = None, None
        try:
            outcome = load()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, outcome, failure)

    threading.Thread(target=work, name="loading", daemon=True).start()
    return loaded


def url(address: tuple[Any, ...]) -> str:
    """Return the address for people."""
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
