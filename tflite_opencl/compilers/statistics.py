# SPDX-License-Identifier: Apache-2.0
"""What compilers tell of the kernels they made, on stderr or in a build's log -> numbers.

Each compiler has a parser, which returns None where the text is of another one. What a compiler
does not tell stays None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from tflite_opencl.compilers.ir3 import ir3_instructions
from tflite_opencl.compilers.listing import Instruction, Listing, listing_of
from tflite_opencl.compilers.mali import mali_instructions
from tflite_opencl.compilers.v3d import v3d_instructions


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a compiler tells of one kernel; None: it does not tell."""

    registers: int | None = None  # Adreno: of four words; NVIDIA: of one
    instructions: int | None = None
    spills: int | None = None  # instructions that put values into memory; NVIDIA: bytes
    fills: int | None = None  # and that read them again
    threads: int | None = None  # side by side, in the compiler's own count
    cycles: float | None = None  # of the whole kernel, each instruction once
    arithmetic_cycles: float | None = None
    memory_cycles: float | None = None  # of loads and stores
    loop_instructions: float | None = None  # of the hot loop, a multiply-add
    listing: Listing | None = None  # what a work-item executes


NONE = Statistics()
_NUMBER = r"(\d+(?:\.\d+)?)"


def statistics_of(text: str) -> Statistics:
    """Return what a compiler's output tells of the kernel it is of; NONE if it tells nothing."""
    return next((found for parse in _PARSERS if (found := parse(text)) is not None), NONE)


def _panfrost(text: str) -> Statistics | None:
    """Mesa's src/panfrost/compiler/bifrost_compile.c: bi_print_stats and va_print_stats."""
    # Arithmetic of Bifrost is one number; Valhall has three units, the slowest of which counts.
    lines = re.findall(r"SHADER-DB: MESA_SHADER_(?:KERNEL|COMPUTE) shader: (.*)", text)
    if not lines:
        return None
    of = _numbers(lines[-1])
    spills, fills = _spills_and_fills(lines[-1])
    told = Statistics(
        instructions=int(of["inst"]),
        spills=spills,
        fills=fills,
        threads=int(of["threads"]),
        cycles=of["cycles"],
        arithmetic_cycles=max(of.get(unit, 0.0) for unit in ("arith", "fma", "cvt", "sfu")),
        memory_cycles=of["ldst"] if "ldst" in of else of["ls"],
    )
    return _listed(told, mali_instructions(text))


def _v3d(text: str) -> Statistics | None:
    """Mesa's src/broadcom/compiler/vir.c: v3d_shaderdb_dump."""
    lines = re.findall(r"SHADER-DB-\S* - \S+ shader: (.*)", text)
    if not lines:
        return None
    of = _numbers(lines[-1])
    spills, fills = _spills_and_fills(lines[-1])
    told = Statistics(
        instructions=int(of["inst"]), spills=spills, fills=fills, threads=int(of["threads"])
    )
    return _listed(told, v3d_instructions(text))


def _ir3(text: str) -> Statistics | None:
    """Mesa's src/freedreno/ir3/ir3_shader.c: ir3_shader_disasm."""
    counts = re.findall(r"; \w+ prog \d+/\d+: (\d+) instr, ", text)
    registers = re.findall(r"; \w+ prog \d+/\d+: .* (\d+) full, ", text)
    if not counts or not registers:
        return None
    # Private memory is reached by these alone.
    told = Statistics(
        registers=int(registers[-1]),
        instructions=int(counts[-1]),
        spills=len(re.findall(r"\bstp\.", text)),
        fills=len(re.findall(r"\bldp\.", text)),
    )
    return _listed(told, ir3_instructions(text))


def _nvidia(text: str) -> Statistics | None:
    """Return what ptxas tells with -cl-nv-verbose."""
    registers = re.findall(r"Used (\d+) registers", text)
    if not registers:
        return None
    told = Statistics(registers=int(registers[-1]))
    spilled = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
    if spilled:
        stores, loads = map(int, spilled[-1])
        told = replace(told, spills=stores, fills=loads)
    return told


def _listed(told: Statistics, instructions: list[Instruction]) -> Statistics:
    """Return this with what the compiler's assembly tells, where it printed any."""
    if not instructions:
        return told
    listing = listing_of(instructions)
    return replace(told, loop_instructions=listing.lines_a_product, listing=listing)


_PARSERS: tuple[Callable[[str], Statistics | None], ...] = (_panfrost, _v3d, _ir3, _nvidia)


def _numbers(line: str) -> dict[str, float]:
    """Return "12 inst, 3.5 cycles" by its words."""
    return {word: float(number) for number, word in re.findall(rf"{_NUMBER} ([\w-]+)", line)}


def _spills_and_fills(line: str) -> tuple[int, int]:
    found = re.search(r"(\d+):(\d+) spills:fills", line)
    return (int(found[1]), int(found[2])) if found else (0, 0)
