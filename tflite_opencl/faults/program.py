# SPDX-License-Identifier: Apache-2.0
"""Writes a fault as a folder: kernel, data, a C program, its Makefile, README, a piglit test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from delegate import DeviceInfo
from delegate.inspect import CallPlan
from tflite_opencl import __version__
from tflite_opencl.console.errors import make_folder, write
from tflite_opencl.faults.piglit import piglit_test, why_no_piglit_test
from tflite_opencl.faults.trial import (
    HANG,
    LIMIT_SECONDS,
    FaultCase,
    ReplayResult,
    bytes_of,
    tensor_text,
)

_BLOCK_INTS = 2  # before a call's parameters
_KINDS = {"i": "i", "u": "u", "b": "u", "f": "f"}
_MAKEFILE = """\
CC ?= cc
CFLAGS ?= -O1 -g -std=c99 -Wall
fault: main.c fault.h
\t$(CC) $(CFLAGS) -o $@ $< -lOpenCL -lm
oclgrind: fault
\toclgrind --build-options -cl-opt-disable ./fault
.PHONY: oclgrind
"""


@dataclass(frozen=True, slots=True)
class FaultReport:
    """What README says about a fault beside its data."""

    info: DeviceInfo
    outcome: ReplayResult
    nodes: str  # "node 3 of model.tflite"


def write_fault(folder: Path, fault: FaultCase, report: FaultReport) -> list[str]:
    """Write the folder; return the files' names. Raises: CommandError: a file cannot be written."""
    given = fault.filled()
    sources = {source: name for name, source in _sources(given.calls).items()}
    files: dict[str, bytes | str] = {name: source for source, name in sources.items()}
    files |= _data(fault)
    files["main.c"] = (Path(__file__).parent / "main.c").read_text()
    files["fault.h"] = _tables(fault, sources, report, files)
    files["Makefile"] = _MAKEFILE
    if not (reason := why_no_piglit_test(fault)):
        files["piglit.cl"] = piglit_test(fault, _title(fault, report))
    files["README.md"] = _readme(fault, report, reason)
    make_folder(folder)
    for name, written in files.items():
        write(str(folder / name), written)
    return [*files]


def kernel_lines(fault: FaultCase) -> int:
    """Return the number of lines of the kernels' sources."""
    return sum(source.count("\n") for source in _sources(fault.reproducer.calls).values())


def _sources(calls: tuple[CallPlan, ...]) -> dict[str, str]:
    """Return the distinct sources by file name."""
    found = [*dict.fromkeys(call.program.source for call in calls)]
    names = ["kernel.cl"] if len(found) == 1 else [f"kernel_{n}.cl" for n in range(len(found))]
    return dict(zip(names, found, strict=True))


def _data(fault: FaultCase) -> dict[str, bytes]:
    """Return the .bin files."""
    given = fault.reproducer
    files: dict[str, bytes] = {}
    if given.arena[_others(fault)].any():
        files["arena.bin"] = given.arena.tobytes()  # constants that kernels read there
    for number, place in enumerate(given.inputs):
        part = given.arena[place.offset : place.offset + place.size_bytes]
        files[f"input_{number}.bin"] = part.tobytes()
    pairs = zip(given.outputs, fault.expected, fault.bounds, strict=True)
    for number, (place, expected, bound) in enumerate(pairs):
        files[f"expected_{number}.bin"] = bytes_of(expected, place.dtype).tobytes()
        if bound is not None:
            each = np.broadcast_to(bound, expected.shape).astype("<f8")
            files[f"bound_{number}.bin"] = np.ascontiguousarray(each).tobytes()
    if given.constants.any():
        files["constants.bin"] = given.constants.tobytes()
    files["params.bin"] = given.ints.tobytes()
    return files


def _others(fault: FaultCase) -> NDArray[np.bool_]:
    """Return a mask of the arena: what no input or output covers."""
    mask = np.ones(fault.reproducer.arena.size, np.bool_)
    for place in (*fault.reproducer.inputs, *fault.reproducer.outputs):
        mask[place.offset : place.offset + place.size_bytes] = False
    return mask


