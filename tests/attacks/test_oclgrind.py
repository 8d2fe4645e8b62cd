# SPDX-License-Identifier: Apache-2.0
"""All ops, and all GPU kernels, in Oclgrind: a simulator that reports accesses outside of a
buffer, races between work-items and uninitialised values. Planted faults show that it does.

NOTE: tensors share one buffer, so it does not detect a write from one tensor into the next. Guard
bytes behind every tensor and comparing every output do.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from delegate.inspect import write_model
from delegate.isa import instructions
from delegate.plan.sources import files
from tests.attacks.faults import NO_COMPILER
from tests.attacks.miscompiler import Miscompilation, build_library
from tests.support.process import ROOT, run_python
from tests.support.tiers import slow
from tests.support.variants import LEFT_OUT
from tflite_opencl.conformance.cases import all_cases

ICD_LIBRARY = Path("/usr/lib/oclgrind/liboclgrind-rt-icd.so")  # Debian's package oclgrind

pytestmark = [
    slow,  # .ci/oclgrind names this file
    pytest.mark.skipif(
        not ICD_LIBRARY.exists(), reason="Oclgrind is not installed: apt-get install oclgrind"
    ),
]

# Oclgrind's only device.
START = """
import os, sys
from dataclasses import replace
from pathlib import Path
import numpy
import pyopencl
# The wheel's own driver folder, which its loader reads later.
os.environ["PYOPENCL_HOME"] = os.environ["OCL_ICD_VENDORS"]
from delegate import list_devices
from delegate.inspect import device_profile_text, read_device_profile
from delegate import engine
from delegate.guard.probing import probe
from delegate.isa import ORDERS, tried_on
engine.is_on = False  # the guard bytes are only in this process
# It runs groups one after the other: self-tests whose groups wait for each other hang, each twice.
probe.tried_on = lambda *kind: tuple(name for name in tried_on(*kind) if name not in ORDERS)
(device,) = list_devices()
assert device.platform == "Oclgrind"

# It takes what the host writes behind a buffer's begin for values nobody wrote, but not what a
# kernel writes there: so a kernel moves the inputs of a run to their places.
from delegate.run import copy_strategies
MOVE = '''kernel void move(global const uchar* from, global uchar* to, int place) {
  to[place + get_global_id(0)] = from[get_global_id(0)];
}'''
def put(self, inputs):
    context = self.queue.context
    move = pyopencl.Program(context, MOVE).build().move
    for source, (place, size) in zip(inputs, self.memory.inputs, strict=True):
        made = pyopencl.Buffer(context, pyopencl.mem_flags.READ_ONLY, size)
        pyopencl.enqueue_copy(self.queue, made, source)
        move(self.queue, (size,), None, made, self.arena, numpy.int32(place))
    self.queue.finish()
copy_strategies.CopyStrategy.write_inputs = put
"""
OPS = (
    START
    + """
from tests.support.compare import assert_exact, oracle
from tests.support.model import chain_model
from tests.support.nodes import valid_nodes
dtype, channels, size, isa, folder = sys.argv[1:]
profile = replace(read_device_profile("v3d"), isa=tuple(isa.split()))
path = Path(folder) / "oclgrind.toml"
path.write_text(device_profile_text(profile, {}))
count = 0
for name, node in valid_nodes(dtype, int(channels), int(size)).items():
    model = chain_model([node])
    try:
        cpu_kernels = oracle(model)
    except (RuntimeError, ValueError):
        continue  # TFLite has no kernel of it for this type
    if (name, dtype) == ("SUM", "int8"):
        cpu_kernels = "builtin"  # ai-edge-litert's reference kernel of it is wrong
    assert_exact(
        model, device, cpu_kernels=cpu_kernels, device_profile=str(path), min_nodes_per_partition=1
    )
    count += 1
print(count)
"""
)
VARIANTS = (
    START
    + """
from tests.support.variants import assert_runs, gpu_variants
for variant in gpu_variants():
    print(*(name for name, *_ in variant.keys), flush=True)
    assert_runs(variant, device)
# No model has these.
from tests.delegate.ops import test_halves
print("halves_float", flush=True)
test_halves.test_floats_become_the_nearest_halves(device)
test_halves.test_halves_become_the_floats_that_they_are(device)
from tests.delegate.ops import test_picture
from tests.support.cases import SIMT
for name in ("smaller", "larger", "channels"):
    print("picture", flush=True)
    test_picture.assert_as_the_cpu(test_picture.CASES[name], device, SIMT)
