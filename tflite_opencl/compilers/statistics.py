# SPDX-License-Identifier: Apache-2.0
"""What compilers tell of the kernels they made, on stderr or in a build's log -> numbers.

Each compiler has a parser, which returns None where the text is of another one. What a compiler
does not tell stays None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tflite_opencl.compilers.assembly import (
    Listing,
    ir3_instructions,
    listing_of,
    mali_instructions,
    v3d_instructions,
)


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
    listing: Listing | None = None  # what a work-item executes

    @property
    def loop_instructions(self) -> float | None:
        """Those of the hot loop, a multiply-add."""
        return None if self.listing is None else self.listing.lines_a_product


NONE = Statistics()
_NUMBER = r"(\d+(?:\.\d+)?)"


def statistics_of(text: str) -> Statistics:
    """Return what a compiler's output tells of the kernel it is of; NONE if it tells nothing."""
    return next((found for parse in _PARSERS if (found := parse(text)) is not None), NONE)


def _shader_db(text: str) -> Statistics | None:
    """Mesa's drivers of Mali and of V3D.

    Mali: src/panfrost/compiler/bifrost_compile.c, bi_print_stats and va_print_stats. V3D:
    src/broadcom/compiler/vir.c, v3d_shaderdb_dump.
    """
    of_mali = re.findall(r"SHADER-DB: MESA_SHADER_(?:KERNEL|COMPUTE) shader: (.*)", text)
    lines = of_mali or re.findall(r"SHADER-DB-\S* - \S+ shader: (.*)", text)
    if not lines:
        return None
    # "12 inst, 3.5 cycles", by the words
    of = {word: float(number) for number, word in re.findall(rf"{_NUMBER} ([\w-]+)", lines[-1])}
    spilled = re.search(r"(\d+):(\d+) spills:fills", lines[-1])
    # Arithmetic of Bifrost is one number; Valhall has three units, the slowest of which counts.
    arithmetic = [of[unit] for unit in ("arith", "fma", "cvt", "sfu") if unit in of]
    return Statistics(
        instructions=int(of["inst"]),
        spills=int(spilled[1]) if spilled else 0,
        fills=int(spilled[2]) if spilled else 0,
        threads=int(of["threads"]),
        cycles=of.get("cycles"),
        arithmetic_cycles=max(arithmetic, default=None),
        memory_cycles=of.get("ldst", of.get("ls")),
        listing=listing_of(mali_instructions(text) if of_mali else v3d_instructions(text)),
    )


def _ir3(text: str) -> Statistics | None:
    """Mesa's src/freedreno/ir3/ir3_shader.c: ir3_shader_disasm."""
    counts = re.findall(r"; \w+ prog \d+/\d+: (\d+) instr, ", text)
    registers = re.findall(r"; \w+ prog \d+/\d+: .* (\d+) full, ", text)
    if not counts or not registers:
        return None
    # Private memory is reached by stp and ldp alone.
    return Statistics(
        registers=int(registers[-1]),
        instructions=int(counts[-1]),
        spills=len(re.findall(r"\bstp\.", text)),
        fills=len(re.findall(r"\bldp\.", text)),
        listing=listing_of(ir3_instructions(text)),
    )


def _nvidia(text: str) -> Statistics | None:
    """Return what ptxas tells with -cl-nv-verbose."""
    registers = re.findall(r"Used (\d+) registers", text)
    if not registers:
        return None
    spilled = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
    stores, loads = map(int, spilled[-1]) if spilled else (None, None)
    return Statistics(registers=int(registers[-1]), spills=stores, fills=loads)


_PARSERS: tuple[Callable[[str], Statistics | None], ...] = (_shader_db, _ir3, _nvidia)
