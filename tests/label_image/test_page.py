# SPDX-License-Identifier: Apache-2.0
"""--report: what its page has on each path, where something is missing, and in a browser."""

from __future__ import annotations

import base64
import dataclasses
import html
import io
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo
from delegate.inspect import read_model, write_model
from delegate.run.executor import Executor
from label_image.page import facts, write
from label_image.page.facts import NodeRow
from label_image.page.write import MOST_ROWS, chart_of, picture_uri
from tests.support.command import FILES, ROWS, Run, absolute, interrupt, run_process
from tests.support.scenes import detector, segmenter
from tests.support.small_v2 import small_v2
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.boards.facts import Info, Rows
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.oracle.values import input_sets

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
RESULTS = "\n".join(row.removeprefix("INFO: ") for row in ROWS)
OPENCL = ("--use_gpu", "--tune", "off")


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask no driver, which takes many seconds; one test does."""
    if request.node.originalname == "test_the_device_that_ran_is_described":
        return

    def sections(info: Info) -> list[tuple[str, Rows]]:
        return [("Board", [("model", "a board")]), ("Devices", [("none", "no device")])]

    monkeypatch.setattr(facts, "facts_here", lambda board, choose: choose(()))
    monkeypatch.setattr(facts, "sections", sections)


def page_of(path: Path) -> str:
    """Return a page, which loads nothing."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"@import|url\(|fetch\(|<script|<link rel=\"stylesheet", text)
    assert set(re.findall(r'href="([^"]*)"', text)) == {"data:,"}
    assert all(each.startswith("data:image/") for each in re.findall(r'src="([^"]*)"', text))
    assert text.endswith("</html>\n")
    return text


def table(text: str, caption: str) -> list[list[str]]:
    """Return the cells of the table with this caption."""
    found = re.search(rf"<caption>{caption}</caption>(.*?)</table>", text, re.DOTALL)
    assert found, caption
    rows = re.findall(r"<tr>(.*?)</tr>", found[1], re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[html.unescape(cell) for cell in row] for row in cells]


def pairs(text: str, caption: str) -> Mapping[str, str]:
    return {row[0]: row[1] for row in table(text, caption)}


def results(text: str) -> Mapping[str, str]:
    found = re.findall(r"<h3>(.*?)</h3>\s*<pre[^>]*>(.*?)</pre>", text, re.DOTALL)
    return {html.unescape(name): html.unescape(lines) for name, lines in found}


def test_both_paths_are_on_the_page(files: Path, run: Run, device: DeviceInfo) -> None:
    ran = run(*FILES, *OPENCL, "--device", str(device.index), "-c", "3", "--report", "r.html")
    assert ran.code == 0
    assert ran.err[-1] == "INFO: the report is in r.html"
    text = page_of(files / "r.html")
    assert f"<title>label_image: model.tflite on {html.escape(device.name)}</title>" in text
    command = html.unescape(re.findall(r'aria-label="The command">(.*?)</pre>', text)[0])
    assert command.startswith("label_image -m model.tflite -i picture.bmp -l labels.txt --use_gpu")
    summary = pairs(text, "What came of it")
    assert summary["model"].startswith("model.tflite, ")
    assert (summary["picture"], summary["nodes"]) == (
        "picture.bmp, 4 x 4 pixels",
        "2 of 2 on OpenCL, in 1 partition",
    )
    assert summary["timed runs"] == "3, after 2 others, 4 threads"
    assert summary["outputs"] == "equal to TFLite's reference kernels: 0 quanta"
    assert next(iter(results(text))) == "OpenCL"
    assert [*results(text).values()] == [RESULTS, RESULTS]
    heading, *times = table(text, "Timed runs")
    assert heading[1:] == [*results(text)]
    assert times[0][0] == "average, ms"
    assert 'src="data:image/jpeg;base64,' in text
    assert pairs(text, "Nodes that run on OpenCL together") == {"1": "2 nodes: 0-1"}
    assert pairs(text, "Board") == {"model": "a board"}
    assert "numpy" in pairs(text, "What was installed")


@pytest.mark.parametrize("model", [detector(), segmenter()], ids=["boxes", "mask"])
def test_the_picture_has_what_was_found_in_it(files: Path, run: Run, model: bytes) -> None:
    (files / "model.tflite").write_bytes(model)
    Image.new("RGB", (400, 200), (102, 204, 102)).save("green.png")
    ran = run("-m", "model.tflite", "-i", "green.png", "--report", "r.html")
    assert ran.code == 0
    text = page_of(files / "r.html")
    (encoded,) = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', text)
    with Image.open(io.BytesIO(base64.b64decode(encoded))) as shown:
        assert shown.size == (400, 200)
        far = np.abs(np.asarray(shown).astype(int) - (102, 204, 102)).max(axis=2) > 60
    assert far.mean() > 0.02
    assert pairs(text, "What came of it")["picture"] == "green.png, 400 x 200 pixels"


@slow
def test_each_node_has_its_times(files: Path, run: Run, device: DeviceInfo) -> None:
    graph = small_v2()
    (files / "v2.tflite").write_bytes(write_model(graph))
    words = ("-m", "v2.tflite", "-i", "picture.bmp", "-l", "labels.txt", "--report", "r.html")
    excluded = ("--exclude_ops", "SOFTMAX")
    assert run(*words, *OPENCL, *excluded, "--device", str(device.index)).code == 0
    text = page_of(files / "r.html")
    heading, *rows = table(text, "All nodes")
    assert heading == ["node", "op", "shape", "ran on", "OpenCL", "CPU", "why"]
    assert [row[1] for row in rows] == [node.op for node in graph.nodes]
    is_time = re.compile(r"\d+\.\d us|\d+\.\d\d ms").fullmatch
    assert all(is_time(row[5]) for row in rows)
    assert [number for number, row in enumerate(rows) if not is_time(row[4])] == [8, 13, 14]
    assert rows[8][6] == "node 9's kernel computes it, too"
    assert rows[13][6] == "it launches nothing"
    assert (rows[14][3], rows[14][6]) == ("CPU", "excluded by exclude_ops")
    assert table(text, "Why OpenCL did not take these nodes")[1] == [
        "SOFTMAX", "1", "excluded by exclude_ops", "14",
    ]  # fmt: skip
    assert text.count('<rect class="device"') == 12
    assert text.count('<rect class="cpu"') == 15
    assert re.search(r">8 CONV_2D 1x[x\d]+ \(OpenCL: in 9\)<", text)
    parts = pairs(text, "What one run with OpenCL is made of: .*?")
    assert "TFLite, and the nodes on the CPU" in parts


def test_nothing_is_delegated(files: Path, run: Run, device: DeviceInfo) -> None:
    excluded = ("--exclude_ops", "AVERAGE_POOL_2D,RESHAPE", "--device", str(device.index))
    assert run(*FILES, *OPENCL, *excluded, "--report", "r.html").code == 0
    text = page_of(files / "r.html")
    assert "took none of the model&#39;s 2 nodes: the CPU ran them all." in text
    assert "<p>No node ran on OpenCL.</p>" in text
    assert next(iter(results(text))).endswith("beside an idle OpenCL delegate")
    assert [row[3] for row in table(text, "All nodes")[1:]] == ["CPU", "CPU"]
    assert 'class="device"' not in text


def test_a_device_that_computes_wrongly_is_named_first(
    files: Path, run: Run, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(self: Executor, inputs: Any, outputs: Any) -> None:
        honest(self, inputs, outputs)
        outputs[0][1:2] -= 7

    honest = Executor.run
    monkeypatch.setattr(Executor, "run", lie)
    assert run(*FILES, *OPENCL, "--device", str(device.index), "--report", "r.html").code == 2
    text = page_of(files / "r.html")
    (alert,) = re.findall(r'role="alert">(.*?)</p>', text)
    assert html.unescape(alert).startswith(f"{device.name} computes wrongly: its outputs are up to")
    assert pairs(text, "What came of it")["outputs"].startswith("DIFFER from TFLite's reference")
    ours, theirs = results(text).values()
    assert ours != theirs == RESULTS


@slow
def test_without_a_device(files: Path) -> None:
    page = files / "r.html"
    words = (*absolute(files), *OPENCL, "--report", str(page))
    assert run_process(*words, OCL_ICD_VENDORS="/nowhere").code == 2
    text = page_of(page)
    alert = re.findall(r'role="alert">(.*?)</p>', text)
    assert alert[0].startswith("OpenCL failed, and the CPU ran the model: no OpenCL platform")
    assert len(results(text)) == 1
    assert results(text).popitem()[1] == RESULTS
    assert "OCL_ICD_VENDORS names /nowhere" in pairs(text, "What to do next")["1."]
    assert pairs(text, "Variables that .*?")["OCL_ICD_VENDORS"] == "/nowhere"
    assert '<rect class="cpu"' in text


@slow
def test_the_device_that_ran_is_described(device: DeviceInfo) -> None:
    taken = Delegation(device.name, device.platform, device.driver, (), ())
    shown = facts.machine(taken, True)
    (described,) = (
        rows for title, rows in shown if title == f"Device {device.index}: {device.name}"
    )
    assert dict(described)["self-test"] == "passed"
    assert sum(title.startswith("Device") for title, _ in shown) == 1


def test_without_use_gpu(files: Path, run: Run) -> None:
    assert run(*FILES, "--report", "r.html").code == 0
    text = page_of(files / "r.html")
    assert pairs(text, "What came of it")["OpenCL"] == "--use_gpu was not given"
    assert pairs(text, "Devices") == {"not asked": "--use_gpu was not given"}
    assert "<p>OpenCL judged no node.</p>" in text
    assert "alert" not in text


def test_an_external_delegate_tells_no_nodes(files: Path, run: Run, library: str) -> None:
    assert run(*FILES, "--external_delegate_path", library, "--report", "r.html").code == 0
    text = page_of(files / "r.html")
    assert [*results(text)] == ["external delegate"]
    assert "An external delegate tells no times of nodes." in text
    assert "<rect" not in text


@slow
def test_a_run_in_a_child_is_not_timed_by_nodes(files: Path, run: Run, device: DeviceInfo) -> None:
    words = ("--device", str(device.index), "--isolate", "--report", "r.html")
    assert run(*FILES, *OPENCL, *words).code == 0
    assert "with --isolate OpenCL runs in a child process" in page_of(files / "r.html")


def test_names_are_text(files: Path, run: Run) -> None:
    (files / "<b>.bmp").write_bytes((files / "picture.bmp").read_bytes())
    (files / "labels.txt").write_text("red\n<i>green</i>\nblue\n")
    assert run(*FILES, "-i", "<b>.bmp", "--report", "r.html").code == 0
    text = page_of(files / "r.html")
    assert not re.search(r"<b>|<i>green", text)
    assert "1 <i>green</i>" in results(text).popitem()[1]


def test_other_outputs_are_the_same(files: Path, run: Run) -> None:
    plain, reported = run(*FILES), run(*FILES, "--report", "r.html")
    assert reported.out == plain.out
    assert reported.lines[:-2] == plain.lines


@pytest.mark.parametrize("path", [".", "nowhere/r.html"])
def test_a_page_that_cannot_be_written(files: Path, run: Run, path: str) -> None:
    ran = run(*FILES, "--report", path)
    assert ran.code == 255
    assert [line for line in ran.err if line.startswith("ERROR")] == ran.err[-1:]
    assert ran.err[-1].startswith(f"ERROR: cannot write {path}: ")


def test_an_old_page_stays_where_the_new_one_fails(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "r.html").write_text("old")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(write, "machine", fail)
    assert run(*FILES, "--report", "r.html").code == 130
    assert [path.name for path in files.iterdir() if "r.html" in path.name] == ["r.html"]
    assert (files / "r.html").read_text() == "old"


@slow
@needs_tflite
def test_after_ctrl_c_there_is_no_page(files: Path) -> None:
    page = files / "r.html"
    ran = interrupt("INFO: resolved reporter", *absolute(files), "--report", str(page))
    assert ran.code == 130
    assert f"WARN: {page} is not written: Ctrl-C ended the run" in ran.err
    assert not page.exists()


def test_without_jinja2_the_line_says_what_to_install(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = run(*FILES, "--report", "r.html")
    assert ran.code == 255
    assert (
        ran.err[-1]
        == "ERROR: cannot write r.html: it needs jinja2 (pip install tflite-opencl[suite])"
    )


def test_several_pictures_have_no_page(files: Path, run: Run) -> None:
    ran = run("-m", "model.tflite", "-l", "labels.txt", "picture.bmp", "picture.bmp",
              "--report", "r.html")  # fmt: skip
    assert ran.code == 64
    assert "--report is for one picture" in ran.err[-1]
    assert not (files / "r.html").exists()


def times_of(content: bytes) -> dict[int, float | str]:
    graph = read_model(content)
    first, *others = input_sets(graph)[0]
    job = Job(content, first, threads=1, other_inputs=tuple(enumerate(others, 1)))
    return facts.cpu_times(job, graph, find_runtime())


def test_every_node_of_a_model_runs_alone_on_the_cpu() -> None:
    found = times_of(write_model(small_v2()))
    assert [*found] == [*range(15)]
    assert all(isinstance(spent, float) and spent > 0 for spent in found.values())


def test_a_node_that_does_not_run_alone_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    made = facts.write_model

    def refuse(graph: Any) -> bytes:
        if graph.nodes[0].op == "ADD":
            raise ValueError("no such thing")
        return made(graph)

    monkeypatch.setattr(facts, "write_model", refuse)
    found = times_of(made(small_v2()))
    assert found[9] == "it does not run alone: no such thing"
    assert sum(isinstance(spent, float) for spent in found.values()) == 14


def test_nodes_that_take_too_long_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_SECONDS", -1.0)
    found = times_of(write_model(small_v2()))
    assert [*found.values()] == [facts._OVER] * 15


def test_bars_are_in_order_and_the_shortest_may_be_left_out() -> None:
    rows = [NodeRow(n, "ADD", "1x2", "CPU", None, float(n), "") for n in range(1, 101)]
    drawn = chart_of(rows)
    labels = [int(label.split()[0]) for label, _ in drawn]
    assert labels == [*range(101 - MOST_ROWS, 101)]
    (longest,), (half,) = drawn[-1][1], drawn[MOST_ROWS - 51][1]
    assert (longest[2], half[2]) == ("100.0 us", "50.0 us")
    assert longest[1] == pytest.approx(2 * half[1], abs=0.02)
    assert chart_of([dataclasses.replace(rows[0], cpu=None)]) == []


def test_a_large_picture_is_shown() -> None:
    uri = picture_uri(np.zeros((1000, 10, 3), np.uint8))
    assert uri.startswith("data:image/jpeg;base64,/9j/")


def luminance(colour: str) -> float:
    """Return the relative luminance of "#rgb" or "#rrggbb". Source: WCAG 2.2."""
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_page_can_be_read_by_all(files: Path, run: Run) -> None:
    assert run(*FILES, "--report", "r.html").code == 0
    text = page_of(files / "r.html")
    assert '<html lang="en">' in text
    assert text.count("<table") == text.count("<caption>") > 5
    assert all(' alt="' in each for each in re.findall(r"<img .*?>", text))
    assert re.search(r'role="img" aria-describedby="nodes-table" aria-label="Time of each', text)
    assert 'id="nodes-table"' in text
    schemes = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    assert len(schemes) == 3  # light, dark, printed
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w+)", scheme))
        for name, least in {"text": 7, "soft": 4.5, "bad": 4.5, "device": 3, "cpu": 3}.items():
            for behind in ("page", "shade"):
                pair = sorted([luminance(colours[name]), luminance(colours[behind])])
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= least, (name, behind)


@slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium")
@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_browser_shows_it(files: Path, run: Run, width: int, scheme: str, tmp_path: Path) -> None:
    graph = small_v2()
    (files / "v2.tflite").write_bytes(write_model(graph))
    assert run("-m", "v2.tflite", "-i", "picture.bmp", "-l", "labels.txt",
               "--report", "r.html").code == 0  # fmt: skip
    assert CHROMIUM is not None
    shot = tmp_path / "shot.png"
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *(f"--user-data-dir={tmp_path}/profile", f"--window-size={width},900"),
            f"--blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}",
            f"--screenshot={shot}",
            (files / "r.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    with Image.open(shot) as picture:
        assert picture.size == (width, 900)
        corner = picture.convert("L").getpixel((2, 2))
        assert isinstance(corner, int)
        assert (corner < 60) == (scheme == "dark")
        assert len(picture.convert("L").getcolors(256) or ()) > 20  # there is text on it
