# SPDX-License-Identifier: Apache-2.0
"""One run as a JSON document; and the parts of it that many pictures have, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from label_image.classify import PathRun
from label_image.compare import Distances
from label_image.path import OpenPath
from label_image.paths import Comparison
from label_image.report import speedup
from tflite_opencl.common.difference import Difference
from tflite_opencl.common.job import Delegation
from tflite_opencl.common.timing import Times
from tflite_opencl.common.words import stamped


def document(
    about: Mapping[str, Any],
    paths: Mapping[str, PathRun],
    results: Mapping[str, Mapping[str, Any]],
    threads: int | None,
    comparison: Comparison[PathRun] | None,
) -> str:
    """Return the run as JSON text; what is not known is null, with the reason beside it.

    `paths`, `results`: a path's name, as "gpu", -> its run, and what that says of the picture.
    """
    entries: dict[str, Any] = dict(about)
    for name, run in paths.items():
        entries[name] = path_entry(run, _times_entry(run), threads, results[name])
    if "gpu" in paths:
        cpu = comparison.cpu if comparison else None
        ratio = {"speedup": speedup(paths["gpu"], cpu) if cpu else None}
        entries |= comparison_entry(comparison.distances if comparison else None, ratio)
    return json.dumps(stamped(entries), indent=2)


def path_entry(
    path: PathRun | OpenPath,
    times: Mapping[str, Any],
    threads: int | None,
    results: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a path for JSON: where it ran, how fast, `results`, and what OpenCL took of it."""
    taken = path.delegation
    load = {f"{phase}_ms": spent for phase, spent in path.load_parts.items()}
    return {
        **(_device_entry(taken) if taken else {}),
        **times,
        "load_ms": path.load_ms,
        **({"load": load} if load else {}),
        **({} if taken else {"threads": threads}),
        **(results or {}),
        **(_verdict_entry(taken) if taken else {}),
    }


def _device_entry(taken: Delegation) -> dict[str, Any]:
    """Return the device for JSON."""
    return {"device": taken.device, "platform": taken.platform, "driver": taken.driver}


def _verdict_entry(taken: Delegation) -> dict[str, Any]:
    """Return for JSON what was delegated, and what was not and why."""
    return {
        "nodes": len(taken.verdicts),
        "delegated": taken.delegated,
        "partitions": len(taken.partitions),
        "tuning_left": taken.tuning_left,
        "not_delegated": [
            {"node": node, "op": op, "reason": reason}
            for node, op, reason in taken.verdicts
            if reason is not None
        ],
    }


def comparison_entry(
    distances: Distances | None, more: Mapping[str, Any], why: str = "--compare=false"
) -> dict[str, Any]:
    """Return for JSON how far OpenCL is from the others, then `more`, then what is not known.

    `distances`: None: the outputs were not compared, and `why`.
    """
    none = Difference(None, why)
    found = distances or Distances(none, none, none)
    entry = difference_entry(found) | dict(more)
    to_reference, to_cpu = found.gpu_to_reference, found.gpu_to_cpu
    if to_reference.are_floats and to_cpu.are_floats:  # these say it themselves
        return entry
    reason = to_reference.reason or to_cpu.reason
    return entry | {"not_compared": reason} if reason else entry


def difference_entry(found: Distances) -> dict[str, Any]:
    """Return for JSON how far OpenCL is from the others."""
    return {
        "max_difference_quanta_reference": found.gpu_to_reference.quanta,
        "max_difference_quanta_cpu": found.gpu_to_cpu.quanta,
    }


def _times_entry(run: PathRun) -> dict[str, Any]:
    longer = run.longer
    compared = {} if longer is None else {"compared": _timing_entry(longer) | {"runs": longer.runs}}
    return _timing_entry(run.times) | compared


def _timing_entry(times: Times) -> dict[str, Any]:
    return {
        "average_ms": times.average_ms,
        "min_ms": times.min_ms,
        "median_ms": times.median_ms,
        "cpu_load": times.cpu_load,
    }
