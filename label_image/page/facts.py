# SPDX-License-Identifier: Apache-2.0
"""What the page shows of a run, as records; what the run did not tell is measured or asked here."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata

from delegate import DelegateError, DeviceInfo, Verdict
from delegate.inspect import Graph
from label_image.page.cpu_times import CpuTimes, cpu_times
from label_image.path import Path
from tflite_opencl import __version__
from tflite_opencl.common import bars
from tflite_opencl.common.boards.board import read_board
from tflite_opencl.common.boards.facts import Rows, facts_here, sections
from tflite_opencl.common.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.common.job import Delegation, Job
from tflite_opencl.common.open_job import open_interpreter
from tflite_opencl.common.profile import Profile
from tflite_opencl.common.runtime import Runtime

OPENCL, CPU = "OpenCL", "CPU"
_PACKAGES = ("numpy", "pillow", "pyopencl", "flatbuffers", "tflite")
# What drivers, TFLite and this read. LD_PRELOAD and its like change which driver is loaded.
_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "XDG_CACHE_HOME")
_BEGINNINGS = (
    "CL_", "CUDA_", "ETNA_", "FD_", "GALLIUM_", "GALLIVM_", "IR3_", "LABEL_IMAGE_", "LIBGL_", "LP_",
    "MESA_", "NIR_", "OCL_", "OMP_", "OPENCL_", "PAN_", "POCL_", "PYOPENCL_", "RUSTICL_", "TFLITE_",
    "V3D_", "VIV_", "XNNPACK_",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node: where it ran, and its times; texts are for people."""

    index: int
    op: str
    shape: str  # of its first output
    place: str
    device: float | None  # microseconds of its launches
    cpu: float | None  # microseconds on the CPU, by itself
    note: str  # why a time is not there, or why the CPU runs it
    home: int | None = None  # the node whose kernel computes it, too


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """All nodes, and what is to be said of their times."""

    rows: Sequence[NodeRow]
    notes: Sequence[str]
    parts: Rows = field(default=())  # what one run with OpenCL is made of, and its time

    @property
    def has_device(self) -> bool:
        """Whether some node has a time on the device."""
        return any(row.device is not None for row in self.rows)

    @property
    def has_cpu(self) -> bool:
        """Whether some node has a time on the CPU."""
        return any(row.cpu is not None for row in self.rows)


def node_times(
    job: Job, graph: Graph, runtime: Runtime, gpu: Path | None, in_child: bool
) -> NodeTimes:
    """Measure each node on both paths, as far as they can tell.

    `gpu`: OpenCL's run of the job. `in_child`: it ran in a child process, and may run nowhere else.

    Raises: KeyboardInterrupt: Ctrl-C.
    """
    taken = gpu.delegation if gpu else None
    profile, notes = _profile(job, graph, runtime, gpu, in_child)
    times = CpuTimes({}, {})
    if job.external is not None:
        notes.append("An external delegate tells no times of nodes.")
    elif gpu is not None and not job.reference:
        notes.append("The CPU's times of nodes were not measured: --compare=false.")
    else:
        try:
            times = cpu_times(job, graph, runtime)
            notes.append(_cpu_note(times, runtime.kernels(job.cpu_kernels)))
        except (RunError, RuntimeError, ValueError) as error:
            notes.append(f"The CPU's times of nodes could not be measured: {reason_of(error)}.")
    parts = profile.parts if profile else ()
    texts = [(name, f"{spent / 1e3:.3f} ms") for name, spent in parts]
    return NodeTimes(_rows(graph, taken, profile, times), notes, texts)


def _cpu_note(times: CpuTimes, kernels: str) -> str:
    total = sum(times.microseconds.values()) / 1e3
    return (
        "TFLite's Python runtime tells no times of nodes on the CPU. So each node ran by itself, "
        f"as a model of one node, on {kernels}; its time is the shortest of some runs, and holds "
        f"the call of the interpreter. Together they take {total:.3f} ms. The run of the whole "
        "model need not take as long."
    )


