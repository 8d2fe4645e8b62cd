# SPDX-License-Identifier: Apache-2.0
"""Write compilers.md: what the boards' compilers make of the kernels, and a model on paper.

Its tables are `.ci/board-compilers.csv` and `.ci/board-paper.csv`. With arguments, answers of
`tflite-opencl kernels --json -`, a file for each GPU, it first writes these anew;
`.ci/board-compilers DIR renew` does so. After `--paper before` or `--paper now` they renew only
these rows of the model on paper.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from tflite_opencl.compilers.paper import CHIPS, NOT_SEEN  # noqa: E402
from tflite_opencl.compilers.rows import KernelStats, read_csv  # noqa: E402
from tflite_opencl.console.tables import csv_text  # noqa: E402

TABLE = ROOT / ".ci" / "board-compilers.csv"
PAPER = ROOT / ".ci" / "board-paper.csv"
PAGE = HERE / "compilers.md"
MODELS = (
    "mobilenet_v1_1.0_224_quant",
    "mobilenet_v2_1.0_224_quant",
    "tf2_mobilenet_v2_1.0_224_ptq",
)
MOST = 10  # kernels of a GPU, beside those that spill
Paper = dict[str, str]  # a row of the model on paper

HEAD = """# Kernels compiled for the boards' GPUs

`.ci/board-compilers DIR renew` generates this page from `.ci/board-compilers.csv`; the
[README](README.md) explains DIR. Mesa 25.0 compiled every kernel that the models of
`../shared/models` may launch, for five GPUs, on an x86-64 machine. Nothing was run. The CSV file
has all kernels. This page has, for each GPU, the ten that are launched most, and all that spill.

If a kernel has several builds, its row shows the worst. "Expected" counts the launches of all
models for which the kernel is expected to be the fastest. Cycles and instructions are static
counts: a loop counts once. "a multiply-add" is the hot loop's instructions per multiply-add.

| GPU | kernels | not built | keep values in memory | launches expected | of these in memory |
|---|---|---|---|---|---|
"""
# A word of the GPU's name -> headings and figures that its table has; "" is every other one.
COLUMNS = {
    "Mali": {"memory cycles": "memory_cycles", "arithmetic cycles": "arithmetic_cycles"},
    "V3D": {"instr": "instructions", "threads": "threads"},
    "": {
        "instr": "instructions",
        "a multiply-add": "loop_instructions",
        "registers": "registers",
    },
}

PAPER_HEAD = """## On paper

Predicted milliseconds per run, from the compilers' listings, the trip counts of the hot loops and
the chips' data sheets (sources: `tflite_opencl/compilers/paper.py`). A launch takes the longer of
its compute time and its memory time. Compute: the instructions outside the hot loop once per
work-item, those inside as often as the multiply-adds require. Memory: each tensor and constant
once. `tflite-opencl kernels MODEL` prints the prediction. "Before" is commit 44bb725, whose kernels
spilled. A launch is left out if its compiler crashed or reported nothing.

This is not a measurement, and a board will be slower. It does not see {not_seen}.

On Adreno and V3D a spill counts only as its load and store instructions. So "before" is too low for
V3D, and hardly shows the spills on Adreno. Mali's compiler counts loads and stores separately.

| GPU | assumed | model | launches | before | now | memory alone |
|---|---|---|---|---|---|---|
"""


def main(arguments: Sequence[str]) -> None:
    """Write the page, and the tables that these answers renew."""
    is_paper = arguments[:1] == ["--paper"]
    kernels, files = (arguments[1], arguments[2:]) if is_paper else ("now", arguments)
    answers = [json.loads(Path(each).read_text(encoding="utf-8")) for each in files]
    if answers:
        kept = [row for row in paper_of(PAPER) if row["kernels"] != kernels]
        paper = [*kept, *paper_rows(kernels, answers)]
        write(PAPER, sorted(paper, key=lambda row: row["kernels"] != "before"))
    if answers and not is_paper:
        write(TABLE, [row for answer in answers for row in answer["kernels"]])
    PAGE.write_text(text_of(read_csv(str(TABLE)), paper_of(PAPER)), encoding="utf-8")


def paper_of(path: Path) -> list[Paper]:
    """Return the table of the model on paper."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write a table, without the seconds that a build took."""
    names = [name for name in rows[0] if name != "seconds"]
    path.write_text(csv_text(names, rows) + "\n", encoding="utf-8")


