# SPDX-License-Identifier: Apache-2.0
"""The page's content as records; measures and queries what the run itself did not record."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import DelegateError, DeviceInfo, ModelError
from delegate.inspect import Graph, Node, write_model
from label_image.run_result import RunResult
from tflite_opencl import __version__
from tflite_opencl.boards.board import read_board
from tflite_opencl.boards.facts import Rows, facts_here, sections
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import DelegateFailed, RunError, one_line, reason_of
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.harness.open_job import allocate, open_interpreter
from tflite_opencl.interpreters.interpreter import allocated, run
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import graph as graph_of
from tflite_opencl.timing.profile import RUNS, Profile

OPENCL, CPU = "OpenCL", "CPU"
MOST_SECONDS = 30.0  # time limit for timing all nodes on the CPU
_OVER = f"there was no time left for it within {MOST_SECONDS:g} seconds"
_PACKAGES = ("numpy", "pillow", "pyopencl", "flatbuffers", "tflite")
# Read by drivers, TFLite and this project. LD_PRELOAD and the like change the driver loaded.
_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CACHE_HOME")
_BEGINNINGS = (
    "CL_", "CUDA_", "ETNA_", "FD_", "GALLIUM_", "GALLIVM_", "IR3_", "LABEL_IMAGE_", "LIBGL_", "LP_",
    "MESA_", "NIR_", "OCL_", "OMP_", "OPENCL_", "PAN_", "POCL_", "PYOPENCL_", "RUSTICL_", "TFLITE_",
    "V3D_", "VIV_", "XNNPACK_",
)  # fmt: skip

Values = Mapping[int, NDArray[Any]]  # a tensor's index -> its value


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: where it ran, and its times; texts are for people."""

    index: int
    op: str
    shape: str  # of its first output
    place: str
    device: float | None  # microseconds of its launches
    cpu: float | None  # microseconds on the CPU, in isolation
    note: str  # why a time is missing, or why the CPU runs it
    home: int | None = None  # the node whose kernel it is fused into


def node_times(
    job: Job, graph: Graph, runtime: Runtime, gpu: RunResult | None
) -> tuple[Sequence[NodeRow], Sequence[str], Rows]:
    """Time each node on both paths, as far as possible.

    Return all nodes, remarks about their times, and the breakdown of one run with OpenCL.
    `gpu`: OpenCL's run of the job.
    Raises: KeyboardInterrupt: Ctrl-C.
    """
    taken = gpu.delegation if gpu else None
    profile, notes = _profile(job, graph, runtime, gpu)
    times: Mapping[int, float | str] = {}
    if job.external is not None:
        notes.append("An external delegate tells no times of nodes.")
    elif gpu is not None and not job.reference:
        notes.append("The CPU's times of nodes were not measured: --compare=false.")
    else:
        try:
            times = cpu_times(job, graph, runtime)
            total = sum(spent for spent in times.values() if isinstance(spent, float)) / 1e3
            notes.append(
                "TFLite's Python runtime tells no times of nodes on the CPU. So each node ran by "
                f"itself, as a model of one node, on {runtime.kernels(job.cpu_kernels)}; its time "
                "is the shortest of some runs, and holds the call of the interpreter. Together "
                f"they take {total:.3f} ms. The run of the whole model need not take as long."
            )
        except (RunError, RuntimeError, ValueError) as error:
            notes.append(f"The CPU's times of nodes could not be measured: {reason_of(error)}.")
    parts = profile.parts if profile else ()
    texts = [(name, f"{spent / 1e3:.3f} ms") for name, spent in parts]
    return _rows(graph, taken, profile, times), notes, texts


def _profile(
    job: Job, graph: Graph, runtime: Runtime, gpu: RunResult | None
) -> tuple[Profile | None, list[str]]:
    """Return the profile of OpenCL's nodes or None, and remarks about it."""
    if gpu is None or gpu.delegation is None or not gpu.delegation.delegated:
        return None, []
    profile, why = gpu.profile, ""
    if job.opencl is not None and job.opencl.isolate:
        why = "with --isolate OpenCL runs in a child process, which is not timed by nodes"
    elif profile is None:
        apart = replace(job.unreported(), profile_rows=1)
        try:
            waiting = bars.waiting("timing the nodes on OpenCL")
            with open_interpreter(apart, runtime, graph) as opened, waiting:
                profile = opened.node_profile(graph)
        except (RunError, DelegateFailed, DelegateError) as error:
            why = reason_of(error)
    if profile is None:
        return None, [f"OpenCL's times of nodes could not be measured: {why or 'no node ran'}."]
    how = "by the device's own timers, launch by launch"
    if not profile.has_timers:
        how = (
            "on the host's clock, each launch by itself, with its call and the wait: the device's "
            "timers do not count the work"
        )
    return profile, [
        f"OpenCL's times are {how}; the shortest of some runs. All kernels together take "
        f"{profile.kernels / 1e3:.3f} ms."
    ]


def _rows(
    graph: Graph,
    taken: Delegation | None,
    profile: Profile | None,
    times: Mapping[int, float | str],
) -> list[NodeRow]:
    device = {row.node: row.microseconds for row in profile.rows} if profile else {}
    homes = profile.fused if profile else {}
    rows = []
    for node in graph.nodes:
        verdict = taken.verdicts[node.index] if taken else None
        shape = "x".join(map(str, node.outputs[0].shape)) if node.outputs else ""
        own, home, on_cpu = device.get(node.index), homes.get(node.index), times.get(node.index)
        note = verdict.reason if verdict else None
        is_ours = verdict is not None and verdict.is_taken
        if is_ours and profile is not None and own is None:
            fused = f"node {home}'s kernel computes it, too"
            note = "it launches nothing" if home is None else fused
        cpu, why = (on_cpu, None) if isinstance(on_cpu, float) else (None, on_cpu)
        notes = "; ".join(filter(None, [note, why]))
        place = OPENCL if is_ours else CPU
        if taken is not None and node.index in taken.others:
            place = taken.library
        rows.append(NodeRow(node.index, node.op, shape, place, own, cpu, notes, home))
    return rows


