# SPDX-License-Identifier: Apache-2.0
"""Parses compiler statistics and listings, from stderr or a build log.

Each compiler has a parser, which returns None for another compiler's text. A listing yields the
instructions per work-item on each unit of the GPU. Its hot loop is the innermost loop with the
most multiply-adds. Code outside of it counts once: no listing tells how often an outer loop
iterates.

Adreno's is Mesa's ir3 with IR3_SHADER_DEBUG=cs, Mali's panfrost with BIFROST_MESA_DEBUG=shaders,
V3D's V3D_DEBUG=qpu. Mali's units and their instructions follow Mesa's own statistics:
bi_print_stats of src/panfrost/compiler/bifrost_compile.c, and valhall/va_perf.c with
valhall/ISA.xml.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a listing."""

    units: tuple[str, ...]  # that execute it; names are unit names of this GPU, see paper.py
    products: int
    times: int  # repetitions, such as (rpt2) of Adreno
    target: int | None  # the index of its jump target


@dataclass(frozen=True, slots=True)
class Listing:
    """The instructions of one work-item."""

    once: Mapping[str, int]  # unit -> instructions outside the loop
    loop: Mapping[str, int]  # unit -> instructions of one iteration
    products: int  # multiply-adds of one iteration; 0: there is no hot loop
    lines: int  # of the loop: repeated instructions count once


def listing_of(instructions: Sequence[Instruction]) -> Listing | None:
    """Return the instructions on each unit; None: there are no instructions."""
    if not instructions:
        return None
    hot, most = range(0), 0
    for loop in _innermost(instructions):
        products = sum(instructions[at].products * instructions[at].times for at in loop)
        if products > most:
            hot, most = loop, products
    once: Counter[str] = Counter()
    loop_units: Counter[str] = Counter()
    for at, each in enumerate(instructions):
        counted = loop_units if at in hot else once
        for unit in each.units:
            counted[unit] += each.times
    return Listing(dict(once), dict(loop_units), most, len(hot))


def _innermost(instructions: Sequence[Instruction]) -> Iterator[range]:
    """Yield the index ranges of innermost loops."""
    loops = [
        (each.target, place)
        for place, each in enumerate(instructions)
        if each.target is not None and each.target <= place
    ]
    for first, last in loops:
        # A loop may have several back edges: the last one counts.
        if not any(first < begin and end <= last for begin, end in loops):
            yield range(first, last + 1)


def _by_name(table: Sequence[tuple[str, T]], name: str) -> T:
    """Return a table's entry for an instruction: the first pattern that is a prefix of its name."""
    return next(found for pattern, found in table if re.match(pattern, name))


_LABEL = re.compile(r"^(l\d+):$")
_JUMP = re.compile(r"#(l\d+)$")
_MARKS = r"^(?:\([^)]*\) *)*"  # (sy)(rpt2)mad.f32
_INSTRUCTION = re.compile(_MARKS + "[a-z]")
_REPEATED = re.compile(r"\(rpt(\d+)\)")
# Multiplications count alone, as a compiler may add separately.
_IR3_PRODUCTS = ((r"mad\.|mul\.f", 1), ("dp4acc", 4), ("dp2acc", 2), ("", 0))
_IR3_UNITS = (
    ("nop", "wait"),
    # ir3 multiplies 32-bit integers in 16-bit halves: mull.u and two of madsh.m16.
    (r"mull\.|madsh|mul\.[su]|mad\.[su]", "special"),
    (r"(rcp|rsq|sqrt|log2|exp2|sin|cos|hrsq|hlog2|hexp2)\b", "special"),
    (r"(mad|mul|add|max|min|sel|cmps|absneg)\.f16", "half"),
    (r"(mad|mul|add|max|min|sel|cmps|absneg)\.f|mov\.", "float"),
    ("", "integer"),
)