def _tables(
    fault: FaultCase,
    sources: Mapping[str, str],
    report: FaultReport,
    files: Mapping[str, bytes | str],
) -> str:
    given = fault.reproducer
    options = " ".join(given.options)
    sizes = [max(each.nbytes, 4) for each in (given.arena, given.constants, given.ints)]
    flip = 0 if fault.begins_right else 255
    loads = [("arena.bin", "ARENA", 0, 0)] if "arena.bin" in files else []
    loads += [(f"expected_{n}.bin", "ARENA", t.offset, flip) for n, t in enumerate(given.outputs)]
    loads += [(f"input_{n}.bin", "ARENA", t.offset, 0) for n, t in enumerate(given.inputs)]
    loads += [("constants.bin", "CONSTANTS", 0, 0)] if "constants.bin" in files else []
    loads.append(("params.bin", "PARAMS", 0, 0))
    begin = "the right values" if fault.begins_right else "the complement of the right values"
    pairs = zip(given.calls, given.fields, strict=True)
    lines = [
        f"// {_title(fault, report)}",
        "enum { ARENA, CONSTANTS, PARAMS, BUFFERS };",
        f'#define OPTIONS "{options}"',
        f"enum {{ LIMIT_SECONDS = {limit_of(report.outcome)} }};",
        f"static const size_t SIZES[BUFFERS] = {{{', '.join(map(str, sizes))}}};  // in bytes",
        f"// Which file is where in which buffer. Outputs begin as {begin}.",
        "typedef struct { const char *file; int buffer; size_t offset; int flip; } Load;",
        "static const Load loads[] = {",
        *(f'  {{"{name}", {buffer}, {at}, {bits}}},' for name, buffer, at, bits in loads),
        "};",
        "// fields: the ints of a parameter block that is an argument; 0: it is in PARAMS.",
        "typedef struct {",
        "  const char *file, *kernel;",
        "  size_t items, group;",
        "  cl_int first, fields;",
        "} Call;",
        "static const Call calls[] = {",
        *(_call(call, sources, names) for call, names in pairs),
        "};",
        "typedef struct {",
        "  const char *expected, *bound;",
        "  char kind;",
        "  size_t size, offset, count;",
        "} Output;",
        "static const Output outputs[] = {",
        *(_output(fault, number) for number in range(len(given.outputs))),
        "};",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def limit_of(outcome: ReplayResult) -> int:
    """Return the program's time limit in seconds."""
    return LIMIT_SECONDS if outcome.kind == HANG else 2 * LIMIT_SECONDS


def _call(call: CallPlan, sources: Mapping[str, str], names: tuple[str, ...]) -> str:
    fields = len(names) if call.block else 0
    own = f"{call.global_size}, {call.local_size}, {call.number}, {fields}"
    return f'  {{"{sources[call.program.source]}", "{call.kernel}", {own}}},'


def _output(fault: FaultCase, number: int) -> str:
    place, expected = fault.reproducer.outputs[number], fault.expected[number]
    bound = "NULL" if fault.bounds[number] is None else f'"bound_{number}.bin"'
    kind, size = _KINDS[expected.dtype.kind], expected.dtype.itemsize
    own = f"'{kind}', {size}, {place.offset}, {expected.size}"
    return f'  {{"expected_{number}.bin", {bound}, {own}}},  // {tensor_text(place)}'


def _title(fault: FaultCase, report: FaultReport) -> str:
    given = fault.reproducer
    what = f"{given.op}, {given.alternative}" if given.alternative else given.op
    return f"{report.outcome.kind} in {what}: {' '.join({c.kernel: 0 for c in given.calls})}"


def _readme(fault: FaultCase, report: FaultReport, reason: str) -> str:
    given, info, outcome = fault.reproducer, report.info, report.outcome
    right = "all outputs right" if outcome.kind == "wrong result" else "an end without an error"
    rows = [
        ("device", info.name),
        ("platform", f"{info.platform}, {info.platform_version}"),
        ("driver", info.driver),
        ("build options", " ".join(given.options)),
        ("expected", right),
        ("got", f"{outcome.kind}: {outcome.detail}"),
        ("found in", report.nodes),
        ("written by", f"tflite-opencl {__version__}"),
    ]
    lines = [
        f"# {_title(fault, report)}",
        "",
        "`make && ./fault` builds and runs the kernel with nothing but OpenCL, prints which "
        "elements differ, and ends with 1; 0 if all are right. `./fault WORD` selects a platform "
        "or device. `make oclgrind` shows accesses out of range.",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {_cell(text)} |" for name, text in rows),
        "",
        *_call_lines(fault),
        "",
        "| tensor | type | offset in the arena |",
        "|---|---|---|",
        *(f"| input_{n}.bin | {tensor_text(t)} | {t.offset} |" for n, t in enumerate(given.inputs)),
        *(f"| expected_{n}.bin | {tensor_text(t)} | {t.offset} |"
          for n, t in enumerate(given.outputs)),
        "",
        "A kernel's arguments are the arena, which holds all tensors, the constants (weights), and "
        "either all parameter blocks and the index of its own, or its block.",
        "",
        f"There is no piglit test: {reason}." if reason
        else "`piglit.cl` is the same as a test for piglit: `cl-program-tester piglit.cl`.",
    ]  # fmt: skip
    if outcome.log:
        lines += ["", "The driver's words:", "", "```", outcome.log.strip()[:4000], "```"]
    return "\n".join(lines) + "\n"


def _call_lines(fault: FaultCase) -> list[str]:
    """Return for each call its sizes and parameters by name."""
    ints, lines = fault.reproducer.ints.view(np.int32), list[str]()
    for call, names in zip(fault.reproducer.calls, fault.reproducer.fields, strict=True):
        values = ints[call.number : call.number + len(names)].tolist()
        head = ints[call.number - _BLOCK_INTS : call.number].tolist()
        words = ["tiles", "arena_bytes", *names]
        pairs = zip(words, [*head, *values], strict=True)
        lines.append(
            f"- `{call.kernel}`, {call.global_size} work-items in groups of {call.local_size}: "
            + ", ".join(f"{name}={value}" for name, value in pairs)
        )
    return lines


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