"""
)
STATE = (
    START
    + """
from tests.delegate.host import test_variables
from tests.delegate.model import test_model_state
from tests.support.nets import assert_equal_outputs
for name, made in test_model_state.CARRIES.items():
    given = test_model_state.drawn(*made, 3)
    expected = test_model_state.fed_by_hand(*made, given)
    with test_model_state.opened(name, device) as model:
        for arrays, wanted in zip(given, expected, strict=True):
            assert_equal_outputs(model.run(arrays), wanted)
        model.set_state(model.state())
        model.reset()
        assert_equal_outputs(model.run(given[0]), expected[0])
test_variables.test_signatures_share_variable(device)
test_variables.test_resize_preserves_variable(device)
test_variables.test_partitions_share_variable(device)
"""
)
PLANTED = (
    START
    + """
import numpy as np
from delegate.inspect import Tensor
from delegate.launch import Alternative, Launch, Schedule, Step
from delegate.plan import sources
from delegate.plan.dispatch import kernels
from delegate.run.device import Device
from delegate.plan.dispatch.planned import planned_executor
from tests.support.guards import guarded
body = sys.argv[1]
text = sources.text_of("kernel.clh") + "TILE(planted) {" + body + "}\\nKERNEL(planted)\\n"
sources.text_of = lambda file: text
source, result = (Tensor(i, "", (64,), "int32") for i in range(2))
launch = Launch("planted", "planted", 2, 32, {"a": source, "b": result}, (source,), (result,),
                {"SCRATCH_INTS": 64})
schedule = Schedule((Step(0, "", Alternative("", (launch,))),), (source,), (result,))
opened = Device(device)
got = np.zeros(64, np.int32)
with guarded() as written:
    executor = planned_executor(opened, kernels.Kernels(opened), schedule)
    executor.run([np.arange(64, dtype=np.int32).view(np.uint8)], [got.view(np.uint8)])