def ir3_instructions(text: str) -> list[Instruction]:
    """Return the last kernel's instructions, except those that one work-item runs for all."""
    labels: dict[str, int] = {}
    kept: list[str] = []
    is_preamble = False
    # A driver may build internal kernels first; each begins with a line of these words.
    for line in text.rpartition("Native code for")[2].splitlines()[1:]:
        own = line.removeprefix("MESA: info: ").strip()
        name = re.sub(_MARKS, "", own)
        is_preamble = name.startswith("shps") or (is_preamble and not name.startswith("shpe"))
        if label := _LABEL.match(own):
            labels[label[1]] = len(kept)
        elif _INSTRUCTION.match(own) and not is_preamble and not name.startswith("shpe"):
            kept.append(own)
    found = []
    for line in kept:
        name, repeated = re.sub(_MARKS, "", line), _REPEATED.search(line)
        times = 1 + int(repeated[1]) if repeated else 1
        units, products = (_by_name(_IR3_UNITS, name),), _by_name(_IR3_PRODUCTS, name)
        found.append(Instruction(units, products, times, _target(_JUMP, line, labels)))
    return found


def _target(jump: re.Pattern[str], line: str, labels: Mapping[str, int]) -> int | None:
    found = jump.search(line)
    return labels.get(found[1]) if found else None


_CLAUSE = re.compile(r"^clause_(\d+):$")
_TO_CLAUSE = re.compile(r"\bclause_(\d+)$")
_OFFSET = re.compile(r"^BRANCH.*\boffset:(-?\d+)$")
_MEMORY = r"(LOAD|STORE|LD_|ST_|ATOM|ACMPXCHG)"
_OPERATION = re.compile(r"^   [A-Z][A-Z0-9_]*")
# Integer multiplications also compute addresses: they alone are no multiply-adds.
_MALI_PRODUCTS = (("IDP", 4), (r"FMA\.", 1), ("", 0))
_VALHALL_UNITS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("NOP", ()),
    (_MEMORY, ("memory",)),
    ("(LSHIFT|RSHIFT|ARSHIFT|IMUL|FRCP|FRSQ|FEXP|FLOG|FSIN|FCOS|IDP)", ("special",)),
    ("FMA|FADD", ("multiplier",)),
    ("", ("converter",)),
)


def mali_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last kernel; none if the text has no assembly."""
    return _bifrost(text) or _valhall(text)


def _bifrost(text: str) -> list[Instruction]:
    """Return the paired operations of multiplier and adder, which execute together."""
    # The compiler prints its IR first; the assembly begins with the first clause.
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
        # A pair with a message to the memory unit uses no arithmetic slot there.
        unit = "memory" if any(re.match(_MEMORY, each) for each in pair) else "arithmetic"
        products = sum(_by_name(_MALI_PRODUCTS, each) for each in pair)
        kept.append(Instruction((unit,), products, 1, _target(_TO_CLAUSE, pair[-1], labels)))
    return kept


def _valhall(text: str) -> list[Instruction]:
    end = text.rfind("NOP.end")
    block = text[: text.find("\n", end)] if end >= 0 else ""
    # The IR ends with the last block's bracket.
    lines = [line for line in block.rpartition("\n}")[2].splitlines() if _OPERATION.match(line)]
    kept = []
    for place, operation in enumerate(map(str.strip, lines)):
        offset = _OFFSET.search(operation)
        target = place + 1 + int(offset[1]) if offset else None
        units = _by_name(_VALHALL_UNITS, operation)
        kept.append(Instruction(units, _by_name(_MALI_PRODUCTS, operation), 1, target))
    return kept


_QPU = re.compile(r"^0x[0-9a-f]{16} (.*)$")
_BRANCH = re.compile(r"^b[a-z.]*\s+(-?\d+)")
_MULTIPLIED = re.compile(r"; *fmul\b")  # integer multiplications also compute addresses
_DELAY = 3  # delay slots after a branch
_BYTES = 8


def v3d_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last kernel, each of two operations that execute together."""
    found = [_QPU.match(line) for line in text.rpartition(" QPU:")[2].splitlines()]
    kept = []
    for place, line in enumerate(each[1] for each in found if each):
        branch = _BRANCH.match(line)
        # Relative to the instruction after the delay slots.
        target = place + 1 + _DELAY + int(branch[1]) // _BYTES if branch else None
        kept.append(Instruction(("instruction",), bool(_MULTIPLIED.search(line)), 1, target))
    return kept


