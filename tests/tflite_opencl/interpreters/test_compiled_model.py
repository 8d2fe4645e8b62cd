# SPDX-License-Identifier: Apache-2.0
"""LiteRT's CompiledModel with the library that `tflite-opencl library` makes."""

from __future__ import annotations

import ctypes
import gc
import itertools
import json
import logging
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate import DeviceError, DeviceInfo, OpenCLDelegate
from delegate.host.external import _Accelerator
from delegate.host.partition_kernel import Arrays, PartitionKernel
from delegate.inspect import accelerators, read_model, write_model
from tests.support.compare import RUNTIME, inputs_for, interpreter, invoke
from tests.support.model import chain_model, op, t
from tests.support.nets import CHAIN, assert_equal_outputs, conv_pool
from tests.support.process import ROOT
from tests.support.shared import model_path
from tests.support.subgraphs import write_subgraphs
from tests.support.tiers import slow
from tflite_opencl.command import main as tools
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.command import main as conformance
from tflite_opencl.interpreters import compiled_model
from tflite_opencl.interpreters.compiled_model import OPTIONS_VARIABLE, CompiledInterpreter
from tflite_opencl.interpreters.plugin_library import ACCELERATOR

litert = pytest.importorskip("ai_edge_litert.compiled_model")
pytest.importorskip("ai_edge_litert.environment")

OPTIONS = {"tune": "off", "min_nodes_per_partition": 1}
# One of each kind: LiteRT's interface does not depend on the size of models.
SHARED = [
    "ad01_int8",
    "deeplabv3_mnv2_pascal_quant",
    "ds_cnn_s_quantized_int16",
    "kws_ref_model",
    "mobilenet_v1_0.25_128",
    "mobilenet_v1_0.25_128_quant",
    "movenet_single_pose_lightning_ptq",
    "split_concat",
    "vww_96_int8",
]
Make = Callable[..., CompiledInterpreter]


