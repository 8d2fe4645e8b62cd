# SPDX-License-Identifier: Apache-2.0
"""Size and time limits for bodies: decompresses requests, and sends responses.

aiohttp decompresses without a limit, even data that it discards after a response, and gives
clients unlimited time to read a response.
"""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import web

from tflite_opencl.serve.protocol import BadRequest

PLAIN = "identity"
_PACKINGS = (PLAIN, "gzip", "x-gzip", "deflate")


def packing_of(request: web.Request) -> str:
    """Return the Content-Encoding; raises HTTPUnsupportedMediaType: unsupported."""
    packing = str(request.headers.get("Content-Encoding", PLAIN)).strip().lower()
    if packing not in _PACKINGS:
        known = ", ".join(_PACKINGS)
        raise web.HTTPUnsupportedMediaType(reason=f"Content-Encoding: one of {known}")
    return packing


def unpacked(body: bytes, most: int) -> bytes:
    """Decompress a body in one of the encodings of `packing_of` except PLAIN.

    Raises: BadRequest: it is damaged. HTTPRequestEntityTooLarge: it exceeds `most` bytes.
    """
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, according to the header
    try:
        found = unpacking.decompress(body, most + 1)
    except zlib.error as error:
        raise BadRequest(f"the body cannot be unpacked: {error}") from error
    if len(found) > most:
        raise web.HTTPRequestEntityTooLarge(most, len(found))
    if not unpacking.eof or unpacking.unused_data:
        raise BadRequest("the body cannot be unpacked: it is cut, or something follows it")
    return found


async def send(request: web.Request, response: web.Response, seconds: float) -> None:
    """Send a response, and wait until the client has read it; slow clients are disconnected.

    Raises: ConnectionError: the client disconnected, or was disconnected.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    assert isinstance(transport, asyncio.WriteTransport)
    transport.set_write_buffer_limits(0)  # drain returns when the system has the last byte
    try:
        await asyncio.wait_for(_sent(request, response), seconds)
    except asyncio.TimeoutError:
        transport.abort()
        raise ConnectionResetError from None


async def _sent(request: web.Request, response: web.Response) -> None:
    await response.prepare(request)
    await response.write_eof()