# Figures by the names of rows.py's columns, as far as reported; and the listing.
Told = tuple[dict[str, float], Listing | None]
_NUMBER = r"(\d+(?:\.\d+)?)"


def statistics_of(text: str) -> Told:
    """Return the statistics in a compiler's output, which may be empty."""
    found = next((found for parse in _PARSERS if (found := parse(text)) is not None), ({}, None))
    told, listing = found
    if listing is not None and listing.products:
        told["loop_instructions"] = round(listing.lines / listing.products, 2)
    return found


def _shader_db(text: str) -> Told | None:
    """Mesa's drivers for Mali and V3D.

    Mali: src/panfrost/compiler/bifrost_compile.c, bi_print_stats and va_print_stats. V3D:
    src/broadcom/compiler/vir.c, v3d_shaderdb_dump.
    """
    of_mali = re.findall(r"SHADER-DB: MESA_SHADER_(?:KERNEL|COMPUTE) shader: (.*)", text)
    lines = of_mali or re.findall(r"SHADER-DB-\S* - \S+ shader: (.*)", text)
    if not lines:
        return None
    # "12 inst, 3.5 cycles", keyed by the words
    of = {word: float(number) for number, word in re.findall(rf"{_NUMBER} ([\w-]+)", lines[-1])}
    spilled = re.search(r"(\d+):(\d+) spills:fills", lines[-1])
    spills, fills = map(int, spilled.groups()) if spilled else (0, 0)
    told: dict[str, float] = {"instructions": int(of["inst"]), "threads": int(of["threads"])}
    told |= {"spills": spills, "fills": fills}
    # Bifrost reports arithmetic as one number; Valhall has three units: the slowest counts.
    units = {"cycles": ("cycles",), "arithmetic_cycles": ("arith", "fma", "cvt", "sfu"),
             "memory_cycles": ("ldst", "ls")}  # fmt: skip
    told |= {
        name: max(of[word] for word in words if word in of)
        for name, words in units.items()
        if of.keys() & words
    }
    return told, listing_of(mali_instructions(text) if of_mali else v3d_instructions(text))


def _ir3(text: str) -> Told | None:
    """Mesa's src/freedreno/ir3/ir3_shader.c: ir3_shader_disasm."""
    counts = re.findall(r"; \w+ prog \d+/\d+: (\d+) instr, ", text)
    registers = re.findall(r"; \w+ prog \d+/\d+: .* (\d+) full, ", text)
    if not counts or not registers:
        return None
    # Only stp and ldp access private memory.
    spills, fills = (len(re.findall(rf"\b{name}\.", text)) for name in ("stp", "ldp"))
    told = {"registers": int(registers[-1]), "instructions": int(counts[-1])}
    return {**told, "spills": spills, "fills": fills}, listing_of(ir3_instructions(text))


def _nvidia(text: str) -> Told | None:
    """Return the statistics that ptxas prints with -cl-nv-verbose."""
    registers = re.findall(r"Used (\d+) registers", text)
    if not registers:
        return None
    spilled = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
    bytes_ = dict(zip(("spills", "fills"), map(int, spilled[-1]), strict=True)) if spilled else {}
    return {"registers": int(registers[-1]), **bytes_}, None


_PARSERS: tuple[Callable[[str], Told | None], ...] = (_shader_db, _ir3, _nvidia)
