# SPDX-License-Identifier: Apache-2.0
"""`python -m tflite_opencl.compare.path_child`: one path of a model in a process of its own.

The first request opens the path; the reply describes it. Further requests:

    {"runs": 9, "warmup": 2}   runs_ms, wall_ms, cpu_ms and gpu_ms of this many runs, without
                               the warm-up; gpu_ms is null if no driver reports it
    {"profile": true}          rows: the nodes on the device, as NodeTime of timing/profile.py
    {}                         last: writes the outputs; peak_bytes of the process

A reply may be {"failed": why} instead, and is then the last.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from delegate import DelegateError, Options
from delegate.guard.children.channel import Channel, serving
from delegate.inspect import Graph, infer, read_model, write_model
from tflite_opencl.compare.records import COMPILED_MODEL, KERNELS, REFERENCE, RunPath
from tflite_opencl.console.errors import (
    DelegateFailed,
    OneLineError,
    RunError,
    one_line,
    reason_of,
)
from tflite_opencl.harness.chain import open_judge
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.harness.open_job import OpenInterpreter, allocate, open_interpreter
from tflite_opencl.interpreters.compiled_model import CompiledInterpreter
from tflite_opencl.interpreters.plugin_library import ACCELERATOR, compile_library
from tflite_opencl.interpreters.runtime import Runtime, fit_inputs, runtime_if_any
from tflite_opencl.oracle.in_builtins import in_builtins
from tflite_opencl.timing.machine import peak_bytes
from tflite_opencl.timing.timing import Stopwatch


def main() -> int:
    """Serve requests until end of file."""
    with serving() as parent:
        try:
            _serve(parent)
        except (OneLineError, DelegateError, OSError, ValueError, RuntimeError) as error:
            parent.send(failed=_reason(error))
    return 0


def _serve(parent: Channel) -> None:
    requests = parent.messages()
    request = next(requests)
    path = RunPath(**request["path"])
    graph = _job(request, path).on(read_model(request["model"], request["signature"]))
    runtime = runtime_if_any()
    if path.kind == REFERENCE and not runtime.why_not:
        request, graph = _in_builtins(request, graph)
    with _opened(request, path, runtime, graph) as opened:
        parent.send(load_ms=opened.load_ms, **_facts(path, opened, graph, runtime))
        for asked in requests:
            if "profile" in asked:
                found = opened.node_profile(graph)
                rows = [dataclasses.asdict(row) for row in found.rows] if found else []
                parent.send(rows=rows)
                continue
            if "runs" not in asked:
                break
            stopwatch = Stopwatch()
            opened.time(stopwatch, asked["runs"], asked["warmup"])
            times = stopwatch.times
            cpu_ms = times.cpu_load * times.total_ms
            gpu_ms = times.gpu_load and times.gpu_load * times.total_ms
            parent.send(
                runs_ms=stopwatch.runs_ms, wall_ms=times.total_ms, cpu_ms=cpu_ms, gpu_ms=gpu_ms
            )
        outputs = opened.outputs()
    np.savez(request["outputs"], *outputs)
    told: dict[str, Any] = {"peak_bytes": peak_bytes()}
    told |= _shares(_job(request, path), runtime, graph, opened.delegation)
    parent.send(**told)


def _in_builtins(request: dict[str, Any], graph: Graph) -> tuple[dict[str, Any], Graph]:
    """Return a model for TFLite's reference kernels, as the reference does: they lack float16."""
    known = infer(graph)
    made = in_builtins(known)
    if made is known:
        return request, graph
    path = Path(request["outputs"]).with_suffix(".tflite")
    path.write_bytes(write_model(made))
    return {**request, "model": str(path)}, read_model(path)


@contextlib.contextmanager
def _opened(
    request: Mapping[str, Any], path: RunPath, runtime: Runtime, graph: Graph
) -> Iterator[OpenInterpreter]:
    job = _job(request, path)
    if path.kind != COMPILED_MODEL:
        with open_interpreter(job, runtime, graph) as opened:
            yield opened
        return
    if graph.subgraph:
        raise RunError("a CompiledModel runs no other signature than the first here")
    with tempfile.TemporaryDirectory() as folder:
        compile_library(Path(folder, ACCELERATOR), "")  # this process's own Python
        begin_s = time.perf_counter()
        options = dataclasses.asdict(Options(**request["opencl"]))
        own = {**options, "profiling": bool(request["profiling"])}
        made = CompiledInterpreter(
            runtime, request["model"], folder, own, job.cpu_kernels, job.threads
        )
        fit_inputs(made, graph)
        allocate(job, made, [made.delegate])
        load_ms = (time.perf_counter() - begin_s) * 1e3
        yield OpenInterpreter(made, [made.delegate], load_ms, {})


def _shares(
    job: Job, runtime: Runtime, graph: Graph, taken: Delegation | None
) -> dict[str, Mapping[str, float]]:
    """Compare both delegates of a chain, each by its own nodes; {}: not a chain."""
    if taken is None or not (taken.others and taken.delegated):
        return {}
    with (
        contextlib.suppress(RunError, DelegateFailed),
        open_judge(job, runtime, graph, taken) as (judge),
    ):
        (shares,) = judge.shares()
        pairs = {taken.library: shares.library, "OpenCL": shares.own}
        quanta = {n: each.quanta for n, each in pairs.items() if each.quanta is not None}
        floats = {n: each.floats for n, each in pairs.items() if each.floats is not None}
        return {"share_quanta": quanta, "share_differences": floats}
    return {}


def _job(request: Mapping[str, Any], path: RunPath) -> Job:
    with np.load(request["inputs"]) as kept:
        inputs = [kept[f"arr_{number}"] for number in range(len(kept.files))]
    opencl = Options(**request["opencl"]) if path.has_opencl else None
    return Job(
        model=request["model"],
        input=inputs[0],
        threads=request["threads"],
        cpu_kernels=KERNELS[path.kind],
        opencl=opencl,
        external=(path.library, path.options) if path.library else None,
        profile_rows=int(request["profiling"]),
        is_silent=True,
        other_inputs=tuple(enumerate(inputs))[1:],
    )


def _facts(
    path: RunPath, opened: OpenInterpreter, graph: Graph, runtime: Runtime
) -> dict[str, Any]:
    kernels = runtime.kernels(KERNELS[path.kind])
    found: dict[str, Any] = {"device": f"CPU, {kernels}", "nodes": len(graph.nodes)}
    if opened.delegation is not None:
        taken = opened.delegation
        refused = collections.Counter(f"{v.op}: {v.reason}" for v in taken.on_cpu)
        library, own, others = taken.library, taken.delegated, len(taken.others)
        found |= {
            "device": f"{library} + {taken.device}" if library else taken.device,
            "taken": own + others,
            "shares": {library: others, "OpenCL": own} if library else {},
            "partitions": len(taken.partitions),
            "refusals": dict(refused),
        }
    elif path.has_delegate:
        library = Path(path.library).name  # "": CompiledModel's accelerator is not ours
        found |= {"device": library or found["device"], "taken": len(opened.others)}
    return found


def _reason(error: BaseException) -> str:
    """Return an error and its cause as one line, without repetition."""
    text, cause = one_line(error), error.__cause__
    return text if cause is not None and one_line(cause) in text else reason_of(error)


if __name__ == "__main__":
    sys.exit(main())
