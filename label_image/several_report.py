# SPDX-License-Identifier: Apache-2.0
"""What is shown of many pictures: a row each, the table at the end, the JSON document.

Returns text, or hands it on piece by piece: nothing here grows with the number of pictures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich import box
from rich.table import Table

from delegate import Portion
from label_image.document import (
    comparison_entry,
    device_entry,
    difference_entry,
    verdict_entry,
)
from label_image.expect import Entry
from label_image.outcome import Outcome, Totals
from label_image.path import OpenPath
from label_image.report import delegation_facts, left_to_cpu, load_rows, output_facts
from label_image.result import Result
from label_image.series import Series
from tflite_opencl.common.tables import render
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
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name, path in shown.items():
        how = f"{path.batch} at once" if path.batch > 1 else "one by one"
        table.add_column(f"{name}, {how}", justify="right")
    for word, texts in _rows(list(shown.values())):
        table.add_row(word, *texts)

    facts = [*_count_facts(totals), *more]
    if gpu and cpu and cpu.pictures and gpu.pictures:
        facts.append(("speedup", f"{_speedup(gpu, cpu):.2f} (OpenCL's pictures/s over the CPU's)"))
    if gpu is None or gpu.delegation is None:
        return render(width, table, _grid(facts))
    facts += _device_facts(gpu.portions) or delegation_facts(gpu.delegation)[:1]
    facts += delegation_facts(gpu.delegation)[1:]
    if series.cpu_failure:
        facts.append(("CPU", f"failed: {series.cpu_failure}"))
    if totals.distances is not None:
        how = "; --compare=all compares each" if series.is_sample else ""
        of = f"{totals.compared} of {totals.classified} pictures"
        facts.append(("compared", f"{of}, in {totals.comparing_seconds:.1f} s{how}"))
        where = series.where if totals.wrong else ""
        facts += output_facts(gpu.delegation, totals.distances, kernels, where)
    return render(width, table, _grid(facts), *left_to_cpu(gpu.delegation))


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
        ("model alone, pictures/s", [f"{_per_second(path):.1f}" for path in paths]),
        ("model alone, ms a picture", [f"{_picture_ms(path):.3f}" for path in paths]),
        ("CPU load", [f"{_cpu_load(path):.2f} cores" for path in paths]),
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
        entries[other] = _path_entry(cpu) | {"threads": threads}
    if gpu is None or gpu.delegation is None:
        return entries
    entries["gpu"] = device_entry(gpu.delegation) | _path_entry(gpu)
    entries["gpu"] |= verdict_entry(gpu.delegation)
    if gpu.portions:
        entries["gpu"]["devices"] = [_portion_entry(portion) for portion in gpu.portions]
    if totals.compared:
        entries["compared"] = {"pictures": totals.compared, "seconds": totals.comparing_seconds}
    ratio = _speedup(gpu, cpu) if cpu and cpu.pictures and gpu.pictures else None
    return entries | comparison_entry(totals.distances, {"speedup": ratio})


def _path_entry(path: OpenPath) -> dict[str, Any]:
    load = {f"{phase}_ms": taken for phase, taken in path.load_parts.items()}
    return {
        "pictures_per_second": _per_second(path),
        "average_ms": _picture_ms(path),
        "load_ms": path.load_ms,
        **({"load": load} if load else {}),
        "cpu_load": _cpu_load(path),
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
    entry = {
        "index": info.index,
        "device": info.name,
        "platform": info.platform,
        "driver": info.driver,
        "pictures": portion.pictures,
        "pictures_per_second": _rate(portion),
    }
    return entry | ({"failure": portion.failure} if portion.failure else {})


def _rate(portion: Portion) -> float:
    return portion.pictures / portion.seconds if portion.seconds else 0.0


def _per_second(path: OpenPath) -> float:
    return path.pictures / path.seconds if path.seconds else 0.0


def _picture_ms(path: OpenPath) -> float:
    return 1e3 * path.seconds / path.pictures if path.pictures else 0.0


def _cpu_load(path: OpenPath) -> float:
    return path.cpu_seconds / path.seconds if path.seconds else 0.0


def _speedup(gpu: OpenPath, cpu: OpenPath) -> float:
    return _picture_ms(cpu) / max(_picture_ms(gpu), 1e-9)


def _grid(facts: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for word, text in facts:
        grid.add_row(word, text)
    return grid
