# SPDX-License-Identifier: Apache-2.0
"""What follows label_image's own lines: the table of both paths, and the JSON document.

Everything here returns text or writes the one file it is told to.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table

from delegate import DeviceInfo
from label_image.classify import Delegation, PathRun
from label_image.compare import Comparison, Difference
from label_image.labels import Row

# "cpu", "external" or "gpu" -> its run and its results
Paths = dict[str, tuple[PathRun, Sequence[Row]]]


def comparison_text(
    gpu: PathRun, comparison: Comparison | None, kernels: str, width: int = 80
) -> str:
    """Return the table of both paths, then what was delegated, and what was not and why.

    `kernels`: what the CPU ran, as Runtime.kernels names it.
    """
    assert gpu.delegation is not None
    cpu = comparison.cpu if comparison else None
    times = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    times.add_column("")
    times.add_column("OpenCL", justify="right")
    if cpu:
        times.add_column(f"CPU, {kernels}", justify="right")
    for name, texts in _time_rows([gpu, cpu] if cpu else [gpu]):
        times.add_row(name, *texts)

    facts = Table.grid(padding=(0, 2))
    if cpu:
        facts.add_row("speedup", f"{_speedup(gpu, cpu):.2f} (average of the CPU over OpenCL's)")
    for name, text in _facts(gpu.delegation, comparison, kernels):
        facts.add_row(name, text)
    return render(width, times, facts, *left_to_cpu(gpu.delegation))


def devices_text(devices: Sequence[DeviceInfo], width: int = 80) -> str:
    """Return the OpenCL devices as a table; the first column is what --device takes."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", justify="right")
    for heading in ("device", "type", "platform", "OpenCL", "driver"):
        table.add_column(heading, overflow="fold")
    for info in devices:
        table.add_row(
            str(info.index), info.name, info.type, info.platform, _version(info), info.driver
        )
    return render(width, table)


def document(
    about: Mapping[str, Any],
    paths: Paths,
    labels: Sequence[str],
    threads: int | None,
    comparison: Comparison | None,
    described: Mapping[str, Sequence[dict[str, Any]]] | None = None,
    has_scores: bool = True,
) -> str:
    """Return the run as JSON text; what is not known is null, with the reason beside it.

    `described`: the outputs of each path, beside rows of scores or, without scores, instead.
    """
    entries: dict[str, Any] = dict(about)
    for name, (run, rows) in paths.items():
        device = device_entry(run.delegation) if run.delegation else {}
        own = {"threads": threads} if run.delegation is None else {}
        verdicts = verdict_entry(run.delegation) if run.delegation else {}
        results: dict[str, Any] = {}
        if has_scores:
            results["results"] = result_entries(rows, labels)
        if described and described[name]:
            results["outputs"] = list(described[name])
        entries[name] = device | _times_entry(run) | own | results | verdicts
    if "gpu" in paths:
        entries |= _comparison_entry(paths["gpu"][0], comparison)
    return json.dumps(entries, indent=2)