def cpu_times(job: Job, graph: Graph, runtime: Runtime) -> dict[int, float | str]:
    """Time each node in isolation on the CPU's kernels of the job, with the job's threads.

    TFLite's Python runtime has no per-node times. So each node becomes a single-node model, which
    gets the values that it gets in the whole model, and is timed from outside.
    Return a node's index -> microseconds, the minimum of some runs, or why there are none.
    Raises: RuntimeError, ValueError: TFLite cannot run the model. KeyboardInterrupt: Ctrl-C.
    """
    values = _values(job, graph, runtime)
    until = time.monotonic() + MOST_SECONDS
    times: dict[int, float | str] = {}
    with bars.steps("timing the nodes on the CPU", lambda: len(graph.nodes)) as step:
        for node in graph.nodes:
            interrupts.check()
            step()
            if time.monotonic() > until:
                times[node.index] = _OVER
                continue
            try:
                times[node.index] = _microseconds(node, values, job, runtime)
            except (RuntimeError, ValueError, ModelError) as error:
                times[node.index] = f"it does not run alone: {one_line(error)}"
    return times


def _values(job: Job, graph: Graph, runtime: Runtime) -> Values:
    """Run the model once on the built-in kernels; return every tensor that numpy can hold."""
    interpreter = runtime.interpreter(
        job.model, job.threads, "builtin", keeps_all=True, graph=graph
    )
    allocate(replace(job, opencl=None, external=None), interpreter, [])
    interpreter.invoke()
    values = {}
    for tensor in {*graph.inputs, *(t for node in graph.nodes for t in node.outputs)}:
        try:
            values[tensor.index] = np.array(interpreter.get_tensor(tensor.index))
        except ValueError:  # it has no data: a variable, or a list
            continue
    return values


def _microseconds(node: Node, values: Values, job: Job, runtime: Runtime) -> float:
    """Return the minimum time of some runs.

    Raises: ValueError, RuntimeError, ModelError: the node cannot be cut out or run.
    """
    part, given = _model_of(node, values)
    interpreter = allocated(runtime, write_model(part), job.cpu_kernels, threads=job.threads)
    run(interpreter, given)
    spent = []
    for _ in range(1 + RUNS):
        begun = time.perf_counter()
        interpreter.invoke()
        spent.append((time.perf_counter() - begun) * 1e6)
    return min(spent[1:])  # without two warm-up runs


def _model_of(node: Node, values: Values) -> tuple[Graph, list[NDArray[Any]]]:
    """Return the node as a graph with its current shapes, and the values of its inputs."""
    own = dict.fromkeys(t for t in (*node.inputs, *node.outputs) if t is not None)
    shapes = {t: values[t.index].shape for t in own if t.index in values}
    now = {t: replace(t, shape=shapes[t], shape_signature=()) for t in shapes}
    now = dict(zip(own, own, strict=True)) | now
    given = [t for t in dict.fromkeys(node.inputs) if t is not None]
    given = [t for t in given if t.index in values or (t.data is None and not t.is_variable)]
    for tensor in given:
        if tensor.index not in values:
            raise ValueError(f"TFLite does not tell what tensor {tensor.index} holds")
    alone = replace(
        node,
        inputs=tuple(None if t is None else now[t] for t in node.inputs),
        outputs=tuple(now[t] for t in node.outputs),
    )
    part = graph_of([alone], [now[t] for t in given], [now[t] for t in node.outputs])
    return part, [values[t.index] for t in given]


def partition_rows(taken: Delegation | None) -> list[tuple[str, str]]:
    """Return each partition's number and its nodes, for people."""
    return [
        (str(number), f"{len(nodes)} node{'s' * (len(nodes) != 1)}: {_ranges(nodes)}")
        for number, nodes in enumerate(taken.partitions if taken else (), 1)
    ]


def _ranges(nodes: Sequence[int]) -> str:
    """Return "0-3, 5" for these numbers."""
    # Consecutive numbers have a constant distance from their position.
    groups = groupby(enumerate(sorted(nodes)), lambda each: each[1] - each[0])
    runs = [[node for _, node in group] for _, group in groups]
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def machine(taken: Delegation | None, was_asked: bool) -> Sequence[tuple[str, Rows]]:
    """Return the facts of `tflite-opencl info`, about the delegate's device or about all.

    `was_asked`: OpenCL was requested; otherwise no device is queried.
    """

    def choose(devices: Sequence[DeviceInfo]) -> Sequence[DeviceInfo]:
        if taken is None:
            return devices if was_asked else ()
        device = taken.device, taken.platform, taken.driver
        return [info for info in devices if (info.name, info.platform, info.driver) == device]

    shown = sections(facts_here(read_board("/"), choose))
    if was_asked:
        return shown
    why = ("Devices", [("not asked", "--use_gpu was not given")])
    return [why if title == "Devices" else (title, rows) for title, rows in shown]


def versions(runtime: Runtime) -> list[tuple[str, str]]:
    """Return the versions that results may depend on."""
    rows = [
        ("tflite-opencl", __version__),
        ("TFLite runtime", runtime.text),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
    ]
    for name in _PACKAGES:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            rows.append((name, "not told"))
    return [*rows, ("system", platform.platform())]


def variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the environment variables that drivers, TFLite and this project read."""
    return [
        (name, value)
        for name, value in sorted(environment.items())
        if name in _VARIABLES or name.startswith(_BEGINNINGS)
    ]
