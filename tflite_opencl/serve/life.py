# SPDX-License-Identifier: Apache-2.0
"""The life cycle of a service: listens, loads, gets ready, and drains on shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from aiohttp import web

from tflite_opencl.console.errors import CommandError
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


async def serve(
    server: Server,
    address: tuple[str, int],
    load: Callable[[], Sequence[Served]],
    end: asyncio.Event,
    drain_seconds: float,
    listening: Callable[[tuple[Any, ...]], object] = lambda address: None,
) -> None:
    """Serve until `end` is set and all accepted requests are answered.

    `load`: returns the models, in a separate thread. `drain_seconds`: time limit of the
    shutdown. `listening`: called with the address, once its port is known.
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
    models: Sequence[Served] = ()
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
                models = loaded.result()
                server.begin(models)
                log.info("ready: %s", ", ".join(server.models))
                await ended
        finally:
            ended.cancel()
            server.state = "the service is being ended"
            listener.close()
    finally:
        await runner.cleanup()
        for each in models:
            await asyncio.to_thread(each.close)


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
