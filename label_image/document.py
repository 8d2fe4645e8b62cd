# SPDX-License-Identifier: Apache-2.0
"""What JSON has of a run: on one picture all of it, of many each picture and the totals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from delegate.inspect import Portion
from label_image.compare import Distances, Outcome
from label_image.expect import Entry
from label_image.path import Path
from label_image.report import rate_of
from label_image.result import Result
from label_image.series import Series
from tflite_opencl.common.difference import Difference
from tflite_opencl.common.job import Delegation
from tflite_opencl.common.timing import Times
from tflite_opencl.common.words import stamped

_WHOSE = ("device", "platform", "driver")


def document(
    about: Entry, series: Series, threads: int | None, results: Mapping[str, Entry]
) -> str:
    """Return the run of one picture; what is not known is null, with the reason beside it.

    `results`: a path's name, as "gpu", -> what it says of the picture.
    """
    failure = {"failure": series.failure} if series.failure else {}
    return json.dumps(stamped({**about, **failure, **_paths(series, threads, results)}), indent=2)


def picture_entry(outcome: Outcome, result: Result) -> dict[str, Any]:
    """Return one of many pictures."""
    entry: dict[str, Any] = {"image": outcome.path}
    if outcome.error:
        return entry | {"error": outcome.error}
    entry |= result.entry(outcome.distances)
    return entry | (_difference_entry(outcome.distances) if outcome.distances else {})


def totals_entry(series: Series, threads: int | None) -> dict[str, Any]:
    """Return what many pictures together came to."""
    totals = series.totals
    entry: dict[str, Any] = {
        "classified": totals.classified,
        "unreadable": totals.unreadable,
        "seconds": totals.seconds,
        "pictures_per_second": totals.per_second,
        "decoding": {"average_ms": totals.decoding_ms, "processes": totals.processes},
    }
    failure = {"failure": series.failure} if series.failure else {}
    return entry | failure | _paths(series, threads, {})


def _paths(series: Series, threads: int | None, results: Mapping[str, Entry]) -> dict[str, Any]:
    """Return each path, and how far OpenCL's is from the others."""
    gpu, cpu, totals = series.gpu, series.cpu, series.totals
    entries: dict[str, Any] = {}
    if cpu is not None:
        entries[series.other] = _path_entry(cpu, threads, results.get(series.other, {}))
    if gpu is None:
        return entries
    entries["gpu"] = _path_entry(gpu, threads, results.get("gpu", {}))
    if gpu.portions:
        entries["gpu"]["devices"] = [_portion_entry(portion) for portion in gpu.portions]
    if totals.compared and not series.is_timed:
        entries["compared"] = {"pictures": totals.compared, "seconds": totals.comparing_seconds}
    none = Difference(
        None, "no picture was classified" if series.is_compared else "--compare=false"
    )
    found = totals.distances or Distances(none, none, none)
    entries |= _difference_entry(found) | {"speedup": series.speedup}
    to_reference, to_cpu = found.gpu_to_reference, found.gpu_to_cpu
    if to_reference.are_floats and to_cpu.are_floats:  # these say it themselves
        return entries
    reason = to_reference.reason or to_cpu.reason
    return entries | {"not_compared": reason} if reason else entries


def _path_entry(path: Path, threads: int | None, results: Entry) -> dict[str, Any]:
    """Return a path: where it ran, how fast, `results`, and what OpenCL took of it."""
    taken = path.delegation
    load = {f"{phase}_ms": spent for phase, spent in path.load_parts.items()}
    return {
        **({name: getattr(taken, name) for name in _WHOSE} if taken else {}),
        **_speed_entry(path),
        "load_ms": path.load_ms,
        **({"load": load} if load else {}),
        **({} if taken else {"threads": threads}),
        **results,
        **(_verdict_entry(taken) if taken else {}),
    }


def _speed_entry(path: Path) -> dict[str, Any]:
    if path.times is not None:
        longer = path.longer
        compared = {"compared": _times_entry(longer) | {"runs": longer.runs}} if longer else {}
        return _times_entry(path.times) | compared
    return {
        "pictures_per_second": path.per_second,
        "average_ms": path.picture_ms,
        "cpu_load": path.cpu_load,
        "batch": path.batch,
    }


def _times_entry(times: Times) -> dict[str, Any]:
    return {
        "average_ms": times.average_ms,
        "min_ms": times.min_ms,
        "median_ms": times.median_ms,
        "cpu_load": times.cpu_load,
        "gpu_load": times.gpu_load,
    }


def _verdict_entry(taken: Delegation) -> dict[str, Any]:
    """Return what was delegated, and what was not and why."""
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


def _difference_entry(found: Distances) -> dict[str, Any]:
    """Return how far OpenCL is from the others."""
    return {
        "max_difference_quanta_reference": found.gpu_to_reference.quanta,
        "max_difference_quanta_cpu": found.gpu_to_cpu.quanta,
    }


def _portion_entry(portion: Portion) -> dict[str, Any]:
    info = portion.device
    return {
        "index": info.index,
        "device": info.name,
        "platform": info.platform,
        "driver": info.driver,
        "pictures": portion.pictures,
        "pictures_per_second": rate_of(portion),
        **({"failure": portion.failure} if portion.failure else {}),
    }
