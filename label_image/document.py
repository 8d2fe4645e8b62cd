# SPDX-License-Identifier: Apache-2.0
"""The JSON document of a run: everything of one picture; of many, each picture and the totals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from label_image.compare import Distances, Outcome, Totals
from label_image.expect import Entry
from label_image.judgement import Judgement
from label_image.report import rate_of
from label_image.result import Result
from label_image.run_result import RunResult
from tflite_opencl.cli.messages import stamped
from tflite_opencl.oracle.difference import Difference

_TIMES = ("average_ms", "min_ms", "median_ms", "cpu_load", "gpu_load")


def document(
    about: Entry, judgement: Judgement, threads: int | None, decoded: Mapping[str, Entry]
) -> str:
    """Return the run of one picture; unknown values are null, with the reason next to them.

    `decoded`: a path's name, such as "gpu" -> its results for the picture.
    """
    return json.dumps(stamped({**about, **_paths(judgement, threads, decoded)}), indent=2)


def picture_entry(outcome: Outcome, result: Result) -> dict[str, Any]:
    entry: dict[str, Any] = {"image": outcome.path}
    if outcome.error:
        return entry | {"error": outcome.error}
    entry |= result.entry(outcome.distances)
    return entry | (difference_entry(outcome.distances) if outcome.distances else {})


def totals_entry(judgement: Judgement, threads: int | None) -> dict[str, Any]:
    return count_entry(judgement.totals) | _paths(judgement, threads, {})


def count_entry(totals: Totals) -> dict[str, Any]:
    entry: dict[str, Any] = _named(totals, "classified", "unreadable", "seconds")
    entry["pictures_per_second"] = totals.per_second
    return entry | {"decoding": {"average_ms": totals.decoding_ms, "processes": totals.processes}}


def _paths(
    judgement: Judgement, threads: int | None, decoded: Mapping[str, Entry]
) -> dict[str, Any]:
    """Return why OpenCL failed, if it did, each path, and OpenCL's differences from the others."""
    results, totals = judgement.results, judgement.totals
    entries: dict[str, Any] = {"failure": judgement.failure} if judgement.failure else {}
    for name, result in results.by_name.items():
        entries[name] = _path_entry(result, threads, decoded.get(name, {}))
    if results.gpu is None:
        return entries
    if totals.compared and not results.job.is_timed:
        entries["compared"] = {"pictures": totals.compared, "seconds": totals.comparing_seconds}
    why = "no picture was classified" if results.beside is not None else "--compare=false"
    nothing = Difference(None, why)
    distances = totals.distances or Distances(nothing, nothing, nothing)
    entries |= difference_entry(distances) | {"speedup": results.speedup}
    if results.other_kernels:
        entries["other_kernels"] = results.other_kernels
    to_reference, to_cpu = distances.gpu_to_reference, distances.gpu_to_cpu
    if to_reference.are_floats and to_cpu.are_floats:  # their entries already say so
        return entries
    reason = to_reference.reason or to_cpu.reason
    return entries | {"not_compared": reason} if reason else entries


def _path_entry(result: RunResult, threads: int | None, decoded: Entry) -> dict[str, Any]:
    """Return a path: where it ran, its times, its results, and the nodes OpenCL took."""
    taken = result.delegation
    entry = _named(taken, "device", "platform", "driver") if taken else {}
    if result.times is not None:
        entry |= _named(result.times, *_TIMES)
        if result.longer is not None:
            entry["compared"] = _named(result.longer, *_TIMES, "runs")
    else:
        entry |= {"pictures_per_second": result.per_second, "average_ms": result.picture_ms}
        entry |= _named(result, "cpu_load", "batch")
    entry["load_ms"] = result.load_ms
    if result.load_parts:
        entry["load"] = {f"{phase}_ms": spent for phase, spent in result.load_parts.items()}
    if taken is None:
        return entry | {"threads": threads, **decoded}
    entry |= {
        **decoded,
        "nodes": len(taken.verdicts),
        "delegated": taken.delegated,
        "partitions": len(taken.partitions),
        "tuning_left": taken.tuning_left,
        "not_delegated": [each._asdict() for each in taken.on_cpu],
    }
    if taken.library:
        entry["external"] = {"library": taken.library, "nodes": [*taken.others]}
    if result.portions:
        entry["devices"] = [
            {
                "index": portion.device.index,
                "device": portion.device.name,
                **_named(portion.device, "platform", "driver"),
                "pictures": portion.pictures,
                "pictures_per_second": rate_of(portion),
                **({"failure": portion.failure} if portion.failure else {}),
            }
            for portion in result.portions
        ]
    return entry


def _named(of: object, *names: str) -> dict[str, Any]:
    return {name: getattr(of, name) for name in names}


def difference_entry(distances: Distances) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "max_difference_quanta_reference": distances.gpu_to_reference.quanta,
        "max_difference_quanta_cpu": distances.gpu_to_cpu.quanta,
    }
    if distances.shares is not None:
        pairs = {"opencl": distances.shares.own, "external": distances.shares.library}
        entry["shares"] = {
            name: {"max_difference_quanta": each.quanta, "max_difference": each.floats}
            for name, each in pairs.items()
        }
    return entry