def paper_rows(kernels: str, answers: Sequence[dict[str, Any]]) -> list[Paper]:
    """Return the rows of the model on paper; `kernels`: "before" or "now"."""
    return [
        {"kernels": kernels, "device": answer["device"]["name"], "model": model}
        | {name: str(value) for name, value in answer["paper"][model].items()}
        for answer in answers
        for model in MODELS
    ]


def line(*cells: object) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(map(str, cells))} |"


def text_of(rows: list[KernelStats], paper: list[Paper]) -> str:
    """Return the page."""
    by_device: dict[str, list[KernelStats]] = defaultdict(list)
    for row in rows:
        by_device[row.device].append(row)
    lines = [HEAD.rstrip("\n")]
    for device, own in by_device.items():
        in_memory = [row for row in own if row.scratch]
        failed = sum(not row.is_built for row in own)
        counts = len(own), failed, len(in_memory), launches(own), launches(in_memory)
        lines.append(line(device, *counts))
    lines += ["", *paper_lines(paper)]
    for device, own in by_device.items():
        columns = next(each for word, each in COLUMNS.items() if word in device)
        headings = line("kernel", "variant", "expected", "spills, fills", *columns)
        rule = "|---|---|---|---|" + "---|" * len(columns)
        lines += ["", f"## {device}", "", headings, rule, *of_device(own, columns.values())]
    failures = [row for row in rows if not row.is_built]
    if failures:
        lines += ["", "## Not built", ""]
        lines += [f"- {r.device}, {r.kernel} ({r.variant}): {r.built}" for r in failures]
    return "\n".join(lines) + "\n"


def paper_lines(paper: list[Paper]) -> list[str]:
    """Return the model on paper."""
    lines = PAPER_HEAD.format(not_seen=NOT_SEEN).rstrip("\n").splitlines()
    before = {(r["device"], r["model"]): r for r in paper if r["kernels"] == "before"}
    last = ""
    for row in (row for row in paper if row["kernels"] == "now"):
        device, model = row["device"], row["model"]
        chip = CHIPS[device]
        assumed = f"{chip.board}: {chip.megahertz} MHz, {chip.does} a clock, "
        assumed += f"{chip.gigabytes_a_second:g} GB/s"
        gpu = ("", "") if device == last else (device, assumed)  # once for all its models
        times = shown(before.get((device, model))), shown(row), f"{float(row['memory']):.1f}"
        lines.append(line(*gpu, model, row["launches"], *times))
        last = device
    return lines


def shown(row: Paper | None) -> str:
    """Return a run's time, or "?" where a tenth of its launches and more are unknown."""
    if row is None or 10 * int(row["without"]) >= int(row["launches"]):
        return "?"
    without = f", without {row['without']} of its launches" if row["without"] != "0" else ""
    return f"{float(row['total']):.1f}{without}"


def of_device(rows: list[KernelStats], figures: Iterable[str]) -> list[str]:
    """Return a line for each kernel and variant that is launched most or spills."""
    same: dict[tuple[str, str], list[KernelStats]] = defaultdict(list)
    for row in rows:
        same[row.kernel, row.variant].append(row)
    most = sorted(same.values(), key=launches, reverse=True)[:MOST]
    lines = []
    for (kernel, variant), builds in sorted(same.items()):
        if builds not in most and not any(row.scratch for row in builds):
            continue
        worst = max(builds, key=lambda row: (row.scratch, row.instructions or 0))
        shown = []
        for name in figures:
            known = [value for row in builds if (value := getattr(row, name)) is not None]
            # Fewer threads are worse, of all else more.
            value = (min if name == "threads" else max)(known, default=None)
            shown.append("" if value is None else f"{value:.4g}")
        in_memory = f"{worst.spills}, {worst.fills}" if worst.scratch else ""
        lines.append(line(kernel, variant, launches(builds), in_memory, *shown))
    return lines


def launches(rows: list[KernelStats]) -> int:
    """Return the launches of these that are expected to be the fastest."""
    return sum(row.expected for row in rows)


if __name__ == "__main__":
    main(sys.argv[1:])
