# SPDX-License-Identifier: Apache-2.0
"""The service and other runtimes in the same server: requests a second, and latencies.

Each contender is a server process, with requests over the loopback interface from
1, 8 and 64 clients, which send the next request after each response.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Skipped
from benchmarks.setup import MODELS, V1

CLIENTS = (1, 8, 64)
ROUNDS = 3  # interleaved rounds, whose medians count
Figures = tuple[float, ...]  # requests a second, and the milliseconds p50 and p99
_WARM_UP = 0.2  # of the seconds
_SERVE = ("-m", "tflite_opencl", "serve", "--listen", "127.0.0.1:0")
_PEERS = ("-m", "benchmarks.service_peer")


def service(model: Path | None, seconds: float) -> str:
    """Return a table in Markdown.

    Raises: Skipped: there is no model.
    """
    model = model or MODELS / f"{V1}.tflite"
    if not model.is_file():
        raise Skipped(f"{model} is not here")
    lines = ["| server | clients | requests/s | p50 ms | p99 ms |", "|---|---|---|---|---|"]
    missing: list[str] = []
    started: dict[str, tuple[str, int]] = {}
    with tempfile.TemporaryDirectory() as nothing, ExitStack() as stack:
        contenders: Mapping[str, tuple[Sequence[str], Mapping[str, str]]] = {
            "OpenCL": ((*_SERVE, str(model)), {}),
            "OpenCL, no batches": ((*_SERVE, str(model), "--max_batch", "1"), {}),
            "TFLite's XNNPACK": (
                (*_SERVE, str(model), "--fallback", "cpu"), {"OCL_ICD_VENDORS": nothing},
            ),
            "ONNX Runtime": ((*_PEERS, "onnxruntime", str(model)), {}),
            "OpenVINO": ((*_PEERS, "openvino", str(model)), {}),
        }  # fmt: skip
        for name, (command, environment) in contenders.items():
            try:
                started[name] = stack.enter_context(_started(command, environment))
            except Skipped as reason:
                missing.append(f"| {name}: {reason} | | | | |")
        for clients in CLIENTS:
            results: dict[str, list[Figures]] = {name: [] for name in started}
            for _ in range(ROUNDS):
                for name, address in started.items():
                    results[name].append(_figures(address, clients, seconds / ROUNDS))
            rows = {name: np.median(figures, axis=0) for name, figures in results.items()}
            for name, (rate, p50, p99) in rows.items():
                lines.append(f"| {name} | {clients} | {rate:.0f} | {p50:.1f} | {p99:.1f} |")
    return "\n".join(lines + missing)


@contextmanager
def _started(command: Sequence[str], environment: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the address of a ready server. Raises: Skipped: it does not start."""
    process = subprocess.Popen(
        [sys.executable, *command], env={**os.environ, **environment}, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    address, last_line = ("", 0), ""
    try:
        for line in process.stderr:
            last_line = line.strip()
            if last_line.startswith("INFO: listening: "):
                host, _, port = last_line.rpartition("//")[2].rpartition(":")
                address = host, int(port)
            if last_line.startswith("INFO: ready"):
                break
        else:
            raise Skipped(last_line)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)


def _figures(address: tuple[str, int], clients: int, seconds: float) -> Figures:
    taken, rate = asyncio.run(_asked(address, clients, seconds))
    return rate, *(1e3 * float(np.percentile(taken, part)) for part in (50, 99))


async def _asked(
    address: tuple[str, int], clients: int, seconds: float
) -> tuple[list[float], float]:
    """Return the seconds of each request, and the rate of requests."""
    request = await _request(address)
    begun = time.perf_counter() + _WARM_UP * seconds
    end = begun + seconds
    each = await asyncio.gather(*(_client(address, request, begun, end) for _ in range(clients)))
    taken = [second for one in each for second in one]
    return taken, len(taken) / seconds


async def _client(
    address: tuple[str, int], request: bytes, begun: float, end: float
) -> list[float]:
    reader, writer = await asyncio.open_connection(*address)
    taken = []
    while (sent := time.perf_counter()) < end:
        writer.write(request)
        await _answer(reader)
        if begun <= (now := time.perf_counter()) <= end:
            taken.append(now - sent)
    writer.close()
    await writer.wait_closed()
    return taken


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """Return an answer's body. Raises: Skipped: it is an error."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    content = await reader.readexactly(int(head.partition("\r\ncontent-length: ")[2].split()[0]))
    if " 200 " not in head.split("\r\n")[0]:
        raise Skipped(content.decode()[:200])
    return content


async def _request(address: tuple[str, int]) -> bytes:
    """Return a request with one picture in bytes, for the only model."""
    reader, writer = await asyncio.open_connection(*address)

    async def get(path: str) -> Any:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return json.loads(await _answer(reader))

    name = (await get("/v2/health/ready"))["models"][0]["name"]
    tensor = (await get(f"/v2/models/{name}"))["inputs"][0]
    writer.close()
    await writer.wait_closed()
    if tensor["datatype"] != "UINT8":
        raise Skipped(f"its input is {tensor['datatype']}, not UINT8")
    shape = [1, *tensor["shape"][1:]]
    pixels = np.random.default_rng(1).integers(0, 256, shape, np.uint8).tobytes()
    given = {"name": tensor["name"], "datatype": "UINT8", "shape": shape}
    given["parameters"] = {"binary_data_size": len(pixels)}
    request = {"inputs": [given], "parameters": {"binary_data_output": True}}
    body = json.dumps(request).encode()
    head = (
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nHost: x\r\n"
        f"Inference-Header-Content-Length: {len(body)}\r\n"
        f"Content-Length: {len(body) + len(pixels)}\r\n\r\n"
    )
    return head.encode() + body + pixels
