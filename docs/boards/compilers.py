# SPDX-License-Identifier: Apache-2.0
"""Write compilers.md from .ci/board-compilers.csv: what the boards' compilers make of the kernels.

`.ci/board-compilers DIR renew` runs it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
TABLE = HERE.parents[1] / ".ci" / "board-compilers.csv"
PAGE = HERE / "compilers.md"
Row = dict[str, str]

HEAD = """# The kernels, as the boards' compilers make them

This page is generated: `.ci/board-compilers DIR renew` writes it. It shows every kernel that the
models of `../shared/models` may launch, built by Mesa 25.0 for five GPUs on an x86-64 machine.
Nothing was run. `.ci/board-compilers DIR compare` compares the table that it is made of,
`.ci/board-compilers.csv`; [README](README.md) says what DIR is.

A kernel of several builds has one row. Its figures are those of its worst build. "Expected" counts
the launches of all models' runs that the kernel is expected to be the fastest for. Each cycle and
instruction counts once, however often its loop runs.

| GPU | kernels | not built | keep values in memory | launches expected | of these in memory |
|---|---|---|---|---|---|
"""
ADRENO = ("instr", "instructions"), ("registers", "registers")
MALI = ("memory cycles", "memory_cycles"), ("arithmetic cycles", "arithmetic_cycles")
V3D = ("instr", "instructions"), ("threads", "threads")


def main() -> None:
    """Write the page."""
    rows = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
    PAGE.write_text(text_of(rows), encoding="utf-8")


def text_of(rows: list[Row]) -> str:
    """Return the page."""
    devices = list(dict.fromkeys(row["device"] for row in rows))
    lines = [HEAD.rstrip("\n")]
    for device in devices:
        own = [row for row in rows if row["device"] == device]
        in_memory = [row for row in own if spilled(row)]
        failed = sum(row["built"] != "yes" for row in own)
        lines.append(
            f"| {device} | {len(own)} | {failed} | {len(in_memory)} | {launches(own)} | "
            f"{launches(in_memory)} |"
        )
    for device in devices:
        columns = MALI if "Mali" in device else V3D if "V3D" in device else ADRENO
        lines += ["", f"## {device}", "", "| kernel | variant | expected | spills, fills |"]
        lines[-1] += "".join(f" {heading} |" for heading, _ in columns)
        lines.append("|---|---|---|---|" + "---|" * len(columns))
        lines += of_device([row for row in rows if row["device"] == device], columns)
    failures = [row for row in rows if row["built"] != "yes"]
    if failures:
        lines += ["", "## Not built", ""]
        lines += [
            f"- {r['device']}, {r['kernel']} ({r['variant']}): {r['built']}" for r in failures
        ]
    return "\n".join(lines) + "\n"


def of_device(rows: list[Row], columns: tuple[tuple[str, str], ...]) -> list[str]:
    """Return a line for each kernel and variant."""
    same: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        same[row["kernel"], row["variant"]].append(row)
    lines = []
    for (kernel, variant), builds in sorted(same.items()):
        worst = max(builds, key=lambda row: (spilled(row), float(row["instructions"] or 0)))
        # Fewer threads are worse, of all else more.
        figures = [
            (min if name == "threads" else max)(
                (float(row[name]) for row in builds if row[name]), default=None
            )
            for _, name in columns
        ]
        shown = "".join(f" {'' if value is None else f'{value:.4g}'} |" for value in figures)
        in_memory = f"{worst['spills']}, {worst['fills']}" if spilled(worst) else ""
        lines.append(f"| {kernel} | {variant} | {launches(builds)} | {in_memory} |{shown}")
    return lines


def spilled(row: Row) -> int:
    """Return how many instructions keep values in memory."""
    return int(row["spills"] or 0) + int(row["fills"] or 0)


def launches(rows: list[Row]) -> int:
    """Return the launches of these that are expected to be the fastest."""
    return sum(int(row["expected"]) for row in rows)


if __name__ == "__main__":
    main()
