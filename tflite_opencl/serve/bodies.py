# SPDX-License-Identifier: Apache-2.0
"""The bodies of requests and answers within their bounds: unpacked here, and sent until taken.

aiohttp would unpack without a bound, also what it drains after an answer, and it gives a client
all the time to take an answer.
"""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import web

from tflite_opencl.serve.protocol import BadRequest

PLAIN = "identity"
_PACKINGS = (PLAIN, "gzip", "x-gzip", "deflate")


def packing_of(request: web.Request) -> str:
    """Return the Content-Encoding; raises HTTPUnsupportedMediaType: it is not known."""
    packing = str(request.headers.get("Content-Encoding", PLAIN)).strip().lower()
    if packing not in _PACKINGS:
        known = ", ".join(_PACKINGS)
        raise web.HTTPUnsupportedMediaType(reason=f"Content-Encoding: one of {known}")
    return packing


def unpacked(body: bytes, most: int) -> bytes:
    """Return a body as it was before it was packed, by one of what `packing_of` gives but PLAIN.

    Raises: BadRequest: it is damaged. HTTPRequestEntityTooLarge: it has more than `most` bytes.
    """
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip or zlib, as its head says
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
    """Send an answer, and wait until the client has taken all of it; who takes longer is cut off.

    Raises: ConnectionError: the client has gone, or was cut off.
    """
    transport = request.transport
    if transport is None:
        raise ConnectionResetError
    assert isinstance(transport, asyncio.WriteTransport)
    transport.set_write_buffer_limits(0)  # writing goes on when the system has the last byte
    try:
        await asyncio.wait_for(_sent(request, response), seconds)
    except asyncio.TimeoutError:
        transport.abort()
        raise ConnectionResetError from None


async def _sent(request: web.Request, response: web.Response) -> None:
    await response.prepare(request)
    await response.write_eof()
