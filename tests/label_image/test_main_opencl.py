# SPDX-License-Identifier: Apache-2.0
"""The command with --use_gpu on every OpenCL device, and with real models."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pyopencl as cl
import pytest
from PIL import Image

from delegate import DeviceInfo, list_devices
from delegate.run import inspection
from delegate.run.executor import Executor
from label_image import Classifier, RunError, timed_paths
from label_image.run_result import RunResult
from tests.support.command import (
    CPU_LINES,
    FILES,
    GPU_LINES,
    ROOT,
    ROWS,
    Run,
    absolute,
    interrupt,
    pooling_model,
    replace_input,
    run_process,
)
from tests.support.model import t
from tests.support.opencl import opencl_error
from tests.support.tiers import slow
from tests.support.without_tflite import make_so, needs_tflite
from tflite_opencl.harness.job import Job
from tflite_opencl.interpreters import numpy_kernels
from tflite_opencl.interpreters.runtime import find_runtime

SHARED = ROOT.parent / "shared"


@slow
def test_ctrl_c_on_opencl_is_130_and_shows_the_times_so_far(
    device: DeviceInfo, files: Path
) -> None:
    ran = interrupt(
        "INFO: Applied GPU delegate.",
        *absolute(files), "--use_gpu", "--device", str(device.index),
    )  # fmt: skip
    assert ran.code == 130
    assert "Traceback" not in "\n".join(ran.err)
    text = ran.table
    assert "of 100000000 timed runs INFO: invoked INFO: average time: T ms average OpenCL" in text
    assert "nodes 2 of 2 on OpenCL" in text
    assert "outputs not compared with the reference kernels: Ctrl-C ended the run before" in text


def test_ctrl_c_while_comparing_shows_what_is_known(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(job: Job, *others: Any) -> RunResult:
        if job.cpu_kernels == "judge":
            signal.raise_signal(signal.SIGINT)
        return honest(job, *others)

    honest, on_device = timed_paths.run, (*FILES, "--use_gpu", "--device", str(device.index))
    run(*on_device, "--compare=false")  # a device's first start may tell what it cannot do
    monkeypatch.setattr(timed_paths, "run", timed)
    ran = run(*on_device, "--json", "out.json")
    assert ran.code == 130
    assert ran.lines[: len(GPU_LINES)] == GPU_LINES
    text = ran.table
    assert "outputs not compared with the reference kernels: Ctrl-C ended the run before" in text
    document = json.loads((files / "out.json").read_text())
    assert document["interrupted"] is True
    assert document["cpu"]["results"] == document["gpu"]["results"]


@pytest.mark.parametrize("words", [(), ("--compare",)], ids=["short", "table"])
def test_opencl_prints_label_images_lines_then_a_summary(
    device: DeviceInfo, files: Path, run: Run, words: tuple[str, ...]
) -> None:
    ran = run(*FILES, "--use_gpu", "--device", str(device.index), *words)
    assert ran.code == 0
    assert ran.out == ["INFO: GPU delegate created."]
    assert ran.lines[: len(GPU_LINES)] == GPU_LINES
    table = " ".join(" ".join(ran.lines[len(GPU_LINES) :]).split())
    kernels, is_table = find_runtime().kernels("auto"), bool(words)
    assert (f"CPU, {kernels}" in table, f"CPU ({kernels})" in table) == (is_table, not is_table)
    assert "nodes 2 of 2 on OpenCL, in 1 partition" in table
    assert "equal to TFLite's reference kernels: 0 quanta" in table
    assert device.platform in table
    assert (device.driver in table, "load, ms" in table) == (is_table, is_table)
    assert table.endswith("--compare shows all times, loads and the tuning") == (not is_table)


@needs_tflite
def test_a_device_that_is_lost_while_it_prepares_leaves_the_cpu_s_rows(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> cl.Event:
        code = cl.status_code.OUT_OF_RESOURCES
        raise opencl_error(cl.RuntimeError, "enqueue_write_buffer", code)

    monkeypatch.setattr(cl, "enqueue_copy", lost)
    use = ("--use_gpu", "--device", str(device.index), "--tune", "off")
    ran = run(*FILES, *use, "--json", "out.json")
    assert ran.code == 2
    assert ran.lines[-3:] == ROWS
    failure = json.loads((files / "out.json").read_text())["failure"]
    assert failure.endswith("CL_OUT_OF_RESOURCES")
    assert f"ERROR: {failure}" in ran.lines


def test_a_device_that_computes_wrongly_does_not_take_the_result_with_it(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(self: Executor, inputs: Any, outputs: Any) -> None:
        honest(self, inputs, outputs)
        outputs[0][1:2] -= 7  # in random bytes, too: an array wraps around

    honest = Executor.run
    monkeypatch.setattr(Executor, "run", lie)
    ran = run(*FILES, "--use_gpu", "--device", str(device.index), "--json", "out.json")
    assert ran.code == 2
    assert [line for line in ran.lines if line in ROWS] == ROWS
    (error,) = ran.beginning("ERROR: ")
    assert error == (
        f"ERROR: {device.name} computes wrongly: its outputs are up to 7 quanta from TFLite's "
        "reference kernels"
    )
    document = json.loads((files / "out.json").read_text())
    assert document["max_difference_quanta_reference"] == 7
    assert document["failure"] == error.removeprefix("ERROR: ")
    assert document["gpu"]["results"] != document["cpu"]["results"]


@needs_tflite
def test_nodes_left_to_the_cpu_are_listed_with_their_reason(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    ran = run(
        *FILES, "--use_gpu", "--device", str(device.index), "--exclude_ops", "average_pool_2d",
        "--min_nodes_per_partition", "1", "--count", "10", "--json", "out.json",
    )  # fmt: skip
    assert ran.lines[: len(GPU_LINES)] == GPU_LINES
    document = json.loads((files / "out.json").read_text())
    assert (document["gpu"]["nodes"], document["gpu"]["delegated"]) == (2, 1)
    (refused,) = document["gpu"]["not_delegated"]
    assert (refused["node"], refused["op"]) == (0, "AVERAGE_POOL_2D")
    assert "exclude" in refused["reason"]
    assert document["max_difference_quanta_reference"] == 0
    assert document["speedup"] > 0


@needs_tflite
def test_a_delegate_that_takes_nothing_warns(device: DeviceInfo, files: Path, run: Run) -> None:
    ran = run(
        *FILES, "--use_gpu", "--device", str(device.index),
        "--exclude_ops=AVERAGE_POOL_2D,RESHAPE", "--compare=false",
    )  # fmt: skip
    assert ran.code == 0
    assert ran.beginning("WARN: ") == [
        "WARN: the OpenCL delegate took none of the model's 2 nodes: the CPU runs them all"
    ]
    assert any("0 of 2 on OpenCL, in 0 partitions" in line for line in ran.lines)


def test_a_float_model_is_not_compared_in_quanta(device: DeviceInfo, files: Path, run: Run) -> None:
    replace_input(t((1, 4, 4, 3), "float32"))(files)
    ran = run(
        *FILES, "--use_gpu", "--device", str(device.index), "-b", "0", "-s", "255",
        "--json", "out.json",
    )  # fmt: skip
    assert ran.code == 0
    assert "INFO: 0.8: 1 green" in ran.lines
    document = json.loads((files / "out.json").read_text())
    assert document["max_difference_quanta_reference"] is None
    assert document["not_compared"] == "the outputs are not quantised"


@needs_tflite
def test_profiling_shows_opencls_nodes(device: DeviceInfo, files: Path, run: Run) -> None:
    ran = run(
        *FILES, "--use_gpu", "--device", str(device.index), "--compare=false", "-p", "1", "-e", "1"
    )
    rows = [line for line in ran.lines if "OpCode" in line]
    assert len(rows) == 1
    assert re.fullmatch(
        r"INFO:  {0,9}\d+\.\d{3}, Subgraph   0, Node   0, OpCode   1, AVERAGE_POOL_2D", rows[0]
    )


@needs_tflite
def test_event_times_that_are_of_no_use_are_the_hosts(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "_clock_of", lambda event: (0, 0, 0, 0))
    on_device = ("--use_gpu", "--device", str(device.index), "--compare=false")
    ran = run(*FILES, *on_device, "-p", "1")
    assert ran.code == 0
    (row,) = [line for line in ran.lines if "OpCode" in line]
    assert float(row.split()[1].rstrip(",")) > 0
    assert any("timers do not count the work" in line for line in ran.lines)


def test_profiling_shows_where_the_time_goes(device: DeviceInfo, files: Path, run: Run) -> None:
    on_device = ("--use_gpu", "--device", str(device.index), "--compare=false")
    plain = run(*FILES, *on_device)
    ran = run(*FILES, *on_device, "-p", "1", "--profiling_order", "time")
    assert ran.code == 0
    assert ran.out == plain.out
    assert any(re.match(r" +0 +AVERAGE_POOL_2D +1x4x4x3 -> 1x1x1x3 ", line) for line in ran.lines)
    assert any(re.match(r" all of it +[\d.]+ +100.0 %$", line) for line in ran.lines)


@needs_tflite
def test_a_trace_is_written_in_both_formats(
    device: DeviceInfo, files: Path, tmp_path: Path, run: Run
) -> None:
    on_device = (*FILES, "--use_gpu", "--device", str(device.index), "--compare=false")
    plain = run(*on_device)
    for name in ("run.pftrace", "run.json"):
        path = tmp_path / name
        ran = run(*on_device, "--trace", str(path))
        assert (ran.code, ran.out) == (0, plain.out)
        line = f"INFO: the trace is in {path}: open it at https://ui.perfetto.dev"
        assert line in ran.lines
        assert path.stat().st_size > 1000
    names = {each["name"] for each in json.loads(path.read_text())["traceEvents"]}
    assert {"invoke", "partition", "upload", "download"} <= names


def test_a_trace_of_the_cpu_alone_is_not_written(files: Path, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "run.json"
    ran = run(*FILES, "--trace", str(path))
    assert ran.code == 0
    assert f"WARN: {path} is not written: no node ran on OpenCL" in ran.lines
    assert not path.exists()


def test_a_trace_without_perfetto_is_one_line(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = run(*FILES, "--use_gpu", "--trace", "run.pftrace")
    assert ran.code == 255
    assert ran.lines == [
        "ERROR: cannot write run.pftrace: it needs perfetto (pip install tflite-opencl[trace]); "
        "FILE.json does without"
    ]


@slow
@needs_tflite
def test_json_on_stdout_stands_alone(device: DeviceInfo, files: Path) -> None:
    ran = run_process(
        *absolute(files),
        "--use_gpu",
        "--device",
        str(device.index),
        "--json",
        "-",
        "--verbose",
        "1",
    )
    assert ran.code == 0
    document = json.loads("\n".join(ran.out))
    assert document["gpu"]["device"] == device.name
    assert document["max_difference_quanta_reference"] == 0
    assert "INFO: GPU delegate created." in ran.err
    assert "Interpreter has 1 subgraphs." in ran.err


def test_the_device_can_be_named_in_the_environment(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFLITE_OPENCL_DEVICE", str(device.index))
    ran = run(*FILES, "--use_gpu", "--compare=false", "--json", "out.json")
    assert ran.code == 0
    document = json.loads((files / "out.json").read_text())
    assert (document["gpu"]["device"], document["gpu"]["driver"]) == (device.name, device.driver)


@needs_tflite
def test_a_device_that_matches_none_lists_those_there_are(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    ran = run(*FILES, "--use_gpu", "--device", "no such thing")
    assert ran.code == 2
    assert device.name in ran.lines[2]
    assert ran.lines[3:] == ["WARN: the CPU runs the model instead", *CPU_LINES[2:]]


def test_list_devices_shows_them_all_on_stdout(device: DeviceInfo, run: Run) -> None:
    ran = run("--list_devices")
    assert ran.code == 0
    assert ran.err == []
    first_cells = [line.split()[0] for line in ran.out if line.strip() and line[1].isdigit()]
    assert first_cells == [str(info.index) for info in list_devices()]
    assert device.driver in "".join(ran.out)


GOLDEN = {  # LABEL_IMAGE.md 1.8, x86-64
    ("mobilenet_v1_1.0_224_quant", "reference"): [
        "0.776471: 653 military uniform",
        "0.105882: 907 Windsor tie",
        "0.0117647: 458 bow tie, bow-tie, bowtie",
        "0.00784314: 835 suit, suit of clothes",
        "0.00784314: 668 mortarboard",
    ],
    ("mobilenet_v2_1.0_224_quant", "reference"): [
        "0.901961: 653 military uniform",
        "0.027451: 835 suit, suit of clothes",
        "0.0117647: 907 Windsor tie",
        "0.0117647: 458 bow tie, bow-tie, bowtie",
    ],
    ("tf2_mobilenet_v2_1.0_224_ptq", "reference"): [
        "0.913725: 653 military uniform",
        "0.0235294: 835 suit, suit of clothes",
    ],
}


def real_words(model: str) -> list[str]:
    paths = [
        SHARED / f"models/{model}.tflite",
        SHARED / "labels/imagenet_labels.txt",
        SHARED / "images/grace_hopper_517x606.bmp",
    ]
    for path in paths:
        if not path.is_file():
            pytest.skip(f"no ../shared/{path.relative_to(SHARED)}")
    words = zip(("--tflite_model", "--labels", "--image"), map(str, paths), strict=True)
    return [word for pair in words for word in pair]


@pytest.mark.model
@pytest.mark.parametrize(("model", "kernels"), GOLDEN, ids=[f"{m}-{k}" for m, k in GOLDEN])
def test_golden_rows_on_the_cpu(run: Run, model: str, kernels: str) -> None:
    golden = GOLDEN[model, kernels]
    ran = run(*real_words(model), "--cpu_kernels", kernels, "-w", "0")
    assert ran.code == 0
    rows = ran.lines[4:]
    assert rows[: len(golden)] == [f"INFO: {row}" for row in golden]


@slow
@pytest.mark.model
def test_golden_rows_of_the_whole_command_line_on_opencl(device: DeviceInfo, run: Run) -> None:
    ran = run(
        "--gpu_backend=cl", "--use_gpu=true", "--verbose", "1",
        *real_words("mobilenet_v1_1.0_224_quant"), "--warmup_runs", "1", "-c", "1",
        "--device", str(device.index),
    )  # fmt: skip
    assert ran.code == 0
    golden = [f"INFO: {row}" for row in GOLDEN["mobilenet_v1_1.0_224_quant", "reference"]]
    assert [line for line in ran.lines if re.match(r"INFO: 0\.\d+: \d+ ", line)] == golden
    assert "nodes    31 of 31 on OpenCL, in 1 partition" in ran.lines
    assert ran.out[0] == "INFO: GPU delegate created."
    assert sum("(delegated by OpenCL)" in line for line in ran.out) == 31


@pytest.fixture
def without_tflite(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one in which no TFLite is installed."""
    make_so(monkeypatch)


