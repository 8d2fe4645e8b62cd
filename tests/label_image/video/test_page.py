# SPDX-License-Identifier: Apache-2.0
"""--show: what the page's server answers, and to whom."""

from __future__ import annotations

import http.client
import io
import json
from collections.abc import Iterator

import pytest
from PIL import Image

from label_image.video.page import Page
from tflite_opencl.console.errors import RunError


@pytest.fixture
def page() -> Iterator[Page]:
    with Page(0, "camera, model.tflite") as made:
        yield made


def answer(page: Page, path: str, host: str | None = None) -> http.client.HTTPResponse:
    port = int(page.url.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path, headers={"Host": host or f"localhost:{port}"})
    return connection.getresponse()


def picture(shade: int = 0) -> Image.Image:
    return Image.new("RGB", (64, 48), (shade, 0, 0))


def test_the_page_needs_nothing_else(page: Page) -> None:
    text = answer(page, "/").read().decode()
    assert "/picture" in text
    assert "//" not in text


def test_the_state_has_results_and_times(page: Page) -> None:
    page.show(picture, ["0.8: 1 green"], "frame 3")
    page.tell("30.0 frames/s in")
    assert json.loads(answer(page, "/state").read()) == {
        "title": "camera, model.tflite", "frame": "frame 3", "results": ["0.8: 1 green"],
        "times": "30.0 frames/s in",
    }  # fmt: skip


def test_the_picture_goes_on(page: Page) -> None:
    page.show(lambda: picture(200), [], "")
    stream = answer(page, "/picture")
    for shade in (200, 90):
        length = 0
        while (line := stream.readline().strip()) != b"":
            if line.startswith(b"Content-Length:"):
                length = int(line.split(b":")[1])
        image = Image.open(io.BytesIO(stream.read(length))).convert("L")
        assert image.size == (64, 48)
        assert abs(image.resize((1, 1)).tobytes()[0] - shade * 0.299) < 4
        stream.readline()
        page.show(lambda: picture(90), [], "")


def test_nothing_is_drawn_where_nobody_looks(page: Page) -> None:
    drawn = []

    def draw() -> Image.Image:
        drawn.append(1)
        return picture()

    for _ in range(3):
        page.show(draw, [], "")
    assert drawn == [1]  # for whoever comes


def test_another_site_may_not_ask(page: Page) -> None:
    assert answer(page, "/state", "evil.example:80").status == 403
    assert answer(page, "/etc/passwd").status == 404


def test_a_port_that_is_taken(page: Page) -> None:
    port = int(page.url.rstrip("/").rpartition(":")[2])
    with pytest.raises(RunError, match=f"--show: port {port} cannot be taken"):
        Page(port, "")
