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
    left = {tensor.state_name for tensor in program.outputs}
    needed: dict[Tensor, int] = {}  # by the step that needs it last
    for place, step in enumerate(program.steps):
        needed |= dict.fromkeys(_read(step.alternative), place)
    needed |= dict.fromkeys(program.outputs, end)
    needed |= {t: end for t in program.inputs if t.state_name and t.state_name not in left}
    sharing: dict[Tensor, list[Tensor]] = {}  # all that have a tensor's bytes, by each of them
    steps: list[Step] = []
    for place, step in enumerate(program.steps):
        alternative = step.alternative
        if alternative.copied is not None:
            own = sharing.get(alternative.copied[0], [alternative.copied[0]])
            less = replace(
                alternative, launches=alternative.launches[1:], view=alternative.copied, copied=None
            )
            read = {tensor for launch in less.launches for tensor in launch.reads}
            is_last = all(t.data is None and needed.get(t, place) <= place for t in own)
            if is_last and read.isdisjoint(own):
                alternative, step = less, replace(step, alternative=less)
        if alternative.view is not None:
            source, result = alternative.view
            sharing[result] = sharing.setdefault(source, [source])
            sharing[result].append(result)
        steps.append(step)
    return replace(program, steps=tuple(steps))


def _read(alternative: Alternative) -> list[Tensor]:
    read = [tensor for launch in alternative.launches for tensor in launch.reads]
    return read if alternative.view is None else [alternative.view[0], *read]
