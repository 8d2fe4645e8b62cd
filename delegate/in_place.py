# SPDX-License-Identifier: Apache-2.0
"""Program -> Program whose nodes write a part of a tensor where it lies, and not in a copy of it.

Ops know nothing of it: an alternative says by `copied` that its first launch copies an input.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Program, Step


def in_place(program: Program) -> Program:
    """Return the program without copies of tensors that nobody needs afterwards.

    The output has the input's bytes then, as that of a view. What a run finds for itself is needed
    by the next one, unless this one leaves another value.
    """
    end = len(program.steps)
    left = {tensor.kept for tensor in program.outputs}
    needed: dict[Tensor, int] = {}  # by the step that needs it last
    for place, step in enumerate(program.steps):
        needed |= dict.fromkeys(_read(step.alternative), place)
    needed |= dict.fromkeys(program.outputs, end)
    needed |= {t: end for t in program.inputs if t.kept and t.kept not in left}
    sharing: dict[Tensor, list[Tensor]] = {}  # all that have a tensor's bytes, by each of them
    steps: list[Step] = []
    for place, step in enumerate(program.steps):
        way = step.alternative
        if way.copied is not None:
            own = sharing.get(way.copied[0], [way.copied[0]])
            less = replace(way, launches=way.launches[1:], view=way.copied, copied=None)
            read = {tensor for launch in less.launches for tensor in launch.reads}
            is_last = all(t.data is None and needed.get(t, place) <= place for t in own)
            if is_last and read.isdisjoint(own):
                way, step = less, replace(step, alternative=less)
        if way.view is not None:
            source, result = way.view
            sharing[result] = sharing.setdefault(source, [source])
            sharing[result].append(result)
        steps.append(step)
    return replace(program, steps=tuple(steps))


def _read(way: Alternative) -> list[Tensor]:
    read = [tensor for launch in way.launches for tensor in launch.reads]
    return read if way.view is None else [way.view[0], *read]
