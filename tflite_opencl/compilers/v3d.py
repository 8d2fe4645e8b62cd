# SPDX-License-Identifier: Apache-2.0
"""V3D's assembly as Mesa prints it (V3D_DEBUG=qpu) -> a listing."""

from __future__ import annotations

import re

from tflite_opencl.compilers.listing import Instruction

_LINE = re.compile(r"^0x[0-9a-f]{16} (.*)$")
_BRANCH = re.compile(r"^b[a-z.]*\s+(-?\d+)")
_MULTIPLIED = re.compile(r"; *fmul\b")  # integers are multiplied for addresses, too
_DELAY = 3  # instructions after a branch that are still done
_BYTES = 8


def v3d_instructions(text: str) -> list[Instruction]:
    """Return the instructions of the last kernel, each of two operations that are done together."""
    found = [_LINE.match(line) for line in text.rpartition(" QPU:")[2].splitlines()]
    kept = []
    for place, line in enumerate(each[1] for each in found if each):
        branch = _BRANCH.match(line)
        # Counted from the instruction after those of the delay.
        target = place + 1 + _DELAY + int(branch[1]) // _BYTES if branch else None
        kept.append(Instruction(("instruction",), bool(_MULTIPLIED.search(line)), 1, target))
    return kept
