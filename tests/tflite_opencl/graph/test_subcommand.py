# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl graph`: its table and page, with and without a device."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from delegate import DeviceInfo, NoDeviceError
from delegate.inspect import write_model
from tests.support.nets import net
from tests.support.small_v2 import small_v2
from tests.support.tiers import slow
from tflite_opencl.command import main
from tflite_opencl.graph import layout as graph_layout
from tflite_opencl.graph import page as graph_page

GRAPH = small_v2()
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "v2.tflite"
    path.write_bytes(write_model(GRAPH))
    return str(path)


def no_device(*_: object, **__: object) -> None:
    raise NoDeviceError("no OpenCL platform was found")


def command(device: DeviceInfo, model: str, *more: str) -> list[str]:
    return ["graph", model, "--device", str(device.index), "--tune", "off", *more]


def test_table_equals_verbose_output(
    model: str, device: DeviceInfo, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(device, model, "--exclude_ops", "softmax")) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head == f"{device.name}: 14 of 15 nodes on OpenCL"
    assert rows[0].split()[:3] == ["node", "op", "inputs"]
    assert [row.split()[0] for row in rows[1:16]] == [str(n) for n in range(15)]
    assert rows[15].endswith("excluded by exclude_ops")
    assert rows[16:] == ["1 x SOFTMAX: excluded by exclude_ops"]


def test_graph_without_device(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(graph_page, "delegated", no_device)
    assert main(["graph", model]) == 0
    output = capsys.readouterr()
    head, *rows = output.out.splitlines()
    assert head == "where its nodes would run is not known: no OpenCL platform was found"
    assert len(rows) == 1 + len(GRAPH.nodes)
    assert all(row.endswith("not judged") for row in rows[1:])
    assert output.err == ""


def test_missing_package_is_reported_first(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.delattr("tflite_opencl.graph.subcommand.graph_facts")
    assert main(["graph", model, "--html", "page.html"]) == 255
    output = "ERROR: --html needs jinja2 (pip install tflite-opencl[suite])\n"
    assert capsys.readouterr().err == output


def page_of(path: Path) -> str:
    """Return a page; assert that it loads no resources."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\bsrc=|@import|url\((?!#)|fetch\(", text)
    assert set(re.findall(r'href="([^"]*)"', text)) == {"data:,"}
    return text


def test_page_has_every_node_with_device_and_time(
    model: str, device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "graph.html"
    excluded = ("--exclude_ops", "SOFTMAX")
    assert main(command(device, model, "--html", str(path), *excluded)) == 0
    output = capsys.readouterr().out
    assert output == f"{path}: 15 nodes; {device.name}: 14 of 15 nodes on OpenCL\n"
    text = page_of(path)
    for node in GRAPH.nodes:
        place = "cpu" if node.op == "SOFTMAX" else "device"
        assert f'<g class="node {place}" id="n{node.index}"' in text
        assert (
            f'<tr id="r{node.index}"><td class="number">{node.index}</td><td>{node.op}</td>' in text
        )
    assert '<td class="reason">excluded by exclude_ops</td>' in text
    rows = re.findall(r'<tr id="r(\d+)">.*?</td><td class="number">([^<]*)</td>', text)
    times = {int(node): time for node, time in rows}
    assert times[8] == "in 9"  # the ADD's kernel also computes the convolution
    assert times[13] == times[14] == ""  # RESHAPE has no launch; the CPU is not timed
    assert all(re.fullmatch(r"\d+ us|[\d.]+ ms", times[node]) for node in (0, 1, 9, 12))


def test_page_without_verdicts(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_page, "delegated", no_device)
    path = tmp_path / "graph.html"
    assert main(["graph", model, "--html", str(path)]) == 0
    text = page_of(path)
    assert "not known: no OpenCL platform was found" in text
    assert text.count('<g class="node unknown"') == 15


def test_boxes_do_not_overlap_and_are_below_inputs() -> None:
    pool, add = "AVERAGE_POOL_2D", "ADD"
    tree = [(pool, [0], 1), (pool, [0], 2), (add, [1, 2], 3), (pool, [0], 4), (add, [3, 4], 5)]
    deep = [(pool, [number], number + 1) for number in range(5, 305)]
    graph = net([*tree, *deep, (add, [305, 1], 306)])
    placed = graph_layout.layout_of(graph)
    assert len(placed.boxes) == len(graph.nodes) == 306
    for (x, y), (other_x, other_y) in combinations(placed.boxes.values(), 2):
        assert abs(x - other_x) >= graph_layout.WIDTH or abs(y - other_y) >= graph_layout.HEIGHT
    for source, target, _ in placed.lines:
        assert placed.boxes[source][1] < placed.boxes[target][1]
    assert len(placed.lines) == 2 + 2 + 300 + 2
    assert all(0 <= x <= placed.width and 0 <= y <= placed.height for x, y in placed.boxes.values())


def test_names_are_escaped_in_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_page, "delegated", no_device)
    path = tmp_path / "<b>.tflite"
    path.write_bytes(write_model(GRAPH))
    page = tmp_path / "graph.html"
    assert main(["graph", str(path), "--html", str(page)]) == 0
    assert "<b>" not in page_of(page)


@slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [400, 1280])
def test_page_works_in_browser(
    model: str, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_page, "delegated", no_device)
    path = tmp_path / "graph.html"
    assert main(["graph", model, "--html", str(path)]) == 0
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *(f"--user-data-dir={tmp_path}/profile", f"--window-size={width},900", "--dump-dom"),
            f"{path.as_uri()}#depthwise",
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "CONSOLE" not in done.stderr
    result = re.findall(r'<g class="node unknown found(?: chosen)?" id="n(\d+)"', done.stdout)
    assert result == ["1", "4", "7"]
    assert ">1 of 3<" in done.stdout
    about = done.stdout.partition('<aside id="about"')[2].partition("</aside>")[0]
    assert "<h2>1 DEPTHWISE_CONV_2D</h2>" in about
