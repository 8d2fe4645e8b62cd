# SPDX-License-Identifier: Apache-2.0
"""What is shown of many pictures: a row each, the table at the end, the JSON document.

Returns text, or hands it on piece by piece: nothing here grows with the number of pictures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delegate.inspect import Portion
from label_image.document import comparison_entry, difference_entry, path_entry
from label_image.expect import Entry
from label_image.path import OpenPath
from label_image.paths import Outcome, Totals
from label_image.report import delegation_facts, load_rows, output_facts, paths_text, speedup
from label_image.result import Result
from label_image.series import Series
from tflite_opencl.common.words import stamped


def summary_text(
    series: Series,
    kernels: str,
    other: str = "CPU",
    width: int = 80,
    more: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the table of the paths, then what was read, delegated and compared.

    `kernels`: what the CPU ran, as Runtime.kernels names it; `other`: what runs beside OpenCL.
    `more`: facts about all pictures, as (word, text).
    """
    gpu, cpu, totals = series.gpu, series.cpu, series.totals
    paths = {"OpenCL": gpu, f"{other}, {kernels}" if other == "CPU" else other: cpu}
    shown = {name: path for name, path in paths.items() if path is not None}
    headings = [
        f"{name}, {f'{path.batch} at once' if path.batch > 1 else 'one by one'}"
        for name, path in shown.items()
    ]
    rows = _rows(list(shown.values()))
    facts = [*_count_facts(totals), *more]
    if gpu and cpu and cpu.pictures and gpu.pictures:
        facts.append(("speedup", f"{speedup(gpu, cpu):.2f} (OpenCL's pictures/s over the CPU's)"))
    if gpu is None or gpu.delegation is None:
        return paths_text(headings, rows, facts, None, width)
    facts += _device_facts(gpu.portions) or delegation_facts(gpu.delegation)[:1]
    facts += delegation_facts(gpu.delegation)[1:]
    if series.comparison and series.comparison.cpu_failure:
        facts.append(("CPU", f"failed: {series.comparison.cpu_failure}"))
    if totals.distances is not None:
        how = "; --compare=all compares each" if series.is_sample else ""
        of = f"{totals.compared} of {totals.classified} pictures"
        facts.append(("compared", f"{of}, in {totals.comparing_seconds:.1f} s{how}"))
        where = series.where if totals.wrong else ""
        facts += output_facts(gpu.delegation, totals.distances, kernels, where)
    return paths_text(headings, rows, facts, gpu.delegation, width)


def _count_facts(totals: Totals) -> list[tuple[str, str]]:
    """Return what all pictures together took by the clock, as (word, text)."""
    facts = []
    unreadable = f", {totals.unreadable} not readable" if totals.unreadable else ""
    rate = f", {totals.per_second:.1f}/s by the clock" if totals.seconds else ""
    facts.append(("pictures", f"{totals.classified} classified{unreadable}{rate}"))
    if totals.processes:
        children = "1 process" if totals.processes == 1 else f"{totals.processes} processes"
        facts.append(
            (
                "decoding",
                f"{totals.decoding_ms:.2f} ms a picture, in {children}: "
                f"{1e3 * totals.processes / max(totals.decoding_ms, 1e-9):.1f}/s, at the same time",
            )
        )
    return facts


