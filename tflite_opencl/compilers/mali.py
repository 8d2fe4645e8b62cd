# SPDX-License-Identifier: Apache-2.0
"""Mali's assembly as Mesa's panfrost prints it (BIFROST_MESA_DEBUG=shaders) -> a listing.

The units, and which instruction is whose, are those of Mesa's own count: bi_print_stats of
src/panfrost/compiler/bifrost_compile.c, and valhall/va_perf.c with valhall/ISA.xml.
"""

from __future__ import annotations

import re

from tflite_opencl.compilers.listing import Instruction

_CLAUSE = re.compile(r"^clause_(\d+):$", re.MULTILINE)
_JUMP = re.compile(r"\bclause_(\d+)$")
_OFFSET = re.compile(r"\boffset:(-?\d+)$")
_MEMORY = re.compile(r"(LOAD|STORE|LD_|ST_|ATOM|ACMPXCHG)")
_SPECIAL = re.compile(r"(LSHIFT|RSHIFT|ARSHIFT|IMUL|FRCP|FRSQ|FEXP|FLOG|FSIN|FCOS|IDP)")
_OPERATION = re.compile(r"^   [A-Z][A-Z0-9_]*")


def mali_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last kernel; none where the text has no assembly."""
    return _bifrost(text) or _valhall(text)


def _bifrost(text: str) -> list[Instruction]:
    """Return the pairs of a multiplier's and an adder's operation, which are done together."""
    # The compiler prints its own form first; the assembly begins with the first clause.
    start = text.rfind("\nclause_0:")
    if start < 0:
        return []
    labels: dict[str, int] = {}
    pairs: list[list[str]] = []
    for line in text[start:].splitlines():
        own = line.strip()
        if label := _CLAUSE.match(own):
            labels[label[1]] = len(pairs)
        elif own.startswith("*"):
            pairs.append([own[1:]])
        elif own.startswith("+") and pairs:
            pairs[-1].append(own[1:])
    kept = []
    for pair in pairs:
        jump = _JUMP.search(pair[-1])
        # A pair that sends a message to the memory's unit takes no slot of arithmetic there.
        unit = "memory" if any(_MEMORY.match(each) for each in pair) else "arithmetic"
        products = sum(_products(each) for each in pair)
        kept.append(Instruction((unit,), products, target=labels.get(jump[1]) if jump else None))
    return kept


def _valhall(text: str) -> list[Instruction]:
    end = text.rfind("NOP.end")
    block = text[: text.find("\n", end)] if end >= 0 else ""
    # The compiler's own form ends with the last block's bracket.
    lines = [line for line in block.rpartition("\n}")[2].splitlines() if _OPERATION.match(line)]
    kept = []
    for place, line in enumerate(lines):
        offset = _OFFSET.search(line) if line.strip().startswith("BRANCH") else None
        target = place + 1 + int(offset[1]) if offset else None
        kept.append(Instruction(_valhall_units(line.strip()), _products(line.strip()), 1, target))
    return kept


def _valhall_units(operation: str) -> tuple[str, ...]:
    if operation.startswith("NOP"):
        return ()
    if _MEMORY.match(operation):
        return ("memory",)
    if _SPECIAL.match(operation):
        return ("special",)
    return ("multiplier",) if operation.startswith(("FMA", "FADD")) else ("converter",)


def _products(operation: str) -> int:
    # Integers are multiplied for addresses, too: those alone are no multiply-adds.
    return 4 if operation.startswith("IDP") else int(operation.startswith("FMA."))