@pytest.mark.usefixtures("without_tflite")
def test_without_tflite_opencl_runs_the_model_alone(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    ran = run(*FILES, "--use_gpu", "--device", str(device.index), "--json", "out.json")
    assert ran.code == 0
    (missing,) = ran.beginning("WARN: no TFLite runtime: ")
    assert missing.endswith(": only OpenCL runs the model, and numpy is what it is compared with")
    assert [row for row in ROWS if row in ran.lines] == ROWS
    assert "nodes 2 of 2 on OpenCL" in ran.table
    assert "as fast" not in ran.table
    assert "CPU failed: no TFLite runtime" in ran.table
    assert "outputs equal to numpy's reference kernels: 0 quanta" in ran.table
    document = json.loads((files / "out.json").read_text())
    assert document["gpu"]["average_ms"] > 0
    assert document["max_difference_quanta_reference"] == 0
    assert "cpu" not in document


@pytest.mark.usefixtures("without_tflite")
def test_without_tflite_numpy_finds_a_device_that_computes_wrongly(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    average = numpy_kernels._FORMS["AVERAGE_POOL_2D"]

    def off_by_one(*given: Any) -> Any:
        return average.compute(*given) ^ 1

    wrong = average._replace(compute=off_by_one)
    monkeypatch.setitem(numpy_kernels._FORMS, "AVERAGE_POOL_2D", wrong)  # type: ignore[arg-type]
    ran = run(*FILES, "--use_gpu", "--device", str(device.index))
    assert ran.code == 2
    text = f"{device.name} computes wrongly: its outputs are up to"
    assert any(text in line and "from numpy's reference kernels" in line for line in ran.lines)


@pytest.mark.usefixtures("without_tflite")
def test_without_tflite_ops_that_numpy_lacks_are_reported(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(numpy_kernels._FORMS, "AVERAGE_POOL_2D")  # type: ignore[arg-type]
    ran = run(*FILES, "--use_gpu", "--device", str(device.index))
    assert ran.code == 0
    assert "outputs not compared with the reference kernels: " in ran.table
    assert "(AVERAGE_POOL_2D): numpy's reference has no such op" in ran.table


@pytest.mark.usefixtures("without_tflite")
def test_without_tflite_what_opencl_cannot_do_is_an_error(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    here = ("--use_gpu", "--device", str(device.index))
    ran = run(*FILES, *here, "--exclude_ops", "AVERAGE_POOL_2D")
    assert ran.code == 255
    assert ran.lines[-1].startswith(
        "ERROR: OpenCL does not run the whole model (node 0, AVERAGE_POOL_2D: excluded by "
        "exclude_ops), and no TFLite runtime: ai-edge-litert"
    )
    ran = run(*FILES, "--use_gpu", "--device", "no such device")
    assert ran.code == 2
    assert "the CPU runs the model instead" not in ran.table
    ran = run(*FILES)
    assert ran.code == 255
    assert ran.lines[-1].startswith("ERROR: no TFLite runtime: ai-edge-litert")


@pytest.mark.usefixtures("without_tflite")
def test_without_tflite_a_class_of_python_runs_on_a_device(device: DeviceInfo) -> None:
    with Classifier(pooling_model(t((1, 4, 4, 3), "uint8", 1.0)), device=device.index) as classify:
        assert classify.device == device.name
        assert classify(Image.new("RGB", (4, 4), (51, 204, 102)))[0].index == 1
    with pytest.raises(RunError, match="no TFLite runtime"):
        Classifier(pooling_model(t((1, 4, 4, 3), "uint8", 1.0)))