class Document:
    """The run as JSON, written as it goes: what is known before, a line a picture, the rest."""

    def __init__(self, write: Callable[[str], object], about: Mapping[str, Any]) -> None:
        """`write` is given whole lines, without their ends."""
        self._write = write
        self._waiting: str | None = None  # the last picture's line: will a comma follow?
        self._write(json.dumps(stamped({**about}), indent=2).removesuffix("\n}") + ",")
        self._write('  "pictures": [')

    def add(self, entry: Entry) -> None:
        """Write a picture's object."""
        if self._waiting is not None:
            self._write(self._waiting + ",")
        self._waiting = f"    {json.dumps(entry)}"

    def end(
        self,
        series: Series,
        threads: int | None,
        other: str = "cpu",
        skipped: int = 0,
        is_interrupted: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Write what all pictures together came to; `is_interrupted`: those before Ctrl-C.

        `more`: what else is known of all of them.
        """
        if self._waiting is not None:
            self._write(self._waiting)
        self._write("  ],")
        entries: dict[str, Any] = {"interrupted": True} if is_interrupted else {}
        entries |= {"skipped": skipped} if skipped else {}
        entries |= more or {}
        text = json.dumps(entries | _summary_entry(series, threads, other), indent=2)
        self._write(text.removeprefix("{\n"))


def picture_entry(outcome: Outcome, result: Result) -> dict[str, Any]:
    """Return a picture's object for JSON."""
    entry: dict[str, Any] = {"image": outcome.path}
    if outcome.error:
        return entry | {"error": outcome.error}
    entry |= result.entry(outcome.distances)
    return entry | (difference_entry(outcome.distances) if outcome.distances else {})


def _rows(paths: Sequence[OpenPath]) -> list[tuple[str, list[str]]]:
    return [
        ("model alone, pictures/s", [f"{path.per_second:.1f}" for path in paths]),
        ("model alone, ms a picture", [f"{path.picture_ms:.3f}" for path in paths]),
        ("CPU load", [f"{path.cpu_load:.2f} cores" for path in paths]),
        *load_rows(paths),
    ]


def _summary_entry(series: Series, threads: int | None, other: str) -> dict[str, Any]:
    gpu, cpu, totals = series.gpu, series.cpu, series.totals
    entries: dict[str, Any] = {
        "classified": totals.classified,
        "unreadable": totals.unreadable,
        "seconds": totals.seconds,
        "pictures_per_second": totals.per_second,
        "decoding": {"average_ms": totals.decoding_ms, "processes": totals.processes},
    }
    if series.failure:
        entries["failure"] = series.failure
    if cpu is not None:
        entries[other] = path_entry(cpu, _rates_entry(cpu), threads)
    if gpu is None or gpu.delegation is None:
        return entries
    entries["gpu"] = path_entry(gpu, _rates_entry(gpu), threads)
    if gpu.portions:
        entries["gpu"]["devices"] = [_portion_entry(portion) for portion in gpu.portions]
    if totals.compared:
        entries["compared"] = {"pictures": totals.compared, "seconds": totals.comparing_seconds}
    ratio = speedup(gpu, cpu) if cpu and cpu.pictures and gpu.pictures else None
    why = "no picture was classified" if series.comparison else "--compare=false"
    return entries | comparison_entry(totals.distances, {"speedup": ratio}, why)


def _rates_entry(path: OpenPath) -> dict[str, Any]:
    return {
        "pictures_per_second": path.per_second,
        "average_ms": path.picture_ms,
        "cpu_load": path.cpu_load,
        "batch": path.batch,
    }


def _device_facts(portions: Sequence[Portion]) -> list[tuple[str, str]]:
    """Return what each of several devices did, as (word, text)."""
    facts = []
    for portion in portions:
        info = portion.device
        did = f"{portion.pictures} pictures, {_rate(portion):.1f}/s"
        left_out = f"; left out: {portion.failure}" if portion.failure else ""
        whose = f"{info.name} ({info.platform}, driver {info.driver})"
        facts.append((f"device {info.index}", f"{did}: {whose}{left_out}"))
    return facts


def _portion_entry(portion: Portion) -> dict[str, Any]:
    info = portion.device
    whose = {"device": info.name, "platform": info.platform, "driver": info.driver}
    did = {"pictures": portion.pictures, "pictures_per_second": _rate(portion)}
    return {"index": info.index, **whose, **did} | (
        {"failure": portion.failure} if portion.failure else {}
    )


def _rate(portion: Portion) -> float:
    return portion.pictures / portion.seconds if portion.seconds else 0.0
