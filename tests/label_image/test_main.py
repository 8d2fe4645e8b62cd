# SPDX-License-Identifier: Apache-2.0
"""The command as a whole: lines, streams, exit codes, and bad input."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo, Node, Options, Tensor, Verdict, list_devices, write_model
from delegate.runtime.executor import Executor
from label_image import __main__ as command
from label_image.open_path import OpenPath
from tests.support.model import chain_model, graph_of, op, t
from tests.support.process import run_python
from tflite_opencl import __version__
from tflite_opencl.common import fetch
from tflite_opencl.common.runtime import Runtime, find_runtime

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
XNNPACK_LINE = "INFO: Created TensorFlow Lite XNNPACK delegate for CPU."


@dataclass
class Ran:
    """What a command gave."""

    code: int
    out: list[str]
    err: list[str]

    @property
    def lines(self) -> list[str]:
        """Give stderr's lines that are not TFLite's own, times replaced."""
        return [
            re.sub(r"average time: [0-9.e-]+ ms", "average time: T ms", line)
            for line in self.err
            if line != XNNPACK_LINE
        ]


Run = Callable[..., Ran]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process."""

    def run(*arguments: str) -> Ran:
        code = command.main(arguments)
        out, err = capfd.readouterr()
        assert "Traceback" not in err or any("verbose" in word for word in arguments)
        return Ran(code, out.splitlines(), err.splitlines())

    return run