def _profile(
    job: Job, graph: Graph, runtime: Runtime, gpu: Path | None, in_child: bool
) -> tuple[Profile | None, list[str]]:
    """Return the profile of OpenCL's nodes, or None; and what is to be said of it."""
    if gpu is None or gpu.delegation is None or not gpu.delegation.delegated:
        return None, []
    profile, why = gpu.profile, ""
    if profile is None and in_child:
        why = "with --device_timeout OpenCL runs in a child process, which is not timed by nodes"
    elif profile is None:
        apart = replace(job, profile_rows=1, traces=False, quiet=True)
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
    graph: Graph, taken: Delegation | None, profile: Profile | None, times: CpuTimes
) -> list[NodeRow]:
    verdicts = taken.verdicts if taken else ()
    device = {row.node: row.microseconds for row in profile.rows} if profile else {}
    homes = profile.joined if profile else {}
    made = []
    for node in graph.nodes:
        verdict = verdicts[node.index] if verdicts else None
        shape = "x".join(map(str, node.outputs[0].shape)) if node.outputs else ""
        place = OPENCL if verdict is not None and verdict.is_taken else CPU
        note = _note(verdict, homes.get(node.index), node.index in device, profile)
        notes = [note, times.left_out.get(node.index, "")]
        made.append(
            NodeRow(
                node.index, node.op, shape, place, device.get(node.index),
                times.microseconds.get(node.index), "; ".join(filter(None, notes)),
                homes.get(node.index),
            )
        )  # fmt: skip
    return made


def _note(
    verdict: Verdict | None, home: int | None, has_time: bool, profile: Profile | None
) -> str:
    if verdict is None:
        return ""
    if verdict.reason is not None:
        return verdict.reason
    if has_time or profile is None:
        return ""
    return "it launches nothing" if home is None else f"node {home}'s kernel computes it, too"


def partition_rows(taken: Delegation | None) -> list[tuple[str, str]]:
    """Return each partition's number and its nodes, for people."""
    if taken is None:
        return []
    rows = []
    for number, nodes in enumerate(taken.partitions, 1):
        plural = "" if len(nodes) == 1 else "s"
        rows.append((str(number), f"{len(nodes)} node{plural}: {_ranges(nodes)}"))
    return rows


def _ranges(nodes: Sequence[int]) -> str:
    """Return "0-3, 5" for these numbers."""
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and node == runs[-1][-1] + 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def machine(taken: Delegation | None, was_asked: bool) -> Sequence[tuple[str, Rows]]:
    """Return what `tflite-opencl info` tells, of the device that was taken, or of all.

    `was_asked`: OpenCL was asked for; else no device is.
    """

    def choose(found: Sequence[DeviceInfo]) -> Sequence[DeviceInfo]:
        if taken is None:
            return found if was_asked else ()
        device = taken.device, taken.platform, taken.driver
        return [info for info in found if (info.name, info.platform, info.driver) == device]

    shown = sections(facts_here(read_board("/"), choose))
    if was_asked:
        return shown
    why = ("Devices", [("not asked", "--use_gpu was not given")])
    return [why if title == "Devices" else (title, rows) for title, rows in shown]


def versions(runtime: Runtime) -> list[tuple[str, str]]:
    """Return what the versions are that results may depend on."""
    rows = [
        ("tflite-opencl", __version__),
        ("TFLite runtime", f"{runtime.name} {runtime.version}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
    ]
    for name in _PACKAGES:
        try:
            rows.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            rows.append((name, "not told"))
    return [*rows, ("system", platform.platform())]


def variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the environment variables that drivers, TFLite and this read."""
    return [
        (name, value)
        for name, value in sorted(environment.items())
        if name in _VARIABLES or name.startswith(_BEGINNINGS)
    ]
