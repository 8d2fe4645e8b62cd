# SPDX-License-Identifier: Apache-2.0
"""The service over HTTP: tritonclient, faulty, slow and disconnected clients, shutdown."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from delegate import DeviceError
from tests.support.service import BOUNDS, DOUBLES, LIMITS, MEGABYTE, Doubling, served, serving
from tests.support.tiers import slow
from tflite_opencl.console.errors import CommandError
from tflite_opencl.serve.models import Served
from tflite_opencl.serve.tensors import ModelSignature, Named
from tflite_opencl.serve.worker import BatchScheduler

REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
INFER = "/v2/models/model/infer"


def models(runner: Doubling | None = None, **worker: Any) -> Callable[[], Sequence[Served]]:
    return lambda: [served(BatchScheduler(runner or Doubling(), LIMITS, **worker))]


@pytest.fixture
def address() -> Iterator[str]:
    with serving(models()) as (address, server, _):
        wait(lambda: not server.state)
        yield address


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def ask(
    address: str, path: str, body: Any = None, method: str = "", **headers: str
) -> tuple[int, Any, http.client.HTTPMessage]:
    """Return the status, the body (JSON or text), and the headers."""
    connection = http.client.HTTPConnection(address, timeout=30)
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method or ("GET" if body is None else "POST"), path, content, named)
        answer = connection.getresponse()
        output = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(output) if is_json else output.decode(), answer.headers
    finally:
        connection.close()


def infer(client: triton.InferenceServerClient, values: Any, **told: Any) -> Any:
    given = triton.InferInput("x", values.shape, "FP32")
    given.set_data_from_numpy(values, binary_data=told.pop("binary_data", True))
    return client.infer("model", [given], **told)


def test_tritonclient(address: str) -> None:
    values = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    with triton.InferenceServerClient(address) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("model")
        assert client.is_model_ready("model", "1")
        assert not client.is_model_ready("other")
        assert client.get_server_metadata()["name"] == "tflite-opencl"
        assert client.get_model_metadata("model") == {
            "name": "model", "versions": ["1"], "platform": "tflite",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
        }  # fmt: skip
        for is_binary in (False, True):
            outputs = [triton.InferRequestedOutput("y", binary_data=is_binary)]
            result = infer(client, values, binary_data=is_binary, outputs=outputs, request_id="7")
            assert (result.as_numpy("y") == 2 * values).all()
            assert result.get_response()["id"] == "7"
        assert (infer(client, values).as_numpy("y") == 2 * values).all()
        for method in ("gzip", "deflate"):
            result = infer(client, values, request_compression_algorithm=method)
            assert (result.as_numpy("y") == 2 * values).all()
        with pytest.raises(InferenceServerException, match="a request takes 1 to 4"):
            infer(client, np.zeros((5, 3), np.float32))


def test_unknown_model_or_version_is_not_found(address: str) -> None:
    for path in ("/v2/models/other/infer", "/v2/models/model/versions/2/infer"):
        status, output, _ = ask(address, path, REQUEST)
        assert (status, output) == (404, {"error": "there is no such model, or not this version"})
    assert ask(address, "/v2/models/model/versions/1/infer", REQUEST)[0] == 200
    assert ask(address, "/etc/passwd")[0] == 404
    assert ask(address, "/v2/models/..%2F..%2Fetc%2Fpasswd")[0] == 404
    assert ask(address, INFER)[0] == 405


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {}, 400),
        (b"{}", {"Inference_Header_Content_Length": "9"}, 400),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0)[:-4], {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b"{}", mtime=0) * 2, {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(bytes(100 * MEGABYTE), mtime=0), {"Content_Encoding": "gzip"}, 413),
        (zlib.compress(bytes(2 * MEGABYTE)), {"Content_Encoding": "deflate"}, 413),
        (b"{}", {"Content_Encoding": "br"}, 415),
        (b'{"inputs": [NaN]}', {}, 400),
        (b"x" * (MEGABYTE + 1), {}, 413),
        (REQUEST, {"Content_Type": "image/png"}, 200),
    ],
)
def test_status_of_invalid_request(
    address: str, body: Any, headers: dict[str, str], status: int
) -> None:
    result, output, _ = ask(address, INFER, body, **headers)
    assert result == status
    assert status == 200 or "\n" not in output["error"]
    assert ask(address, INFER, REQUEST)[0] == 200


def test_compressed_bodies_are_read(address: str) -> None:
    body = json.dumps(REQUEST).encode()
    for packing, packed in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
        assert ask(address, INFER, packed, Content_Encoding=packing)[0] == 200


def test_requests_are_batched(address: str) -> None:
    def double(number: int) -> bool:
        entry = {**REQUEST["inputs"][0], "data": [number, 0, 0]}
        _, output, _ = ask(address, INFER, {"inputs": [entry]})
        return bool(output["outputs"][0]["data"] == [2 * number, 0, 0])

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(double, range(200)))
    text = ask(address, "/metrics")[1]
    assert 'tflite_opencl_requests_total{model="model",status="200"} 200.0' in text
    assert "process_open_fds" in text


def test_overload_asks_clients_to_retry() -> None:
    opened = threading.Event()
    runner = Doubling(lambda pictures: opened.wait(30) and None)
    with serving(models(runner), replace(BOUNDS, requests=2)) as (address, server, _):
        wait(lambda: not server.state)
        with ThreadPoolExecutor(2) as pool:
            under_way = [pool.submit(ask, address, INFER, REQUEST) for _ in range(2)]
            wait(lambda: server.requests == 2)
            status, output, headers = ask(address, INFER, REQUEST)
            assert (status, headers["Retry-After"]) == (503, "1")
            assert output == {"error": "too many requests are under way"}
            opened.set()
            assert [each.result()[0] for each in under_way] == [200, 200]
        assert ask(address, INFER, REQUEST)[0] == 200
        assert (server.requests, server.bodies) == (0, 0)


def test_slow_silent_and_disconnected_clients() -> None:
    opened = threading.Event()
    runner = Doubling(lambda pictures: opened.wait(30) and None, sizes=(1,))
    with serving(models(runner), replace(BOUNDS, seconds=0.3)) as (address, server, _):
        wait(lambda: not server.state)
        host, port = address.split(":")

        def connect() -> socket.socket:
            return socket.create_connection((host, int(port)), 30)

        silent, slow = connect(), connect()
        head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: "
        slow.sendall(f"{head}100\r\n\r\n{{".encode())
        assert b" 408 " in slow.recv(1000)
        assert silent.recv(1000) == b"" or pytest.fail("it is still open")
        server.bounds = BOUNDS  # the others may be as slow as a busy machine makes them
        body = json.dumps(REQUEST)
        gone = []
        for _ in range(3):
            gone.append(connect())
            gone[-1].sendall(f"{head}{len(body)}\r\n\r\n{body}".encode())
        wait(lambda: server.requests == 3 and runner.runs == [1])
        for each in (silent, slow, *gone):
            each.close()
        wait(lambda: server.requests == 0)
        opened.set()
        assert ask(address, INFER, REQUEST)[0] == 200
        assert len(runner.runs) == 2  # of the disconnected clients only the one whose request ran
        assert (server.bodies, server.silent) == (0, set())


def test_timeout_of_partial_later_request() -> None:
    with serving(models(), replace(BOUNDS, seconds=0.5)) as (address, server, _):
        wait(lambda: not server.state)
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), 30) as client:
            client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 " in client.recv(1000)
            client.sendall(b"GET /v2/health/live HTTP/1.1\r\nHo")
            client.settimeout(5)
            assert client.recv(1000) == b""


LARGE = ModelSignature(DOUBLES.inputs, (Named("y", np.dtype("float32"), (1, 8 << 20)),))


@slow
def test_unread_responses_are_limited() -> None:
    """A response of 32 MiB, larger than any socket buffer."""

    class Large(Doubling):
        def run(self, arrays: Any, pictures: int) -> Any:
            return [np.zeros((pictures, 8 << 20), np.float32)]

    def load() -> Sequence[Served]:
        return [served(BatchScheduler(Large(), LIMITS), LARGE)]

    request = json.dumps(REQUEST | {"parameters": {"binary_data_output": True}}).encode()
    with serving(load, replace(BOUNDS, seconds=3.0)) as (address, server, _):
        wait(lambda: not server.state)
        host, port = address.split(":")
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            client.connect((host, int(port)))
            head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(request)}\r\n\r\n"
            client.sendall(head.encode() + request)
            wait(lambda: server.answering > 32 * MEGABYTE)
            status, _, headers = ask(address, INFER, request)
            assert (status, headers["Retry-After"]) == (503, "1")
            assert ask(address, "/v2/health/live")[0] == 200
            wait(lambda: server.answering == 0)
            taken = 0
            with contextlib.suppress(ConnectionError):
                while part := client.recv(1 << 20):
                    taken += len(part)
            assert taken < 32 * MEGABYTE
        assert ask(address, INFER, request, method="POST")[0] == 200
        assert (server.requests, server.bodies, server.answering) == (0, 0, 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_json_cannot_hold_need_binary(value: float) -> None:
    class Odd(Doubling):
        def run(self, arrays: Any, pictures: int) -> Any:
            return [np.full((pictures, 3), value, np.float32)]

    with serving(models(Odd())) as (address, server, _):
        wait(lambda: not server.state)
        status, output, _ = ask(address, INFER, REQUEST)
        assert status == 500
        assert output["error"].startswith("output y has NaN or an infinity, which JSON cannot hold")
        with triton.InferenceServerClient(address) as client:
            result = infer(client, np.zeros((1, 3), np.float32)).as_numpy("y")
        np.testing.assert_array_equal(result, np.full((1, 3), value, np.float32))


def test_liveness_readiness_and_draining() -> None:
    loading, opened = threading.Event(), threading.Event()
    runner = Doubling(lambda pictures: opened.wait(30) and None)

    def load() -> Sequence[Served]:
        assert loading.wait(30)
        return models(runner)()

    with serving(load) as (address, server, end):
        assert ask(address, "/v2/health/live")[0] == 200
        status, output, _ = ask(address, "/v2/health/ready")
        assert (status, output["waits"]) == (503, "models are being loaded")
        assert ask(address, INFER, REQUEST)[0] == 503
        loading.set()
        wait(lambda: not server.state)
        assert ask(address, "/v2/health/ready")[0] == 200
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(ask, address, INFER, REQUEST)
            wait(lambda: server.requests == 1)
            end()
            wait(lambda: server.state)
            with pytest.raises(ConnectionError):
                ask(address, "/v2/health/live")
            opened.set()
            assert under_way.result()[0] == 200
    assert runner.closed.is_set()


def test_failed_device_is_reported_and_cpu_takes_over() -> None:
    def fail(pictures: int) -> None:
        raise DeviceError("clFinish: CL_OUT_OF_RESOURCES")

    with serving(models(Doubling(fail))) as (address, server, _):
        wait(lambda: not server.state)
        status, output, _ = ask(address, INFER, REQUEST)
        assert (status, output) == (503, {"error": "clFinish: CL_OUT_OF_RESOURCES"})
        status, output, _ = ask(address, "/v2/health/ready")
        assert (status, output["models"][0]["failure"]) == (503, "clFinish: CL_OUT_OF_RESOURCES")
        assert ask(address, "/v2/models/model/ready")[0] == 503
        assert 'tflite_opencl_device_failed{model="model"} 1.0' in ask(address, "/metrics")[1]
    cpu = Doubling()
    cpu.device = "the CPU's stand-in"
    with serving(models(Doubling(fail), fallback=lambda: cpu)) as (address, server, _):
        wait(lambda: not server.state)
        output = ask(address, INFER, REQUEST)[1]
        assert output["outputs"][0]["data"] == [2, 4, 6]
        assert output["parameters"] == {"device": "the CPU's stand-in"}
        status, output, _ = ask(address, "/v2/health/ready")
        assert (status, output["models"][0]["failure"]) == (200, "clFinish: CL_OUT_OF_RESOURCES")


@slow
def test_load_failure_ends_service() -> None:
    def load() -> Sequence[Served]:
        raise CommandError("model.tflite is no model")

    with pytest.raises(CommandError, match="is no model"), serving(load) as (address, *_):
        wait(lambda: not _answers(address))


def _answers(address: str) -> bool:
    try:
        return ask(address, "/v2/health/live")[0] == 200
    except OSError:
        return False
