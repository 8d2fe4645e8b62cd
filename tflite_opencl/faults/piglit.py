# SPDX-License-Identifier: Apache-2.0
"""A fault as a test of piglit's cl-program-tester: one .cl file with its data in the header."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Reproducer
from tflite_opencl.faults.trial import FaultCase, bytes_of

_MOST_BYTES = 1 << 16  # of the buffers: they are written as text


def why_no_piglit_test(fault: FaultCase) -> str:
    """Return why there cannot be one; "": there can."""
    given = fault.reproducer
    if len(given.calls) != 1:
        return f"a test has one kernel call, and this fault has {len(given.calls)}"
    if given.calls[0].block:
        return "a test has no structures as arguments"
    if sum(each.nbytes for each in (given.arena, given.constants, given.ints)) > _MOST_BYTES:
        return "its buffers exceed 64 KiB"
    return ""


def piglit_test(fault: FaultCase, name: str) -> str:
    """Return the test; see `why_no_piglit_test`."""
    tolerance = _tolerance(fault)
    # As floats the complement of a result may be NaN, which text does not preserve.
    given = fault.filled() if tolerance is None or fault.begins_right else fault.reproducer
    (call,) = given.calls
    after = given.arena.copy()
    for place, expected in zip(given.outputs, fault.expected, strict=True):
        after[place.offset : place.offset + place.size_bytes] = bytes_of(expected, place.dtype)
    kind = "uchar" if tolerance is None else "float"
    most = "" if tolerance is None else f" tolerance {tolerance:.9g}"
    options = " ".join(each for each in given.options if not each.startswith("-cl-std"))
    lines = [
        "/*!",
        "[config]",
        f"name: {name}",
        "clc_version_min: 12",
        *([f"build_options: {options}"] if options else []),
        "dimensions: 1",
        f"global_size: {call.global_size} 0 0",
        f"local_size: {call.local_size} 0 0",
        "",
        "[test]",
        f"name: {name}",
        f"kernel_name: {call.kernel}",
        f"arg_in: 0 {_buffer(given.arena, kind)}",
        f"arg_in: 1 {_buffer(_some(given.constants), 'uchar')}",
        f"arg_in: 2 {_buffer(given.ints, 'int')}",
        f"arg_in: 3 int {call.number}",
        f"arg_out: 0 {_buffer(after, kind)}{most}",
        "!*/",
        "",
    ]
    return "\n".join(lines) + call.program.source


def _tolerance(fault: FaultCase) -> float | None:
    """Return the largest error bound; None: the arena is compared as bytes."""
    given: Reproducer = fault.reproducer
    places = (*given.inputs, *given.outputs)
    if any(place.dtype != "float32" for place in places) or given.arena.nbytes % 4:
        return None
    found = [float(np.max(bound)) for bound in fault.bounds if bound is not None and bound.size]
    return max(found, default=0.0)


def _some(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return values if values.size else np.zeros(4, np.uint8)


def _buffer(values: NDArray[np.uint8], kind: str) -> str:
    """Return a buffer in piglit's words."""
    types: dict[str, type[np.generic]] = {"uchar": np.uint8, "int": np.int32, "float": np.float32}
    numbers = values.view(types[kind]).tolist()
    texts = (f"{number:.9g}" if kind == "float" else str(number) for number in numbers)
    return f"buffer {kind}[{len(numbers)}] {' '.join(texts)}"
