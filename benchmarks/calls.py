# SPDX-License-Identifier: Apache-2.0
"""What a run costs beside its kernels: the call, the copies, the driver's threads."""

from __future__ import annotations

from benchmarks.measure import Contender, compared, in_turns
from benchmarks.peers import Workload
from benchmarks.processes import small_model
from benchmarks.results import OPENCL, Figure, RowResult
from benchmarks.setup import Row, Setup
from benchmarks.versus import named, new_delegate, not_judged, too_few


def beside_kernels(row: Row, setup: Setup) -> RowResult:
    """Time a model of one small node, and take off what the driver's events say of its kernel."""
    info = setup.find(row.device)
    path = setup.folder / "one_node.tflite"
    path.write_bytes(small_model())
    workload = Workload(str(path), setup.runtime, setup.threads)
    ours = workload.interpreter("auto", [new_delegate(str(path), info, setup)])
    profiled = new_delegate(str(path), info, setup, profiling=True)
    apart = workload.interpreter("auto", [profiled])
    kernel_us: list[float] = []

    def run_profiled() -> None:
        apart()
        kernel_us.append(sum(launch.microseconds for launch in profiled.profile()))

    runs = setup.runs_of(row)
    others = [
        Contender(f"{OPENCL}, profiled", run_profiled),
        Contender(setup.runtime.kernels("auto"), workload.interpreter("auto")),
    ]
    paths = compared(in_turns([Contender(OPENCL, ours), *others], runs), OPENCL)
    beside_ms = paths[OPENCL].min_ms - min(kernel_us) / 1e3
    reason = not_judged(setup, info) or too_few(runs)
    return RowResult(
        row.name,
        row.case,
        device=named(info),
        paths=paths,
        figures=[Figure(row.goals[0], beside_ms, reason)],
        notes=[
            f"the kernel takes {min(kernel_us):.1f} us by the driver's events, the least of all"
        ],
    )