print(got.tolist(), *written)
"""
)
INDEX = "int i = get_global_id(0); global int* a = (global int*)(arena + A); " + (
    "global int* b = (global int*)(arena + B); "
)
# Fault -> (the kernel's body, Oclgrind's message)
FAULTS = {
    "write-out-of-bounds": (f"{INDEX} b[i] = a[i]; b[100000 + i] = 1;", "Invalid write of size 4"),
    "read-out-of-bounds": (f"{INDEX} b[i] = a[i - 100000];", "Invalid read of size 4"),
    "race-in-a-group": (
        f"{INDEX} scratch[0] = i; b[i] = a[i] + scratch[0];",
        "data race at local memory address",
    ),
    "race-between-groups": (f"{INDEX} b[0] = i;", "data race at global memory address"),
    "uninitialised-read": (
        f"{INDEX} if (scratch[get_local_id(0)] == 7) b[i] = 1; b[i] = a[i];",
        "depends on uninitialized value",
    ),
}


# One element past the end of the output is still in the arena, so only guard bytes detect it.
BY_ONE = f"{INDEX} b[i] = a[i]; if (i == 63) b[i + 1] = 1;"


def under_oclgrind(code: str, folder: Path, *arguments: str) -> tuple[str, str]:
    """Return the code's stdout and Oclgrind's log."""
    vendors = folder / "vendors"
    vendors.mkdir()
    (vendors / "oclgrind.icd").write_text(f"{ICD_LIBRARY}\n")
    log = folder / "oclgrind.log"
    printed = run_python(
        code,
        *arguments,
        OCL_ICD_VENDORS=str(vendors),
        OCLGRIND_DATA_RACES="1",
        OCLGRIND_UNINITIALIZED="1",
        # NOTE: Oclgrind 21.10 does not know llvm.fshl, which optimised code contains.
        OCLGRIND_BUILD_OPTIONS="-cl-opt-disable",
        OCLGRIND_LOG=str(log),
        TFLITE_OPENCL_CACHE=str(folder / "cache"),
        TEST_DEVICE_PROFILE="",
    )
    return printed, log.read_text() if log.exists() else ""


@pytest.mark.parametrize(
    ("dtype", "channels", "size", "isa"), [("uint8", 3, 4, ""), ("int8", 9, 5, "nearest")]
)
def test_ops_are_clean(dtype: str, channels: int, size: int, isa: str, tmp_path: Path) -> None:
    arguments = dtype, str(channels), str(size), isa, str(tmp_path)
    printed, report = under_oclgrind(OPS, tmp_path, *arguments)
    assert report == ""
    assert int(printed) > 40


def test_gpu_kernels_are_clean(tmp_path: Path) -> None:
    printed, report = under_oclgrind(VARIANTS, tmp_path)
    assert report == ""
    assert len(printed.splitlines()) > 100
    printed_names = set(printed.split())
    # CPU vector kernels and runtime kernels have tests elsewhere.
    printed_names |= {"conv_2d_tiled_quant8", "transpose_conv_tiled_float"}
    printed_names |= {"softmax_vector_quant8", "attention_tiled_float"}
    printed_names |= {"attention_parts_float", "attention_parts_merged_float"}
    left = {*instructions("cpu"), "staged", "row", "columns", "runtime", LEFT_OUT}
    names = re.findall(r"^KERNEL\((\w+)\)$", _sources(), re.MULTILINE)
    assert [n for n in names if n not in printed_names and not left & set(n.split("_"))] == []


def test_persistent_tensors_are_clean(tmp_path: Path) -> None:
    _, report = under_oclgrind(STATE, tmp_path)
    assert report == ""


def _sources() -> str:
    return "\n".join(path.read_text() for path in files().values())


def test_correct_kernel_is_clean(tmp_path: Path) -> None:
    body = f"{INDEX} scratch[get_local_id(0)] = a[i]; barrier(CLK_LOCAL_MEM_FENCE); " + (
        "b[i] = scratch[31 - get_local_id(0)];"
    )
    printed, report = under_oclgrind(PLANTED, tmp_path, body)
    assert report == ""
    assert printed.strip() == str([*range(31, -1, -1), *range(63, 31, -1)])


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_is_reported(fault: str, tmp_path: Path) -> None:
    body, words = FAULTS[fault]
    _, report = under_oclgrind(PLANTED, tmp_path, body)
    assert words in report
    assert "planted" in report


def test_write_past_tensor_is_detected_by_guard_bytes(tmp_path: Path) -> None:
    printed, _ = under_oclgrind(PLANTED, tmp_path, BY_ONE)
    assert "4 bytes written behind" in printed
    assert "the first 0 bytes past its end" in printed


def test_access_out_of_range_is_written_as_program(tmp_path: Path) -> None:
    """The command finds Oclgrind's device usable, and its fault is the access."""
    if (library := build_library(tmp_path)) is None or shutil.which("make") is None:
        pytest.skip(NO_COMPILER)
    if not Path("/usr/include/CL/cl.h").exists():
        pytest.skip("no OpenCL headers: apt-get install opencl-headers ocl-icd-opencl-dev")
    name = "average_pool_2d/int8/in1x7x5x3-k2x2-stride2x2-same"
    graph = next(each for each in all_cases() if each.name == name).make()
    (tmp_path / "model.tflite").write_bytes(write_model(graph))
    (tmp_path / "oclgrind.icd").write_text(f"{ICD_LIBRARY}\n")
    fault = Miscompilation("int source = input[", "int source = input[300000000 + ")
    own = {name: str(tmp_path) for name in ("OCL_ICD_VENDORS", "PYOPENCL_HOME")}
    own |= {"TFLITE_OPENCL_CACHE": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}

    def run(*command: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, **more}, capture_output=True, text=True,
            timeout=500, check=False,
        )  # fmt: skip

    command = "-m", "tflite_opencl", "verify", "-m", "model.tflite", "--fault", "bug"
    told = run(sys.executable, *command, **own, **fault.environment(library))
    assert "access in AVERAGE_POOL_2D" in told.stdout, told.stdout + told.stderr
    folder = "bug/000-average_pool_2d"
    right = run("make", "-C", folder, "oclgrind")
    assert (right.returncode, "Invalid" in right.stderr) == (0, False), right.stderr
    # The command oclgrind would replace what is preloaded here.
    own["OCLGRIND_BUILD_OPTIONS"] = "-cl-opt-disable"
    wrong = run("env", "-C", folder, "./fault", **own, **fault.environment(library))
    assert "Invalid read of size 1" in wrong.stdout + wrong.stderr
