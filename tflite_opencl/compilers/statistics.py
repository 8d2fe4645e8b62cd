# SPDX-License-Identifier: Apache-2.0
"""What compilers tell of the kernels they made, on stderr or in a build's log -> numbers.

Each compiler has a parser, which returns None where the text is of another one. A listing tells
how often a work-item asks each unit of the GPU. Its hot loop is the innermost loop that has most
multiply-adds. What is outside of it counts once: no listing tells how often an outer loop is
passed.

Adreno's is Mesa's ir3 with IR3_SHADER_DEBUG=cs, Mali's panfrost with BIFROST_MESA_DEBUG=shaders,
V3D's V3D_DEBUG=qpu. Mali's units, and which instruction is whose, are those of Mesa's own count:
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
    """One line of a listing."""

    units: tuple[str, ...]  # that do it; a name a unit of this GPU, see paper.py
    products: int
    times: int  # it is done, (rpt2) of Adreno for one
    target: int | None  # the place of the instruction that it may jump to


@dataclass(frozen=True, slots=True)
class Listing:
    """What one work-item executes."""

    once: Mapping[str, int]  # unit -> instructions outside the loop
    loop: Mapping[str, int]  # unit -> instructions of one pass
    products: int  # multiply-adds of one pass; 0: there is no hot loop
    lines: int  # of the loop: one that is repeated counts once


def listing_of(instructions: Sequence[Instruction]) -> Listing | None:
    """Return how often each unit is asked; None: there are no instructions."""
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
    """Yield the places of the loops that hold no other loop."""
    loops = [
        (each.target, place)
        for place, each in enumerate(instructions)
        if each.target is not None and each.target <= place
    ]
    for first, last in loops:
        # A loop may jump back to its head from several places: its last one counts.
        if not any(first < begin and end <= last for begin, end in loops):
            yield range(first, last + 1)


def _by_name(table: Sequence[tuple[str, T]], name: str) -> T:
    """Return what a table has of an instruction: the first pattern that its name begins with."""
    return next(found for pattern, found in table if re.match(pattern, name))


_LABEL = re.compile(r"^(l\d+):$")
_JUMP = re.compile(r"#(l\d+)$")
_MARKS = r"^(?:\([^)]*\) *)*"  # (sy)(rpt2)mad.f32
_INSTRUCTION = re.compile(_MARKS + "[a-z]")
_REPEATED = re.compile(r"\(rpt(\d+)\)")
# Each product counts, as a compiler may add it apart.
_IR3_PRODUCTS = ((r"mad\.|mul\.f", 1), ("dp4acc", 4), ("dp2acc", 2), ("", 0))
_IR3_UNITS = (
    ("nop", "wait"),
    # ir3 multiplies 32-bit integers by 16-bit halves: mull.u and two of madsh.m16.
    (r"mull\.|madsh|mul\.[su]|mad\.[su]", "special"),
    (r"(rcp|rsq|sqrt|log2|exp2|sin|cos|hrsq|hlog2|hexp2)\b", "special"),
    (r"(mad|mul|add|max|min|sel|cmps|absneg)\.f16", "half"),
    (r"(mad|mul|add|max|min|sel|cmps|absneg)\.f|mov\.", "float"),
    ("", "integer"),
)


def ir3_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last kernel, without those that one item does for all."""
    labels: dict[str, int] = {}
    kept: list[str] = []
    is_preamble = False
    # A driver may build kernels of its own first; each begins with a line of these words.
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
# Integers are multiplied for addresses, too: those alone are no multiply-adds.
_MALI_PRODUCTS = (("IDP", 4), (r"FMA\.", 1), ("", 0))
_VALHALL_UNITS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("NOP", ()),
    (_MEMORY, ("memory",)),
    ("(LSHIFT|RSHIFT|ARSHIFT|IMUL|FRCP|FRSQ|FEXP|FLOG|FSIN|FCOS|IDP)", ("special",)),
    ("FMA|FADD", ("multiplier",)),
    ("", ("converter",)),
)


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
        # A pair that sends a message to the memory's unit takes no slot of arithmetic there.
        unit = "memory" if any(re.match(_MEMORY, each) for each in pair) else "arithmetic"
        products = sum(_by_name(_MALI_PRODUCTS, each) for each in pair)
        kept.append(Instruction((unit,), products, 1, _target(_TO_CLAUSE, pair[-1], labels)))
    return kept


def _valhall(text: str) -> list[Instruction]:
    end = text.rfind("NOP.end")
    block = text[: text.find("\n", end)] if end >= 0 else ""
    # The compiler's own form ends with the last block's bracket.
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
_MULTIPLIED = re.compile(r"; *fmul\b")  # integers are multiplied for addresses, too
_DELAY = 3  # instructions after a branch that are still done
_BYTES = 8


def v3d_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last kernel, each of two operations that are done together."""
    found = [_QPU.match(line) for line in text.rpartition(" QPU:")[2].splitlines()]
    kept = []
    for place, line in enumerate(each[1] for each in found if each):
        branch = _BRANCH.match(line)
        # Counted from the instruction after those of the delay.
        target = place + 1 + _DELAY + int(branch[1]) // _BYTES if branch else None
        kept.append(Instruction(("instruction",), bool(_MULTIPLIED.search(line)), 1, target))
    return kept


# Figures by the names of rows.py's columns, those that are told alone; and the listing.
Told = tuple[dict[str, float], Listing | None]
_NUMBER = r"(\d+(?:\.\d+)?)"


def statistics_of(text: str) -> Told:
    """Return what a compiler's output tells of the kernel it is of; it may be nothing."""
    found = next((found for parse in _PARSERS if (found := parse(text)) is not None), ({}, None))
    told, listing = found
    if listing is not None and listing.products:
        told["loop_instructions"] = round(listing.lines / listing.products, 2)
    return found


def _shader_db(text: str) -> Told | None:
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
    spills, fills = map(int, spilled.groups()) if spilled else (0, 0)
    told: dict[str, float] = {"instructions": int(of["inst"]), "threads": int(of["threads"])}
    told |= {"spills": spills, "fills": fills}
    # Arithmetic of Bifrost is one number; Valhall has three units, the slowest of which counts.
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
    # Private memory is reached by stp and ldp alone.
    spills, fills = (len(re.findall(rf"\b{name}\.", text)) for name in ("stp", "ldp"))
    told = {"registers": int(registers[-1]), "instructions": int(counts[-1])}
    return {**told, "spills": spills, "fills": fills}, listing_of(ir3_instructions(text))


def _nvidia(text: str) -> Told | None:
    """Return what ptxas tells with -cl-nv-verbose."""
    registers = re.findall(r"Used (\d+) registers", text)
    if not registers:
        return None
    spilled = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
    bytes_ = dict(zip(("spills", "fills"), map(int, spilled[-1]), strict=True)) if spilled else {}
    return {"registers": int(registers[-1]), **bytes_}, None


_PARSERS: tuple[Callable[[str], Told | None], ...] = (_shader_db, _ir3, _nvidia)