@pytest.fixture
def make(built: Path, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Return a function that compiles a model for the device."""
    monkeypatch.setenv(OPTIONS_VARIABLE, "")  # so that it is restored

    def compiled(model: bytes | str, **options: Any) -> CompiledInterpreter:
        own = {"device": str(device.index), **OPTIONS, **options}
        return CompiledInterpreter(RUNTIME, model, str(built.parent), own)

    yield compiled
    gc.collect()
    assert accelerators() == []


def with_delegate(model: bytes | str, device: DeviceInfo, **options: Any) -> Any:
    """Return an interpreter with the delegate."""
    delegate = OpenCLDelegate(model, device.index, **{**OPTIONS, **options})
    return interpreter(model, delegate, "auto")


def assert_as_with_delegate(model: bytes | str, make: Make, device: DeviceInfo) -> None:
    graph = read_model(model)
    ours, expected = make(model), with_delegate(model, device)
    assert ours.taken(graph) == {node.index for node in graph.nodes}
    assert ours._model.is_fully_accelerated()
    assert ours.delegate is not None
    assert ours.delegate.device == device
    for inputs in inputs_for(graph)[:2]:
        assert_equal_outputs(invoke(ours, inputs), invoke(expected, inputs))


@slow
@pytest.mark.parametrize("graph", [CHAIN, conv_pool()], ids=["chain", "conv"])
def test_compiled_model_equals_interpreter(
    graph: Any, make: Make, device: DeviceInfo, tmp_path: Path
) -> None:
    model = write_model(graph)
    (tmp_path / "model.tflite").write_bytes(model)
    assert_as_with_delegate(model, make, device)
    assert_as_with_delegate(str(tmp_path / "model.tflite"), make, device)


@slow
@pytest.mark.parametrize("name", SHARED)
def test_shared_models(name: str, make: Make, device: DeviceInfo) -> None:
    assert_as_with_delegate(model_path(name), make, device)


@slow
def test_both_signatures(make: Make, device: DeviceInfo) -> None:
    graphs = [CHAIN, conv_pool()]
    model = write_subgraphs(*graphs, signatures=(0, 1))
    ours, expected = make(model), with_delegate(model, device)
    compiled = ours._model
    assert compiled.is_fully_accelerated()
    for number, graph in enumerate(graphs):
        (values,) = inputs_for(graph)[0]
        buffers = compiled.create_input_buffers(number), compiled.create_output_buffers(number)
        buffers[0][0].write(values)
        compiled.run_by_index(number, *buffers)
        (wanted,) = expected.get_signature_runner(f"graph {number}")(x0=values).values()
        assert_equal_outputs([buffers[1][0].read(wanted.size, np.uint8)], [wanted.reshape(-1)])


@slow
def test_batch(make: Make, device: DeviceInfo) -> None:
    graph = conv_pool(has_open_batch=True)
    ours, expected = make(write_model(graph)), with_delegate(write_model(graph), device)
    shape = [3, *graph.inputs[0].shape[1:]]
    for interp in (ours, expected):
        interp.resize_tensor_input(interp.get_input_details()[0]["index"], shape)
        interp.allocate_tensors()
    inputs = [np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)]
    assert_equal_outputs(invoke(ours, inputs), invoke(expected, inputs))


@slow
def test_scalar_variable_in_first_run(make: Make, device: DeviceInfo) -> None:
    # TFLite's READ_VARIABLE makes scalars dynamic.
    case = next(case for case in all_cases() if case.name == "read_variable/int32/before-scalar")
    graph = case.make()
    ours, expected = make(write_model(graph)), with_delegate(write_model(graph), device)
    assert ours.taken(graph) == {node.index for node in graph.nodes}
    for inputs in inputs_for(graph):
        assert_equal_outputs(invoke(ours, inputs), invoke(expected, inputs))


@slow
def test_c_program_of_documents(built: Path, device: DeviceInfo, tmp_path: Path) -> None:
    program = ROOT / "docs" / "programs" / "compiled_model.c"
    litert_folder = Path(str(litert.__file__)).parent
    flags = ["-Wall", "-Wextra", "-Werror", f"{litert_folder}/libLiteRt.so"]
    arguments = ["-o", tmp_path / "program", f"-Wl,-rpath,{litert_folder}"]
    subprocess.run(["cc", program, *flags, *arguments], check=True)
    (tmp_path / ACCELERATOR).symlink_to(built.with_name(ACCELERATOR))
    graph = conv_pool()
    (tmp_path / "model.tflite").write_bytes(write_model(graph))
    options = f"tune:off;in_child_first:0;device:{device.index}"
    environment = {**os.environ, OPTIONS_VARIABLE: options}
    ran = subprocess.run(
        [tmp_path / "program"], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    values = np.full(graph.inputs[0].shape, 100, np.uint8)
    (wanted,) = invoke(interpreter(write_model(graph)), [values])
    assert ran.stdout.split() == [*map(str, wanted.reshape(-1)), "on", "the", "GPU"]


# Nodes on the CPU


def test_cpu_runs_all_without_folder() -> None:
    ours = CompiledInterpreter(RUNTIME, write_model(CHAIN), "", {}, "reference")
    assert_the_cpu_runs_it(ours)
    assert ours.delegate is None
    assert accelerators() == []


@slow
def test_cpu_nodes_are_named(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    ours = make(write_model(CHAIN), exclude_ops=("ADD",))
    assert ours.delegate is not None
    name = ours.delegate.device_name
    left = "on the CPU: 1 x ADD (excluded by exclude_ops)"
    assert caplog.messages == [f"2 of 3 nodes run on {name}; {left}"]
    assert ours.taken(CHAIN) == {0, 1}
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(write_model(CHAIN)), inputs))


@slow
def test_litert_needs_cpu(built: Path, make: Make) -> None:
    make(write_model(CHAIN), exclude_ops=("ADD",))  # which sets the options
    with pytest.raises(RuntimeError, match="Some ops are not accelerated"):
        litert.CompiledModel.from_buffer(
            write_model(CHAIN),
            hardware_accel=litert.HardwareAccelerator.GPU,
            environment=compiled_model._environment(str(built.parent)),
        )


def assert_the_cpu_runs_it(ours: CompiledInterpreter) -> None:
    assert ours.taken(CHAIN) == set()
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(write_model(CHAIN)), inputs))


REFUSALS = {
    "option": ({"speed": "1"}, "there is no option speed; there are alternative, device, "),
    "device": ({"device": "no such one"}, "no OpenCL device matches 'no such one'"),
}


@slow
@pytest.mark.parametrize(("options", "text"), REFUSALS.values(), ids=REFUSALS)
def test_refusal_is_one_line_and_cpu_runs(
    options: dict[str, str], text: str, make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = make(write_model(CHAIN), **options)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "OpenCL" in line]
    assert line.startswith(f"ERROR: OpenCL delegate: {text}")
    assert_the_cpu_runs_it(ours)


@slow
def test_invalid_options_are_refused(
    make: Make, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiled_model, "options_text", lambda options: "tune=off")
    make(write_model(CHAIN))
    assert "TFLITE_OPENCL_OPTIONS: 'tune=off' is not key:value" in capfd.readouterr().err


@slow
def test_failed_device_leaves_model_to_cpu(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise DeviceError("the device is lost")

    monkeypatch.setattr(_Accelerator, "_judge", fail)
    ours = make(write_model(CHAIN))
    assert caplog.messages[0] == "the device is lost; the model is left to the CPU"
    assert ours.delegate is not None
    assert ours.delegate.failure == "the device is lost"
    caplog.clear()  # its traceback refers to the model
    monkeypatch.undo()
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(write_model(CHAIN)), inputs))


# Structures


def create_by_hand(library: Path, runtime: bytes) -> tuple[int, int | None]:
    """Call the accelerator's create; return its status and wrapper."""
    loaded = ctypes.CDLL(str(library))
    results = (ctypes.c_void_p * 6).in_dll(loaded, "LiteRtAcceleratorImpl")
    wrapper = ctypes.c_void_p(1)
    arguments = [ctypes.c_void_p] * 5
    create = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(results[5] or 0)
    resources = ctypes.create_string_buffer(runtime, len(runtime))
    status = create(ctypes.addressof(resources), None, None, None, ctypes.addressof(wrapper))
    return int(status), wrapper.value


@pytest.mark.parametrize(("size", "major"), [(416, 2), (144, 1)], ids=["version", "size"])
def test_unknown_litert_interface_is_refused(
    size: int, major: int, built: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = struct.pack("<4H", size, major, 3, 0) + bytes(size - 8)
    assert create_by_hand(built.with_name(ACCELERATOR), runtime) == (0, None)
    assert capfd.readouterr().err == (
        f"ERROR: OpenCL delegate: LiteRT's interface {major}.3 of {size} bytes is not known\n"
    )


@slow
def test_refused_delegate_is_closed(make: Make, built: Path) -> None:
    make(write_model(CHAIN))  # which sets the options
    gc.collect()
    refuse = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(lambda *_: 3)
    pointer = ctypes.cast(refuse, ctypes.c_void_p).value
    runtime = struct.pack("<4H136xQ", 152, 1, 0, 0, pointer)
    assert create_by_hand(built.with_name(ACCELERATOR), runtime)[0] == 3
    assert accelerators() == []


def test_litert_version_error_is_named(built: Path, capfd: pytest.CaptureFixture[str]) -> None:
    loaded = ctypes.CDLL(str(built.with_name(ACCELERATOR)))
    assert loaded.LiteRtRegisterGpuAccelerator(None) == 8  # kLiteRtStatusErrorWrongVersion
    assert capfd.readouterr().err == (
        "ERROR: OpenCL delegate: this LiteRT takes no accelerator of version 1, as ai-edge-litert "
        "does from 2.2.0 on\n"
    )


# Memory, threads, time


@slow
def test_buffers_are_used_in_place(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    run = PartitionKernel.invoke

    def invoke_seen(self: PartitionKernel, inputs: Arrays, outputs: Arrays) -> None:
        seen.append((inputs[0].ctypes.data, outputs[0].ctypes.data))
        run(self, inputs, outputs)

    monkeypatch.setattr(PartitionKernel, "invoke", invoke_seen)
    ours = make(write_model(CHAIN))
    (values,) = inputs_for(CHAIN)[0]
    invoke(ours, [values])
    ((source, result),) = seen
    assert ctypes.string_at(source, values.size) == values.tobytes()
    (detail,) = ours.get_output_details()
    expected = ours.get_tensor(detail["index"])
    assert ctypes.string_at(result, expected.size) == expected.tobytes()
    # The same memory, not a copy: a write to one is visible in the other.
    ctypes.memset(result, 77, expected.size)
    assert np.all(ours.get_tensor(detail["index"]) == 77)
    ours.set_tensor(ours.get_input_details()[0]["index"], np.full_like(values, 9))
    assert ctypes.string_at(source, values.size) == bytes([9]) * values.size


@slow
def test_two_compiled_models_in_two_threads(make: Make) -> None:
    graphs = [CHAIN, conv_pool()]
    problems: list[BaseException] = []

    def runs(number: int) -> None:
        try:
            model = write_model(graphs[number])
            for _ in range(3):
                ours = make(model)
                for inputs in inputs_for(graphs[number]):
                    wanted = invoke(interpreter(model), inputs)
                    for _ in range(10):
                        assert_equal_outputs(invoke(ours, inputs), wanted)
                del ours
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=runs, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def resources() -> tuple[int, int, int]:
    """Return this process's file handles, threads and bytes of memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    counts = [len(list(Path("/proc/self", name).iterdir())) for name in ("fd", "task")]
    return counts[0], counts[1], pages * 4096


@slow
def test_repeated_opening_does_not_leak(make: Make) -> None:
    model = write_model(CHAIN)
    inputs = inputs_for(CHAIN)[0]
    wanted = invoke(interpreter(model), inputs)
    seen = []
    logging.disable(logging.INFO)
    for number in range(1, 301):
        ours = make(model)
        assert_equal_outputs(invoke(ours, inputs), wanted)
        del ours
        if number in (100, 200, 300):
            gc.collect()
            seen.append(resources())
    logging.disable(logging.NOTSET)
    halves = [np.subtract(later, before) for before, later in itertools.pairwise(seen)]
    # A leak grows in both halves. Drivers start threads late; the C library keeps pages.
    assert np.all(np.minimum(*halves) <= (0, 0, 100 * 4096)), seen


# tflite-delegate-test --delegate compiledmodel:DIR


def suite(folder: Path, *flags: str) -> int:
    return conformance(["--delegate", f"compiledmodel:{folder}", *flags])


@slow
def test_suite_with_compiled_model(built: Path, device: DeviceInfo, tmp_path: Path) -> None:
    flags = ["--filter", "^relu/int8/|^behaviour/guard_bytes", "--sample", "2"]
    out = tmp_path / "out"
    assert suite(built.parent, *flags, "--device", str(device.index), "--output", str(out)) == 0
    rows = (out / "results.csv").read_text().splitlines()
    assert [row.split(",")[1] for row in rows] == ["Pass", "Pass"]


@slow
def test_suite_names_folder_without_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert suite(tmp_path, "--filter", "^relu/int8/", "--output", str(tmp_path / "out")) != 0
    assert f"there is no {ACCELERATOR} in {tmp_path}" in capsys.readouterr().err


@pytest.fixture
def off_by_one(tmp_path: Path) -> Path:
    """Return a folder with an accelerator whose ADD is wrong."""
    sources = [ROOT / "tests" / "attacks" / "liar.c", ROOT / "delegate/host/accelerator.c"]
    command = ["cc", "-shared", "-fPIC", "-DFAULT=OFF_BY_ONE", "-o", tmp_path / ACCELERATOR]
    subprocess.run([*command, *sources], check=True)
    return tmp_path


@slow
def test_only_litert_failures_are_skips(
    off_by_one: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, refused = "add/float32/1x7x5x3", "svdf/int8/in1x7-units5-rank1-memory3"
    output = off_by_one / "said.json"
    flags = ["--filter", f"^({wrong}|{refused})$", "--json", str(output)]
    assert suite(off_by_one, *flags, "--output", str(off_by_one / "out")) == 1
    capsys.readouterr()
    cases = {each["name"]: each for each in json.loads(output.read_text())["cases"]}
    assert (cases[wrong]["result"], cases[refused]["result"]) == ("Fail", "Skip")
    assert "1 of 105 elements differ" in cases[wrong]["detail"]
    assert cases[refused]["detail"].startswith(
        "LiteRT's CompiledModel fails so on the CPU alone: Failed to load model"
    )
    assert "Variable tensors not yet supported" in cases[refused]["stderr"]


@slow
def test_case_is_reduced(off_by_one: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path = off_by_one
    small, model = tmp_path / "small", tmp_path / "adds.tflite"
    ends = [t((1, 2), "float32") for _ in range(3)]
    model.write_bytes(chain_model([op("ADD", ends[:2], ends[2:])]))
    assert suite(tmp_path, "--reduce", str(model), "--output", str(small)) == 0
    assert "Fail: the given inputs: 1 of " in capsys.readouterr().out
    shown = subprocess.run(
        [sys.executable, small / "reduced.py"], capture_output=True, text=True, timeout=120
    )
    assert shown.returncode == 0, shown.stderr
    (right,), (wrong,) = map(json.loads, shown.stdout.splitlines())
    assert np.subtract(wrong, right).max() == pytest.approx(1)


# tflite-opencl compare --paths compiledmodel


@slow
def test_compare_times_compiled_model(device: DeviceInfo, tmp_path: Path) -> None:
    (tmp_path / "model.tflite").write_bytes(write_model(CHAIN))
    output = tmp_path / "said.json"
    model = ["--tflite_model", str(tmp_path / "model.tflite"), "--json", str(output)]
    flags = ["--paths", f"compiledmodel:{device.index}", "--tune", "off", "-c", "1"]
    assert tools(["compare", *model, *flags]) == 0
    (path,) = json.loads(output.read_text())["models"][0]["paths"]
    assert path["taken"] == len(CHAIN.nodes)
    assert path["failure"] == ""
