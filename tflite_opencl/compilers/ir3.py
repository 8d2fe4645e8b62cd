# SPDX-License-Identifier: Apache-2.0
"""Adreno's assembly as Mesa's ir3 prints it (IR3_SHADER_DEBUG=cs) -> a listing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tflite_opencl.compilers.listing import Instruction

_LABEL = re.compile(r"^(l\d+):$")
_JUMP = re.compile(r"#(l\d+)$")
_MARKS = r"^(?:\([^)]*\) *)*"  # (sy)(rpt2)mad.f32
_INSTRUCTION = re.compile(_MARKS + "[a-z]")
_REPEATED = re.compile(r"\(rpt(\d+)\)")
# Each product counts, as a compiler may add it apart.
_PRODUCTS = (("mad.", 1), ("mul.f", 1), ("dp4acc", 4), ("dp2acc", 2))
# ir3 multiplies 32-bit integers by 16-bit halves: mull.u and two of madsh.m16.
_MULTIPLIERS = re.compile(r"(mull\.|madsh|mul\.[su]|mad\.[su])")
_SPECIAL = re.compile(r"(rcp|rsq|sqrt|log2|exp2|sin|cos|hrsq|hlog2|hexp2)\b")
_FLOATS = re.compile(r"(mad\.f|mul\.f|add\.f|max\.f|min\.f|sel\.f|cmps\.f|absneg\.f|mov\.)")


def ir3_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last kernel, without those that one item does for all."""
    labels: dict[str, int] = {}
    kept: list[str] = []
    is_preamble = False
    for line in _lines(text):
        name = re.sub(_MARKS, "", line)
        is_preamble = name.startswith("shps") or (is_preamble and not name.startswith("shpe"))
        if label := _LABEL.match(line):
            labels[label[1]] = len(kept)
        elif not is_preamble and not name.startswith("shpe"):
            kept.append(line)
    return [_instruction(line, labels) for line in kept]


def _lines(text: str) -> Iterator[str]:
    # A driver may build kernels of its own first; each begins with a line of these words.
    for line in text.rpartition("Native code for")[2].splitlines()[1:]:
        own = line.removeprefix("MESA: info: ").strip()
        if _LABEL.match(own) or _INSTRUCTION.match(own):
            yield own


def _instruction(line: str, labels: dict[str, int]) -> Instruction:
    name = re.sub(_MARKS, "", line)
    repeated, jump = _REPEATED.search(line), _JUMP.search(line)
    return Instruction(
        units=(_unit(name),),
        products=next((count for start, count in _PRODUCTS if name.startswith(start)), 0),
        times=1 + int(repeated[1]) if repeated else 1,
        target=labels.get(jump[1]) if jump else None,
    )


def _unit(name: str) -> str:
    if name.startswith("nop"):
        return "wait"
    if _MULTIPLIERS.match(name) or _SPECIAL.match(name):
        return "special"
    return "float" if _FLOATS.match(name) else "integer"
