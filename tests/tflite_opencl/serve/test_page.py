# SPDX-License-Identifier: Apache-2.0
"""The page at /: its content for browsers and curl, with names of models escaped."""

from __future__ import annotations

import http.client
import json
import shlex
import subprocess
from collections.abc import Sequence
from html.parser import HTMLParser
from typing import Any, cast

import numpy as np
import pytest

from delegate import DeviceError
from tests.support.service import BOUNDS, DOUBLES, LIMITS, Doubling, served, serving
from tests.tflite_opencl.serve.test_server import ask, wait
from tflite_opencl.serve.metrics import Metrics
from tflite_opencl.serve.models import Served
from tflite_opencl.serve.page import ADDRESSES, Front, host_of
from tflite_opencl.serve.pictures import Pictures
from tflite_opencl.serve.server import Server
from tflite_opencl.serve.tensors import ModelSignature, Named
from tflite_opencl.serve.worker import BatchScheduler

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def test_page_lists_all_endpoints() -> None:
    routes = Server(BOUNDS, Metrics()).application().router.routes()
    served = {
        (route.method, route.resource.canonical)
        for route in routes
        if route.resource is not None and "/versions/" not in route.resource.canonical
    }
    assert {row for row in served if row[0] != "HEAD"} == {row[:2] for row in ADDRESSES}


def test_text_for_curl_has_working_example() -> None:
    with serving(lambda: [served(BatchScheduler(Doubling(), LIMITS))]) as (address, server, _):
        wait(lambda: not server.state)
        status, output, headers = ask(address, "/", Accept="*/*")
        assert (status, headers.get_content_type()) == (200, "text/plain")
        assert headers["Vary"] == "Accept"
        assert "  model: 1 of 1 nodes on OpenCL, a stand-in, batches of 1, 4\n" in output
        assert "    input x FP32 [-1, 3]\n    output y FP32 [-1, 3]\n" in output
        (example,) = [line for line in output.splitlines() if line.startswith("    curl ")]
        command, flag, body, url = shlex.split(example)
        assert (command, flag, url) == ("curl", "-d", f"http://{address}/v2/models/model/infer")
        status, answer, _ = ask(address, url.removeprefix(f"http://{address}"), json.loads(body))
        assert (status, answer["outputs"][0]["data"]) == (200, [0, 0, 0])


class _Tags(HTMLParser):
    """The tags, loaded resources and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.loaded: list[str | None] = []
        self.said = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.said += data


def test_page_for_browser_loads_no_resources() -> None:
    odd = "<script>alert(1)</script>"
    signature = ModelSignature((Named(odd, np.dtype("float32"), (1, 3)),), DOUBLES.outputs)

    def load() -> Sequence[Served]:
        return [served(BatchScheduler(Doubling(), LIMITS), signature, name=odd.replace("/", ""))]

    with serving(load) as (address, server, _):
        wait(lambda: not server.state)
        status, output, headers = ask(address, "/", Accept=BROWSER)
    assert (status, headers.get_content_type()) == (200, "text/html")
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    page = _Tags()
    page.feed(output)
    assert "script" not in page.tags
    assert page.loaded == ["data:,"]
    assert f"input{odd}FP32[-1, 3]" in page.said
    for text in ("<script>alert(1)<script>: ", "/v2/health/ready", "curl -d"):
        assert text.removesuffix(": ") in page.said


@pytest.mark.parametrize("host", ["x:80/$(reboot)", "<b>", "a b", "x;y", "x'y"])
def test_invalid_host_is_replaced_by_socket_address(host: str) -> None:
    assert host_of(host, ("127.0.0.1", 8500)) == "127.0.0.1:8500"
    assert host_of(host, ("::1", 8500, 0, 0)) == "[::1]:8500"
    with serving(lambda: []) as (address, *_):
        connection = http.client.HTTPConnection(address, timeout=30)
        connection.request("GET", "/", headers={"Host": host})
        assert host not in connection.getresponse().read().decode()
        connection.close()


@pytest.mark.parametrize("host", ["board", "board.local:8500", "10.0.0.7:80", "[fe80::1]:8500"])
def test_host_is_that_of_request(host: str) -> None:
    assert host_of(host, ("127.0.0.1", 1)) == host


def _with_pictures(name: str, signature: ModelSignature = DOUBLES) -> Served:
    result = served(BatchScheduler(Doubling(), LIMITS), signature, name)
    return Served(name, result.signature, result.worker, cast(Pictures, object()), result.most)


def _examples(*models: Served) -> list[str]:
    text = Front("", models, "h:1").text()
    for each in models:
        each.worker.close()
    return [line.strip() for line in text.splitlines() if line.startswith("    curl ")]


def test_examples_fit_models() -> None:
    assert _examples(_with_pictures("a")) == ["curl --data-binary @picture.jpg http://h:1/classify"]
    assert _examples(_with_pictures("a"), _with_pictures("b&c d")) == [
        "curl --data-binary @picture.jpg 'http://h:1/classify?model=a'",
        "curl --data-binary @picture.jpg 'http://h:1/classify?model=b%26c%20d'",
    ]
    large = ModelSignature((Named("x", np.dtype("int8"), (1, 65)),), DOUBLES.outputs)
    assert _examples(served(BatchScheduler(Doubling(), LIMITS), large)) == [
        "curl http://h:1/v2/models/model"
    ]
    values: dict[str, Any] = {"bool": [False], "uint64": [0], "float16": [0.0]}
    for dtype, data in values.items():
        one = ModelSignature((Named("it's", np.dtype(dtype), (1,)),), DOUBLES.outputs)
        (example,) = _examples(served(BatchScheduler(Doubling(), LIMITS), one))
        shell = subprocess.run(["sh", "-c", example.replace("curl", "printf '%s\\n'", 1)],
                               capture_output=True, text=True, check=True)  # fmt: skip
        (given,) = json.loads(shell.stdout.splitlines()[1])["inputs"]
        assert (given["name"], given["data"]) == ("it's", data)


def test_page_shows_loading_and_failures() -> None:
    assert (
        "\nModels\n  models are being loaded\n" in Front("models are being loaded", (), "h").text()
    )

    def fail(pictures: int) -> None:
        raise DeviceError("clFinish: CL_OUT_OF_RESOURCES\x1b[2J")

    with serving(lambda: [served(BatchScheduler(Doubling(fail), LIMITS))]) as (address, server, _):
        wait(lambda: not server.state)
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
        assert ask(address, "/v2/models/model/infer", body)[0] == 503
        output = ask(address, "/")[1]
        assert "  model: failed: clFinish: CL_OUT_OF_RESOURCES\\x1b[2J\n" in output
        assert "<p>failed: clFinish" in ask(address, "/", Accept=BROWSER)[1]