def run_process(*arguments: str, **environment: str) -> Ran:
    done = subprocess.run(
        [sys.executable, "-m", "label_image", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | environment,
        timeout=300,
        check=False,
    )
    return Ran(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())


def pooling_nodes(pixels: Tensor) -> list[Node]:
    """Return nodes that give each channel's average, so that a picture's colour ranks."""
    scale = None if pixels.quantization is None else 0.5
    size = {"stride_w": 4, "stride_h": 4, "filter_width": 4, "filter_height": 4}
    pooled = t((1, 1, 1, 3), pixels.dtype, scale)
    flat = t((1, 3), pixels.dtype, scale)
    return [
        op("AVERAGE_POOL_2D", [pixels], [pooled], {"padding": "VALID", **size}),
        op("RESHAPE", [pooled], [flat], {"new_shape": [1, 3]}),
    ]


def pooling_model(pixels: Tensor) -> bytes:
    """Return the model of these nodes."""
    return chain_model(pooling_nodes(pixels))


def pooling_of_two(folder: Path) -> None:
    """Write a model of two pictures, which are added before."""
    first, second = t((1, 4, 4, 3), "uint8", 0.5, 0, name="left"), t((1, 4, 4, 3), "uint8", 0.5, 0)
    added = t((1, 4, 4, 3), "uint8", 0.5, 0)
    nodes = [op("ADD", [first, second], [added]), *pooling_nodes(added)]
    (folder / "model.tflite").write_bytes(chain_model(nodes))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with model.tflite, picture.bmp and labels.txt, and go there."""
    monkeypatch.chdir(tmp_path)
    model = pooling_model(t((1, 4, 4, 3), "uint8", 0.5, 0))
    (tmp_path / "model.tflite").write_bytes(model)
    Image.new("RGB", (4, 4), (51, 204, 102)).save(tmp_path / "picture.bmp")
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    return tmp_path


FILES = ("-m", "model.tflite", "-i", "picture.bmp", "-l", "labels.txt")


def absolute(folder: Path) -> list[str]:
    """Return the words of FILES for a command that starts in another folder."""
    return [str(folder / word) if "." in word else word for word in FILES]


ROWS = ["INFO: 0.8: 1 green", "INFO: 0.4: 2 blue", "INFO: 0.2: 0 red"]
CPU_LINES = [
    "INFO: Loaded model model.tflite",
    "INFO: resolved reporter",
    "INFO: invoked",
    "INFO: average time: T ms",
    *ROWS,
]
GPU_LINES = [*CPU_LINES[:2], "INFO: Applied GPU delegate.", *CPU_LINES[2:]]


# --- label_image's own lines


def test_a_run_on_the_cpu_prints_label_images_lines_on_stderr(files: Path, run: Run) -> None:
    ran = run(*FILES)
    assert ran.code == 0
    assert ran.out == []
    assert ran.lines == CPU_LINES


def test_num_results_limits_the_rows(files: Path, run: Run) -> None:
    assert run(*FILES, "-r", "1").lines[-2:] == ["INFO: average time: T ms", ROWS[0]]


def test_labels_fewer_than_classes_leave_the_index_alone(files: Path, run: Run) -> None:
    (files / "labels.txt").write_text("red\n")
    assert run(*FILES).lines[-3:] == ["INFO: 0.8: 1", "INFO: 0.4: 2", "INFO: 0.2: 0 red"]


def test_verbose_shows_tensors_on_stderr_and_the_interpreters_state_on_stdout(
    files: Path, run: Run
) -> None:
    ran = run(*FILES, "--verbose", "1")
    assert ran.lines[2:12] == [
        "INFO: tensors size: 3",
        "INFO: nodes size: 2",
        "INFO: inputs: 1",
        "INFO: input(0) name: t0",
        "INFO: 0: t0, 48, 3, 0.5, 0",
        "INFO: 1: t1, 3, 3, 0.5, 0",
        "INFO: 2: t2, 3, 3, 0.5, 0",
        f"INFO: len: {(files / 'picture.bmp').stat().st_size}",
        "INFO: width, height, channels: 4, 4, 3",
        "INFO: input: 0",
    ]
    assert ran.out[0] == "Interpreter has 1 subgraphs."
    assert "Node   0 Operator Builtin Code   1 AVERAGE_POOL_2D" in ran.out


def test_xnnpack_asked_for_is_announced(files: Path, run: Run) -> None:
    ran = run(*FILES, "--use_xnnpack=true")
    assert ran.out == ["INFO: XNNPACK delegate created."]
    assert "INFO: Applied XNNPACK delegate." in ran.lines


def test_flags_of_missing_hardware_warn_once_each_and_go_on(files: Path, run: Run) -> None:
    ran = run(*FILES, "-a", "1", "-j", "1", "-g", "1", "--gpu_backend=gl")
    assert ran.code == 0
    assert [line.split()[1] for line in ran.lines[:4]] == [
        "--accelerated", "--gl_backend", "--hexagon_delegate", "--gpu_backend=gl",
    ]  # fmt: skip
    assert all(line.startswith("WARN: ") for line in ran.lines[:4])
    assert ran.lines[4:] == CPU_LINES


def test_profiling_on_the_cpu_says_that_there_is_nothing(files: Path, run: Run) -> None:
    ran = run(*FILES, "-p", "1")
    assert ran.code == 0
    assert [line for line in ran.lines if line.startswith("WARN: ")] == [
        "WARN: TFLite's Python runtime times no nodes on the CPU: only OpenCL's are shown"
    ]


@pytest.mark.parametrize("kernels", ["auto", "builtin", "reference"])
def test_cpu_kernels_can_be_chosen(files: Path, run: Run, kernels: str) -> None:
    assert run(*FILES, "--cpu_kernels", kernels).lines == CPU_LINES


def test_several_inputs_are_warned_about_and_the_others_are_zeros(files: Path, run: Run) -> None:
    pooling_of_two(files)
    ran = run(*FILES)
    assert ran.code == 0
    assert "WARN: the model has 2 inputs: the picture goes to the first, the others are zeros" in (
        ran.lines
    )
    assert ran.lines[-3:] == ROWS


# --- exit codes, bad input


def test_an_unknown_option_shows_the_usage_on_stderr(run: Run) -> None:
    ran = run("--nosuch")
    assert ran.code == 255
    assert ran.out == []
    assert ran.err[0].startswith("usage: label_image")
    assert ran.err[-1] == "ERROR: unknown option --nosuch (label_image --help shows all flags)"


def test_a_wrong_value_is_one_line(run: Run) -> None:
    ran = run("-c", "0")
    assert ran.code == 255
    assert ran.err == [
        "ERROR: -c/--count: '0' is not a positive number (label_image --help shows all flags)"
    ]


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_a_success(run: Run, flag: str) -> None:
    ran = run(flag)
    assert ran.code == 0
    assert ran.err == []
    assert "Our own flags:" in ran.out


def test_version_names_tool_runtime_and_drivers(run: Run) -> None:
    runtime = find_runtime()
    ran = run("--version")
    assert ran.code == 0
    assert ran.out[0] == f"label_image (tflite-opencl) {__version__}"
    assert ran.out[1] == f"TFLite runtime: {runtime.name} {runtime.version}"
    assert ran.out[2].startswith("OpenCL driver: ")


def replace_input(tensor: Tensor) -> Callable[[Path], None]:
    def replace(folder: Path) -> None:
        (folder / "model.tflite").write_bytes(pooling_model(tensor))

    return replace


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def overwrite(name: str, data: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return spoil


def without_nodes(folder: Path) -> None:
    pixels = t((1, 4, 4, 3), "uint8", 0.5, 0)
    (folder / "model.tflite").write_bytes(write_model(graph_of([], [pixels], [pixels])))


def without_inputs(folder: Path) -> None:
    constant = t((1, 4), "uint8", 0.5, 0, data=[[1, 2, 3, 4]])
    output = t((4,), "uint8", 0.5, 0)
    node = op("RESHAPE", [constant], [output], {"new_shape": [4]})
    (folder / "model.tflite").write_bytes(chain_model([node]))


BAD_INPUT: list[tuple[str, Callable[[Path], Any], str]] = [
    ("no-model", remove("model.tflite"), "ERROR: Failed to mmap model model.tflite"),
    ("empty-model", overwrite("model.tflite", b""), "ERROR: .+"),
    ("foreign-model", overwrite("model.tflite", b"GIF89a" * 99), "ERROR: .+"),
    ("no-nodes", without_nodes, "ERROR: .*no operator.*"),
    ("no-input", without_inputs, "ERROR: .*has no input.*"),
    ("string-input", replace_input(t((1, 4, 4, 3), "string")),
     "ERROR: cannot handle input type 5 yet"),
    ("unknown-size",
     replace_input(t((1, 1, 1, 3), "uint8", 0.5, 0, shape_signature=(-1, -1, -1, 3))),
     "ERROR: the model's input 1 x \\? x \\? x 3 has no fixed size.*"),
    ("no-picture", remove("picture.bmp"), "FATAL: input file picture.bmp not found"),
    ("foreign-picture", overwrite("picture.bmp", b"TFL3" * 99), "ERROR: .*picture picture.bmp: .+"),
    ("truncated-picture", overwrite("picture.bmp", b"BM" + bytes(70)),
     "ERROR: .*picture picture.bmp: .+"),
    ("no-labels", remove("labels.txt"), "ERROR: Labels file labels.txt not found"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "line"), [case[1:] for case in BAD_INPUT], ids=[case[0] for case in BAD_INPUT]
)
def test_bad_input_is_one_clear_line(
    files: Path, run: Run, spoil: Callable[[Path], Any], line: str
) -> None:
    spoil(files)
    ran = run(*FILES)
    assert ran.code == 255
    assert ran.out == []
    assert re.fullmatch(line, ran.lines[-1])
    assert all(text.startswith("INFO: ") for text in ran.lines[:-1])


def test_a_batch_of_unknown_size_is_one(files: Path, run: Run) -> None:
    replace_input(t((1, 4, 4, 3), "uint8", 0.5, 0, shape_signature=(-1, 4, 4, 3)))(files)
    assert run(*FILES).lines == CPU_LINES


def test_missing_labels_are_noticed_after_inference(files: Path, run: Run) -> None:
    assert run(*FILES[:-1], "nosuch.txt").lines == [
        *CPU_LINES[:4],
        "ERROR: Labels file nosuch.txt not found",
    ]


def test_a_folder_as_model_says_so(files: Path, run: Run) -> None:
    assert run("-m", ".", *FILES[2:]).lines == ["ERROR: Failed to mmap model .: Is a directory"]


def test_an_official_model_that_was_not_fetched_says_how(files: Path, run: Run) -> None:
    ran = run("-m", "mobilenet_v1_1.0_224_quant", *FILES[2:])
    assert ran.code == 255
    assert "label_image --fetch mobilenet_v1_1.0_224_quant downloads it" in ran.lines[-1]


def test_a_fetched_model_is_meant_by_its_name(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("label_image.inputs.fetched", lambda name: files / "model.tflite")
    ran = run("-m", "mobilenet_v1_1.0_224_quant", *FILES[2:])
    assert ran.lines[0] == f"INFO: Loaded model {files / 'model.tflite'}"
    assert ran.lines[1:] == CPU_LINES[1:]


def test_fetching_an_unknown_name_lists_the_known(run: Run) -> None:
    ran = run("--fetch", "resnet")
    assert ran.code == 255
    assert all(name in ran.err[-1] for name in fetch.OFFICIAL)


def test_fetching_a_model_brings_its_labels(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fetched = []

    def fake(name: str, progress: Callable[[int, int], None]) -> Path:
        progress(1, 2)
        progress(2, 2)
        fetched.append(name)
        return tmp_path / name

    monkeypatch.setattr(command, "fetch", fake)
    ran = run("--fetch", "mobilenet_v2_1.0_224_quant")
    assert ran.code == 0
    assert fetched == ["mobilenet_v2_1.0_224_quant", "imagenet_labels"]
    assert any("fetching mobilenet_v2_1.0_224_quant" in line for line in ran.err)


def test_verbose_adds_the_traceback(files: Path, run: Run) -> None:
    ran = run("-m", "nosuch", "--verbose", "1")
    assert ran.code == 255
    assert ran.err[0] == "ERROR: Failed to mmap model nosuch"
    assert "Traceback (most recent call last):" in ran.err


def test_what_nobody_expected_is_one_line_too(
    files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("label_image.one_picture.to_input", broken)
    ran = run(*FILES)
    assert ran.code == 255
    assert ran.err[-1] == "ERROR: KeyError: 'a bug' (not expected: --verbose 1 shows where)"


class BrokenInterpreter:
    """Stand in for TFLite's interpreter where a run fails in the middle."""

    def __init__(self, delegates: Sequence[object], real: Any) -> None:
        self._broken = bool(delegates)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def invoke(self) -> None:
        if self._broken:
            raise RuntimeError("Node number 2 (OpenCLDelegate) failed to invoke.")
        self._real.invoke()


class FakeDelegate:
    """Stand in for a delegate that takes all nodes and whose device then fails."""

    device = DeviceInfo(0, "platform", "1.2", "name", "vendor", "OpenCL 1.2", "1", "gpu")
    verdicts = (Verdict(0, "AVERAGE_POOL_2D", None), Verdict(1, "RESHAPE", None))
    partitions = ((0, 1),)
    failure = "clWaitForEvents: DEVICE_NOT_AVAILABLE"

    def __init__(self, model: object, options: Options) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def failing_device(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Runtime.interpreter

    def interpreter(self: Runtime, model: Any, threads: Any, kernels: str, delegates: Any) -> Any:
        return BrokenInterpreter(delegates, real(self, model, threads, kernels))

    monkeypatch.setattr(Runtime, "interpreter", interpreter)
    monkeypatch.setattr("label_image.interpreter.OpenCLDelegate", FakeDelegate)


@pytest.mark.usefixtures("failing_device")
def test_a_run_that_fails_in_the_middle_is_repeated_on_the_cpu(files: Path, run: Run) -> None:
    ran = run(*FILES, "--use_gpu", "--json", "out.json")
    assert ran.code == 2
    assert ran.lines == [
        *GPU_LINES[:3],
        "ERROR: clWaitForEvents: DEVICE_NOT_AVAILABLE",
        "WARN: the CPU runs the model instead",
        *CPU_LINES[2:],
    ]
    document = json.loads((files / "out.json").read_text())
    assert document["failure"] == "clWaitForEvents: DEVICE_NOT_AVAILABLE"
    assert "gpu" not in document
    assert [row["label"] for row in document["cpu"]["results"]] == ["green", "blue", "red"]


def test_a_model_that_tflite_cannot_run_says_why(files: Path, run: Run) -> None:
    pixels, output = t((1, 4, 4, 3), "uint8", 0.5, 0), t((1, 3), "uint8", 0.5, 0)
    model = chain_model([op("fake-op-double", [pixels], [output], is_custom=True)])
    (files / "model.tflite").write_bytes(model)
    ran = run(*FILES)
    assert ran.code == 255
    assert "fake-op-double" in ran.lines[-2]
    assert ran.lines[-1] == "ERROR: Failed to allocate tensors!"


# --- JSON


def test_json_of_a_cpu_run_has_no_gpu_part(files: Path, run: Run) -> None:
    ran = run(*FILES, "--json", "out.json", "-t", "1")
    assert ran.code == 0
    runtime = find_runtime()
    document = json.loads((files / "out.json").read_text())
    assert list(document) == ["model", "image", "runtime", "cpu"]
    assert document["runtime"] == f"{runtime.name} {runtime.version}"
    assert document["cpu"]["threads"] == 1
    assert document["cpu"]["results"][0] == {
        "index": 1, "label": "green", "score": float(np.float32(0.8)),
    }  # fmt: skip


def test_json_that_cannot_be_written_is_an_error_before_the_run(files: Path, run: Run) -> None:
    ran = run(*FILES, "--json", "no/such/folder.json")
    assert ran.code == 255
    assert ran.lines == [
        f"ERROR: cannot write no/such/folder.json: there is no folder {files / 'no' / 'such'}"
    ]


# --- a delegate library of others

DELEGATE_SOURCE = """
#include <stddef.h>
#include <string.h>
/* TfLiteDelegate of tflite/core/c/common.h: it accepts every graph and takes nothing of it. */
typedef struct Delegate {
  void* data; int (*prepare)(void*, struct Delegate*); void *from, *to, *free;
  long long flags; void* opaque;
} Delegate;
static int prepare(void* context, Delegate* delegate) { return (int)delegate->flags; }
static Delegate only;
void* tflite_plugin_create_delegate(char** keys, char** values, size_t n,
                                    void (*report)(const char*)) {
  memset(&only, 0, sizeof only);
  only.prepare = prepare;
  for (size_t i = 0; i < n; i++)
    if (!strcmp(keys[i], "wish") && !strcmp(values[i], "none")) {
      report("no such wish");
      return NULL;
    }
  return &only;
}
void tflite_plugin_destroy_delegate(void* delegate) {}
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("delegate")
    (folder / "delegate.c").write_text(DELEGATE_SOURCE)
    try:
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", "libdelegate.so", "delegate.c"], cwd=folder, check=True
        )
    except FileNotFoundError:
        pytest.skip("no C compiler (cc) for a delegate library")
    return str(folder / "libdelegate.so")


def test_an_external_delegate_is_announced(files: Path, run: Run, library: str) -> None:
    ran = run(*FILES, f"--external_delegate_path={library}", "--json", "out.json")
    assert ran.code == 0
    assert ran.out == ["INFO: EXTERNAL delegate created."]
    assert ran.lines == [*CPU_LINES[:2], "INFO: Applied EXTERNAL delegate.", *CPU_LINES[2:]]
    assert "external" in json.loads((files / "out.json").read_text())


def test_an_external_delegate_gets_its_options(files: Path, run: Run, library: str) -> None:
    options = "--external_delegate_options=a:b;wish:none"
    ran = run(*FILES, f"--external_delegate_path={library}", options)
    assert ran.code == 255
    assert ran.out == []
    assert ran.lines[-1].startswith(f"ERROR: cannot load the delegate {library}: ")
    assert ran.lines[-1].endswith("no such wish")


@pytest.mark.parametrize("path", ["libnosuch.so", "picture.bmp"])
def test_a_delegate_library_that_does_not_load_is_an_error(
    files: Path, run: Run, path: str
) -> None:
    ran = run(*FILES, "--external_delegate_path", f"./{path}")
    assert ran.code == 255
    assert ran.lines[-1].startswith(f"ERROR: cannot load the delegate ./{path}: ")
    assert len(ran.lines) == 3


# --- without OpenCL


def test_without_opencl_the_cpu_finishes_the_run_and_the_code_is_2(files: Path) -> None:
    ran = run_process(
        *absolute(files),
        "--use_gpu",
        OCL_ICD_VENDORS=str(files / "none"),
    )
    assert ran.code == 2
    assert ran.out == []
    assert re.fullmatch("ERROR: .*OpenCL.*install.*", ran.lines[2])
    assert ran.lines[3] == "WARN: the CPU runs the model instead"
    assert ran.lines[4:] == CPU_LINES[2:]


def test_without_opencl_list_devices_fails_and_version_does_not(tmp_path: Path) -> None:
    listed = run_process("--list_devices", OCL_ICD_VENDORS=str(tmp_path / "none"))
    assert listed.code == 2
    assert listed.out == []
    version = run_process("--version", OCL_ICD_VENDORS=str(tmp_path / "none"))
    assert version.code == 0
    assert version.out[-1].startswith("OpenCL driver: none (")


# --- pipes and signals


def test_a_closed_pipe_is_quiet_and_keeps_the_exit_code(files: Path) -> None:
    line = " ".join([sys.executable, "-m label_image", *absolute(files), "--verbose 1"])
    script = f"{line} 2>/dev/null; echo $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"({script}) | head -1"],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout == "Interpreter has 1 subgraphs.\n"
    assert done.stderr == "0\n"


def interrupt(last_line: str, *arguments: str) -> Ran:
    """Start the command, press Ctrl-C a second after that line of its, and wait."""
    with subprocess.Popen(
        [sys.executable, "-m", "label_image", *arguments, "-c", "100000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as child:  # fmt: skip
        assert child.stderr is not None
        lines = []
        for line in child.stderr:
            lines.append(line)
            if line.rstrip() == last_line:
                break
        time.sleep(1.0)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    return Ran(child.returncode, out.splitlines(), ("".join(lines) + err).splitlines())


def test_ctrl_c_on_the_cpu_is_130_without_a_traceback(files: Path) -> None:
    ran = interrupt("INFO: resolved reporter", *absolute(files))
    assert ran.code == 130
    assert all(line.startswith("INFO: ") for line in ran.err)


# --- on every OpenCL device


def test_ctrl_c_on_opencl_is_130_without_a_traceback(device: DeviceInfo, files: Path) -> None:
    ran = interrupt(
        "INFO: Applied GPU delegate.",
        *absolute(files), "--use_gpu", "--device", str(device.index),
    )  # fmt: skip
    assert ran.code == 130
    assert all(line.startswith("INFO: ") for line in ran.err)


def test_opencl_prints_label_images_lines_then_the_table(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    ran = run(*FILES, "--use_gpu", "--device", str(device.index))
    assert ran.code == 0
    assert ran.out == ["INFO: GPU delegate created."]
    assert ran.lines[: len(GPU_LINES)] == GPU_LINES
    table = " ".join(" ".join(ran.lines[len(GPU_LINES) :]).split())
    assert f"CPU, {find_runtime().kernels('auto')}" in table
    assert "nodes 2 of 2 on OpenCL, in 1 partition" in table
    assert "equal to TFLite's reference kernels: 0 quanta" in table
    assert device.driver in table


def test_a_device_that_computes_wrongly_does_not_take_the_result_with_it(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(self: Executor, inputs: Any, outputs: Any) -> None:
        honest(self, inputs, outputs)
        outputs[0][1] -= 7

    honest = Executor.run
    monkeypatch.setattr(Executor, "run", lie)
    ran = run(*FILES, "--use_gpu", "--device", str(device.index), "--json", "out.json")
    assert ran.code == 2
    assert [line for line in ran.lines if line in ROWS] == ROWS
    (error,) = [line for line in ran.lines if line.startswith("ERROR: ")]
    assert error == (
        f"ERROR: {device.name} computes wrongly: its outputs are up to 7 quanta from TFLite's "
        "reference kernels"
    )
    document = json.loads((files / "out.json").read_text())
    assert document["max_difference_quanta_reference"] == 7
    assert document["failure"] == error.removeprefix("ERROR: ")
    assert document["gpu"]["results"] != document["cpu"]["results"]


def test_nodes_left_to_the_cpu_are_listed_with_their_reason(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    ran = run(
        *FILES, "--use_gpu", "--device", str(device.index), "--exclude_ops", "average_pool_2d",
        "--min_nodes_per_partition", "1", "--json", "out.json",
    )  # fmt: skip
    assert ran.lines[: len(GPU_LINES)] == GPU_LINES
    document = json.loads((files / "out.json").read_text())
    assert (document["gpu"]["nodes"], document["gpu"]["delegated"]) == (2, 1)
    (left,) = document["gpu"]["not_delegated"]
    assert (left["node"], left["op"]) == (0, "AVERAGE_POOL_2D")
    assert "exclude" in left["reason"]
    assert document["max_difference_quanta_reference"] == 0
    assert document["speedup"] > 0


def test_a_delegate_that_takes_nothing_warns(device: DeviceInfo, files: Path, run: Run) -> None:
    ran = run(
        *FILES, "--use_gpu", "--device", str(device.index),
        "--exclude_ops=AVERAGE_POOL_2D,RESHAPE", "--compare=false",
    )  # fmt: skip
    assert ran.code == 0
    assert [line for line in ran.lines if line.startswith("WARN: ")] == [
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


def test_a_child_process_gives_the_same_lines(device: DeviceInfo, files: Path, run: Run) -> None:
    ran = run(*FILES, "--use_gpu", "--device", str(device.index), "--device_timeout", "300")
    assert ran.code == 0
    assert ran.out == ["INFO: GPU delegate created."]
    assert ran.lines[: len(GPU_LINES)] == GPU_LINES


def test_profiling_shows_opencls_nodes(device: DeviceInfo, files: Path, run: Run) -> None:
    ran = run(
        *FILES, "--use_gpu", "--device", str(device.index), "--compare=false", "-p", "1", "-e", "1"
    )
    rows = [line for line in ran.lines if "OpCode" in line]
    assert len(rows) == 1
    assert re.fullmatch(
        r"INFO:  {0,9}\d+\.\d{3}, Subgraph   0, Node   0, OpCode   1, AVERAGE_POOL_2D", rows[0]
    )


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


def test_a_device_that_matches_none_lists_those_there_are(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    ran = run(*FILES, "--use_gpu", "--device", "no such thing")
    assert ran.code == 2
    assert device.name in ran.lines[2]
    assert ran.lines[3:] == ["WARN: the CPU runs the model instead", *CPU_LINES[2:]]


def test_a_misspelt_op_names_what_is_close(device: DeviceInfo, files: Path, run: Run) -> None:
    ran = run(*FILES, "--use_gpu", "--exclude_ops", "AVERAGE_POOL2D")
    assert ran.code == 255
    assert "there is no op AVERAGE_POOL2D; there are AVERAGE_POOL_2D" in ran.lines[-1]


def test_list_devices_shows_them_all_on_stdout(device: DeviceInfo, run: Run) -> None:
    ran = run("--list_devices")
    assert ran.code == 0
    assert ran.err == []
    first_cells = [line.split()[0] for line in ran.out if line.strip() and line[1].isdigit()]
    assert first_cells == [str(info.index) for info in list_devices()]
    assert device.driver in "".join(ran.out)


# --- several pictures


@pytest.fixture
def pictures(files: Path) -> Path:
    """Add pictures of one colour each, in folders; the names say which."""
    colours = {"red": (204, 102, 51), "green": (51, 204, 102), "blue": (51, 102, 204)}
    for name, colour in colours.items():
        path = files / "pictures" / name / f"{name}.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (9, 7), colour).save(path)
    (files / "pictures" / "notes.txt").write_text("no picture")
    return files


SEVERAL = ("-m", "model.tflite", "-l", "labels.txt")
FOLDER = ("-i", "pictures")
FOLDER_ROWS = [
    "pictures/blue/blue.png\t0.8: 2 blue",
    "pictures/green/green.png\t0.8: 1 green",
    "pictures/red/red.png\t0.8: 0 red",
]


def test_a_folder_gives_a_row_a_picture_on_stdout(pictures: Path, run: Run) -> None:
    ran = run(*SEVERAL, *FOLDER)
    assert ran.code == 0
    assert ran.out == FOLDER_ROWS
    assert ran.lines[:2] == CPU_LINES[:2]
    table = " ".join(" ".join(ran.lines[2:]).split())
    assert "pictures/s" in table
    assert "pictures 3 classified decoding" in table


def test_further_arguments_are_further_pictures(pictures: Path, run: Run) -> None:
    ran = run("pictures/red", *SEVERAL, "-i", "picture.bmp", "pictures/blue/blue.png", "-r", "2")
    assert ran.code == 0
    assert ran.out == [
        "picture.bmp\t0.8: 1 green\t0.4: 2 blue",
        "pictures/red/red.png\t0.8: 0 red\t0.4: 1 green",
        "pictures/blue/blue.png\t0.8: 2 blue\t0.4: 1 green",
    ]


@pytest.mark.parametrize("words", [["picture.bmp"], ["-i", "picture.bmp", "--batch", "1"]])
def test_a_single_picture_asked_for_as_several_is_a_row(
    pictures: Path, run: Run, words: list[str]
) -> None:
    assert run(*SEVERAL, *words).out == ["picture.bmp\t0.8: 1 green"]


@pytest.mark.parametrize("batch", ["1", "2", "8"])
def test_batches_on_the_cpu_give_the_same_rows(pictures: Path, run: Run, batch: str) -> None:
    ran = run(*SEVERAL, *FOLDER, "--batch", batch)
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)


def test_pictures_that_cannot_be_read_cost_a_line_each_and_the_exit_code(
    pictures: Path, run: Run
) -> None:
    (pictures / "pictures" / "a.jpg").write_bytes(b"no picture")
    ran = run("nosuch.png", *SEVERAL, "pictures", "--json", "out.json")
    assert ran.code == 255
    assert ran.out == FOLDER_ROWS
    assert [line for line in ran.lines if line.startswith("ERROR: ")] == [
        "ERROR: input file nosuch.png not found",
        "ERROR: cannot read picture pictures/a.jpg: not a picture, or its beginning is damaged",
    ]
    document = json.loads((pictures / "out.json").read_text())
    assert document["pictures"][0] == {
        "image": "nosuch.png",
        "error": "input file nosuch.png not found",
    }
    assert [entry["image"] for entry in document["pictures"]] == [
        "nosuch.png", "pictures/a.jpg", *(row.split("\t")[0] for row in FOLDER_ROWS),
    ]  # fmt: skip
    assert (document["classified"], document["unreadable"]) == (3, 2)
    assert document["pictures"][2]["results"] == [
        {"index": 2, "label": "blue", "score": float(np.float32(0.8))}
    ]


SEVERAL_BAD = [
    ("empty-folder", ["empty"], "ERROR: there is no picture in the folder empty"),
    ("no-labels", ["picture.bmp", "-l", "none.txt"], "ERROR: Labels file none.txt not found"),
    ("no-model", ["picture.bmp", "-m", "none"], "ERROR: Failed to mmap model none"),
    ("no-json", ["picture.bmp", "--json", "no/a.json"], "ERROR: cannot write no/a.json: .+"),
]


@pytest.mark.parametrize(
    ("words", "line"), [case[1:] for case in SEVERAL_BAD], ids=[case[0] for case in SEVERAL_BAD]
)
def test_what_no_picture_can_do_without_is_an_error_before_them(
    pictures: Path, run: Run, words: list[str], line: str
) -> None:
    (pictures / "empty").mkdir()
    ran = run(*SEVERAL, *words)
    assert (ran.code, ran.out) == (255, [])
    assert re.fullmatch(line, ran.lines[-1])


def test_an_input_that_is_no_picture_is_an_error_before_them(pictures: Path, run: Run) -> None:
    replace_input(t((1, 48), "uint8", 0.5, 0))(pictures)
    ran = run(*SEVERAL, *FOLDER)
    assert (ran.code, ran.out) == (255, [])
    assert "1x48 is no picture" in ran.lines[-1]


def test_flags_for_one_picture_say_that_they_do_nothing(pictures: Path, run: Run) -> None:
    ran = run(*SEVERAL, *FOLDER, "-c", "3", "-p", "1")
    assert ran.code == 0
    assert [line for line in ran.lines if line.startswith("WARN: ")] == [
        "WARN: --count does nothing with several pictures",
        "WARN: --profiling does nothing with several pictures",
    ]


def test_json_of_several_pictures_stands_alone_on_stdout(pictures: Path) -> None:
    words = [str(pictures / word) if "." in word else word for word in SEVERAL]
    ran = run_process(*words, str(pictures / "pictures"), "--json", "-")
    assert ran.code == 0
    document = json.loads("\n".join(ran.out))
    assert len(document["pictures"]) == 3
    assert document["cpu"]["pictures_per_second"] > 0
    assert any("pictures/s" in line for line in ran.err)


def test_a_run_that_is_broken_off_leaves_the_old_json(pictures: Path, run: Run) -> None:
    (pictures / "out.json").write_text("old")
    (pictures / "model.tflite").write_bytes(
        chain_model([op("fake", [t((1, 4, 4, 3), "uint8", 0.5)], [t((3,), "uint8", 0.5)],
                        is_custom=True)])
    )  # fmt: skip
    assert run(*SEVERAL, *FOLDER, "--json", "out.json").code == 255
    assert (pictures / "out.json").read_text() == "old"
    assert sorted(path.name for path in pictures.iterdir() if path.name[0] == ".") == []


def test_an_external_delegate_takes_several_pictures(
    pictures: Path, run: Run, library: str
) -> None:
    ran = run(*SEVERAL, *FOLDER, f"--external_delegate_path={library}", "--json", "out.json")
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)
    assert "INFO: Applied EXTERNAL delegate." in ran.lines
    assert "pictures_per_second" in json.loads((pictures / "out.json").read_text())["external"]


@pytest.fixture
def many(pictures: Path) -> Path:
    """Return a folder of 20000 names of one picture."""
    folder = pictures / "many"
    folder.mkdir()
    for number in range(20000):
        os.link(pictures / "picture.bmp", folder / f"{number}.bmp")
    return folder


def test_several_pictures_end_when_nobody_reads_the_rows(pictures: Path, many: Path) -> None:
    words = " ".join(str(pictures / word) if "." in word else word for word in SEVERAL)
    script = f"{sys.executable} -m label_image {words} {many} 2>&1 >&3 | tail -3 >&2"
    done = subprocess.run(
        ["bash", "-c", f"{{ {script}; }} 3>&1 | head -1"],
        capture_output=True, text=True, cwd=ROOT, timeout=300, check=True,
    )  # fmt: skip
    assert done.stdout == f"{many}/0.bmp\t0.8: 1 green\n"
    classified = re.search(r"pictures +(\d+) classified", done.stderr)
    assert classified is not None
    assert int(classified[1]) < 15000


def test_ctrl_c_among_several_pictures_is_130_without_a_traceback(
    pictures: Path, many: Path
) -> None:
    words = [str(pictures / word) if "." in word else word for word in SEVERAL]
    with subprocess.Popen(
        [sys.executable, "-m", "label_image", *words, str(many)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert "\t" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert all(line.startswith("INFO: ") for line in err.splitlines())


MEMORY = """
import os, sys
from label_image import __main__ as command
from label_image import streams

def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

rows, sizes = 0, {}
write = streams.write

def count(stream, text):
    global rows
    rows += "picture.bmp" in text
    sizes[rows] = resident_kib() if rows in (1000, 4000) else 0
    return True

streams.write = count
code = command.main([*sys.argv[1:], "--json", os.devnull])
assert code == 0, code
assert rows == 4000, rows
print(sizes[4000] - sizes[1000])
"""


def test_memory_stays_flat_over_thousands_of_pictures(pictures: Path) -> None:
    words = [str(pictures / word) if "." in word else word for word in SEVERAL]
    many = [str(pictures / "picture.bmp")] * 4000
    grown_kib = int(run_python(MEMORY, *words, "--batch", 8, *many).split()[-1])
    assert grown_kib < 512


def test_opencl_batches_several_pictures(device: DeviceInfo, pictures: Path, run: Run) -> None:
    words = (*SEVERAL, *FOLDER, "--use_gpu", "--device", str(device.index), "--json", "out.json")
    for batch in ([], ["--batch", "1"], ["--batch", "2"], ["--batch", "5"]):
        ran = run(*words, *batch)
        assert (ran.code, ran.out) == (0, FOLDER_ROWS)
        assert "INFO: Applied GPU delegate." in ran.lines
        table = " ".join(" ".join(ran.lines).split())
        assert "nodes 2 of 2 on OpenCL, in 1 partition" in table
        assert "equal to TFLite's reference kernels: 0 quanta" in table
        document = json.loads((pictures / "out.json").read_text())
        assert [e["max_difference_quanta_reference"] for e in document["pictures"]] == [0, 0, 0]
        assert document["gpu"]["batch"] == int(batch[1] if batch else 1)
        assert document["gpu"]["device"] == device.name
        assert document["max_difference_quanta_reference"] == 0
        assert document["speedup"] > 0


def test_a_model_opencl_does_not_take_whole_runs_one_by_one_and_says_so(
    device: DeviceInfo, pictures: Path, run: Run
) -> None:
    ran = run(
        *SEVERAL, *FOLDER, "--use_gpu", "--device", str(device.index), "--batch", "2",
        "--exclude_ops", "average_pool_2d", "--min_nodes_per_partition", "1",
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)
    assert [line for line in ran.lines if line.startswith("WARN: ")] == [
        "WARN: --batch: OpenCL runs the pictures one by one through TFLite: --exclude_ops leaves "
        "nodes to the CPU"
    ]
    assert "OpenCL, one by one" in " ".join(" ".join(ran.lines).split())


def test_without_comparison_several_pictures_run_on_opencl_alone(
    device: DeviceInfo, pictures: Path, run: Run
) -> None:
    ran = run(
        *SEVERAL, *FOLDER, "--use_gpu", "--device", str(device.index), "--batch", "2",
        "--compare=false", "--json", "out.json",
    )  # fmt: skip
    assert (ran.code, ran.out) == (0, FOLDER_ROWS)
    document = json.loads((pictures / "out.json").read_text())
    assert "cpu" not in document
    assert document["not_compared"] == "--compare=false"
    assert list(document["pictures"][0]) == ["image", "results"]


def test_a_wrong_device_s_pictures_are_the_cpu_s_and_the_code_is_2(
    device: DeviceInfo, pictures: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(self: OpenPath, pixels: Any) -> Any:
        outputs = honest(self, pixels)
        if self.delegation is not None:
            outputs[0][0][0, 1] ^= 64
        return outputs

    honest = OpenPath.run
    monkeypatch.setattr(OpenPath, "run", lie)
    ran = run(*SEVERAL, *FOLDER, "--use_gpu", "--device", str(device.index), "--json", "out.json")
    assert (ran.code, ran.out) == (2, FOLDER_ROWS)
    document = json.loads((pictures / "out.json").read_text())
    assert document["failure"].endswith("reference kernels, in 3 of 3 pictures")
    assert document["max_difference_quanta_reference"] == 64


# --- real models


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
