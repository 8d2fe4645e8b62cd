# SPDX-License-Identifier: Apache-2.0
"""What follows label_image's own lines: the table of both paths. Everything here returns text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table

from delegate import DeviceInfo
from label_image.classify import PathRun
from label_image.compare import Distances
from label_image.path import OpenPath
from label_image.paths import Comparison
from tflite_opencl.common.job import Delegation
from tflite_opencl.common.tables import render

_PHASES = ("device", "build", "tune", "upload")


def comparison_text(
    gpu: PathRun,
    comparison: Comparison[PathRun] | None,
    kernels: str,
    width: int = 80,
    untuned: PathRun | None = None,
) -> str:
    """Return the table of both paths, then what was delegated, and what was not and why.

    `kernels`: what the CPU ran, as Runtime.kernels names it. `untuned`: OpenCL's run before.
    """
    assert gpu.delegation is not None
    cpu = comparison.cpu if comparison else None
    runs = {"OpenCL, tuned" if untuned else "OpenCL": gpu}
    runs |= {"OpenCL, first": untuned} if untuned else {}
    runs |= {f"CPU, {kernels}": cpu} if cpu else {}
    facts = speedup_facts(gpu, cpu) + comparison_facts(gpu.delegation, comparison, kernels)
    return paths_text([*runs], time_rows([*runs.values()]), facts, gpu.delegation, width)


def paths_text(
    headings: Sequence[str],
    rows: Sequence[tuple[str, Sequence[str]]],
    facts: Sequence[tuple[str, str]],
    taken: Delegation | None,
    width: int,
) -> str:
    """Return a table with a column a path, then facts, then what was left to the CPU and why.

    `rows`: a word and a text a path; `facts`: a word and a text.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    for word, texts in rows:
        table.add_row(word, *texts)
    grid = Table.grid(padding=(0, 2))
    for fact in facts:
        grid.add_row(*fact)
    return render(width, table, grid, *(left_to_cpu(taken) if taken else []))


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


def _version(info: DeviceInfo) -> str:
    # "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-...": the second word is the version.
    words = info.version.split()
    return words[1] if len(words) > 1 else ""


def time_rows(runs: Sequence[PathRun]) -> list[tuple[str, list[str]]]:
    """Return the times of each run, as (word, a text a run)."""
    return [
        ("average, ms", [f"{run.compared.average_ms:.3f}" for run in runs]),
        ("minimum, ms", [f"{run.compared.min_ms:.3f}" for run in runs]),
        ("median, ms", [f"{run.compared.median_ms:.3f}" for run in runs]),
        ("runs", [str(run.compared.runs) for run in runs]),
        ("CPU load", [f"{run.compared.cpu_load:.2f} cores" for run in runs]),
        *load_rows(runs),
    ]


def load_rows(runs: Sequence[PathRun | OpenPath]) -> list[tuple[str, list[str]]]:
    """Return the time until each run was ready, and its phases, as (word, a text a run)."""
    phases = [phase for phase in _PHASES if any(phase in run.load_parts for run in runs)]
    return [("load, ms", [f"{run.load_ms:.1f}" for run in runs])] + [
        (f"  {phase}", [f"{run.load_parts[phase]:.1f}" if run.load_parts else "" for run in runs])
        for phase in phases
    ]


def comparison_facts(
    taken: Delegation, comparison: Comparison[PathRun] | None, kernels: str
) -> list[tuple[str, str]]:
    """Return what was delegated, and how far the paths are apart, as (word, text)."""
    facts = delegation_facts(taken)
    if comparison is None or comparison.distances is None:
        return facts
    if comparison.cpu is None:
        facts.append(("CPU", f"failed: {comparison.cpu_failure}"))
    return facts + output_facts(taken, comparison.distances, kernels)


def delegation_facts(taken: Delegation) -> list[tuple[str, str]]:
    """Return the device's name and how much it took, as (word, text)."""
    left = _count(taken.tuning_left, "choice")
    unfinished = f"not finished: {left} left for later starts; --tune full measures all at once"
    return [
        ("device", f"{taken.device} ({taken.platform}, driver {taken.driver})"),
        (
            "nodes",
            f"{taken.delegated} of {len(taken.verdicts)} on OpenCL, "
            f"in {_count(len(taken.partitions), 'partition')}",
        ),
        *([("tuning", unfinished)] if taken.tuning_left else []),
    ]


def output_facts(
    taken: Delegation, distances: Distances, kernels: str, where: str = ""
) -> list[tuple[str, str]]:
    """Return how far OpenCL and the CPU are from the reference kernels, as (word, text)."""
    ours, theirs = distances.gpu_to_reference, distances.cpu_to_reference
    facts = []
    # The CPU's part of the nodes would otherwise bring its own difference.
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
    rows = refusals(taken)
    if not rows:
        return []
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("left to the CPU", overflow="fold")
    table.add_column("count", justify="right")
    table.add_column("why", overflow="fold")
    table.add_column("nodes", overflow="fold")
    for op, count, reason, nodes in rows:
        table.add_row(op, str(count), reason, nodes)
    return [table]


def refusals(taken: Delegation) -> list[tuple[str, int, str, str]]:
    """Return (op, count, reason, nodes) of what was not delegated, the most nodes first."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for node, op, reason in taken.verdicts:
        if reason is not None:
            groups[op, reason].append(node)
    return [
        (op, len(nodes), reason, ", ".join(map(str, nodes)))
        for (op, reason), nodes in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def speedup(gpu: PathRun | OpenPath, cpu: PathRun | OpenPath) -> float:
    """Return the time of a picture on the CPU over that on OpenCL."""
    return cpu.picture_ms / max(gpu.picture_ms, 1e-9)


def speedup_facts(gpu: PathRun, cpu: PathRun | None) -> list[tuple[str, str]]:
    """Return how much faster OpenCL is, as (word, text); nothing without the CPU's run."""
    if cpu is None:
        return []
    return [("speedup", f"{speedup(gpu, cpu):.2f} (median of the CPU over OpenCL's)")]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _count_quanta(number: int) -> str:
    return "1 quantum" if number == 1 else f"{number} quanta"