def file_obstacle(path: str) -> str | None:
    """Return why a file cannot be written there, as far as it can be told before; else None."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        return "it is a folder"
    if not target.parent.is_dir():
        return f"there is no folder {target.parent}"
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        return "permission denied"
    return None


def write_file(path: str, text: str) -> None:
    """Write the text: a reader sees the old file or the whole new one.

    Raises: OSError: it cannot be written.
    """
    with replaced_file(path) as file:
        file.write(text + "\n")


@contextlib.contextmanager
def replaced_file(path: str, mode: str = "w") -> Iterator[IO[Any]]:
    """Give a file to write: a reader sees the old one or the whole new one.

    Raises: OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():  # /dev/null or a pipe must stay what it is
        with target.open(mode) as file:
            yield file
        return
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with part.open(mode) as file:
            yield file
        os.replace(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def result_entries(rows: Sequence[Row], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows for JSON."""
    return [
        {
            "index": row.index,
            "label": labels[row.index] if row.index < len(labels) else None,
            "score": row.score,
        }
        for row in rows
    ]


def device_entry(taken: Delegation) -> dict[str, Any]:
    """Return the device for JSON."""
    return {"device": taken.device, "platform": taken.platform, "driver": taken.driver}


def verdict_entry(taken: Delegation) -> dict[str, Any]:
    """Return for JSON what was delegated, and what was not and why."""
    return {
        "nodes": len(taken.verdicts),
        "delegated": taken.delegated,
        "partitions": len(taken.partitions),
        "not_delegated": [
            {"node": node, "op": op, "reason": reason}
            for node, op, reason in taken.verdicts
            if reason is not None
        ],
    }


def _comparison_entry(gpu: PathRun, comparison: Comparison | None) -> dict[str, Any]:
    if comparison is None:
        to_reference = to_cpu = Difference(None, "--compare=false")
    else:
        to_reference, to_cpu = comparison.gpu_to_reference, comparison.gpu_to_cpu
    cpu = comparison.cpu if comparison else None
    entry: dict[str, Any] = {
        "max_difference_quanta_reference": to_reference.quanta,
        "max_difference_quanta_cpu": to_cpu.quanta,
        "speedup": _speedup(gpu, cpu) if cpu else None,
    }
    reason = not_compared(to_reference, to_cpu)
    return entry | {"not_compared": reason} if reason else entry


def not_compared(to_reference: Difference, to_cpu: Difference) -> str:
    """Return for JSON why there is no difference in quanta; "" where floats say it themselves."""
    if to_reference.are_floats and to_cpu.are_floats:
        return ""
    return to_reference.reason or to_cpu.reason


def _version(info: DeviceInfo) -> str:
    # "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-...": the second word is the version.
    words = info.version.split()
    return words[1] if len(words) > 1 else ""


def _times_entry(run: PathRun) -> dict[str, float]:
    return {
        "average_ms": run.times.average_ms,
        "min_ms": run.times.min_ms,
        "median_ms": run.times.median_ms,
        "load_ms": run.load_ms,
        "cpu_load": run.times.cpu_load,
    }


def _time_rows(runs: Sequence[PathRun]) -> list[tuple[str, list[str]]]:
    return [
        ("average, ms", [f"{run.times.average_ms:.3f}" for run in runs]),
        ("minimum, ms", [f"{run.times.min_ms:.3f}" for run in runs]),
        ("median, ms", [f"{run.times.median_ms:.3f}" for run in runs]),
        ("load, ms", [f"{run.load_ms:.1f}" for run in runs]),
        ("CPU load", [f"{run.times.cpu_load:.2f} cores" for run in runs]),
    ]


def _facts(taken: Delegation, comparison: Comparison | None, kernels: str) -> list[tuple[str, str]]:
    facts = delegation_facts(taken)
    if comparison is None:
        return facts
    if comparison.cpu is None:
        facts.append(("CPU", f"failed: {comparison.cpu_failure}"))
    ours, theirs = comparison.gpu_to_reference, comparison.cpu_to_reference
    return facts + output_facts(taken, ours, theirs, kernels)


def delegation_facts(taken: Delegation) -> list[tuple[str, str]]:
    """Return the device's name and how much it took, as (word, text)."""
    return [
        ("device", f"{taken.device} ({taken.platform}, driver {taken.driver})"),
        (
            "nodes",
            f"{taken.delegated} of {len(taken.verdicts)} on OpenCL, "
            f"in {_count(len(taken.partitions), 'partition')}",
        ),
    ]


def output_facts(
    taken: Delegation, ours: Difference, theirs: Difference, kernels: str, where: str = ""
) -> list[tuple[str, str]]:
    """Return how far OpenCL and the CPU are from the reference kernels, as (word, text)."""
    facts = []
    # What is left to the CPU would otherwise bring its own difference.
    too = "" if taken.delegated == len(taken.verdicts) else ", which then run the CPU's part too"
    if ours.quanta == 0:
        facts.append(("outputs", f"equal to TFLite's reference kernels{too}: 0 quanta"))
    elif ours.quanta is not None:
        facts.append(
            (
                "outputs",
                f"DIFFER from TFLite's reference kernels{too}: {_count_quanta(ours.quanta)}{where}",
            )
        )
    elif ours.floats is None:
        facts.append(("outputs", f"not compared with the reference kernels: {ours.reason}"))
    if ours.floats is not None:
        how = f"up to {ours.floats:g} from" if ours.floats else "equal to"
        facts.append(("" if facts else "outputs", f"floats {how} TFLite's reference kernels'{too}"))
    apart = [_count_quanta(theirs.quanta)] if theirs.quanta else []
    apart += [f"up to {theirs.floats:g} in floats"] if theirs.floats else []
    if apart:
        facts.append(
            (
                "",
                f"TFLite's own paths differ: {', '.join(apart)} between its "
                f"{kernels} and its reference kernels",
            )
        )
    return facts


def left_to_cpu(taken: Delegation) -> list[RenderableType]:
    """Return a table of the ops that were not delegated; nothing where there are none."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for node, op, reason in taken.verdicts:
        if reason is not None:
            groups[op, reason].append(node)
    if not groups:
        return []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("left to the CPU", overflow="fold")
    table.add_column("count", justify="right")
    table.add_column("why", overflow="fold")
    table.add_column("nodes", overflow="fold")
    for (op, reason), nodes in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        table.add_row(op, str(len(nodes)), reason, ", ".join(map(str, nodes)))
    return [table]


def _speedup(gpu: PathRun, cpu: PathRun) -> float:
    return cpu.times.average_ms / max(gpu.times.average_ms, 1e-9)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _count_quanta(number: int) -> str:
    return "1 quantum" if number == 1 else f"{number} quanta"


def render(width: int, *parts: RenderableType) -> str:
    """Return tables as plain text."""
    console = Console(
        file=io.StringIO(), width=width, color_system=None, markup=False, highlight=False,
        emoji=False, legacy_windows=False, force_terminal=False,
    )  # fmt: skip
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().strip("\n").splitlines())
