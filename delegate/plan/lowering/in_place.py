# SPDX-License-Identifier: Apache-2.0
"""Program -> Program in which nodes that update a part of a tensor do so in place.

Ops are unaware of it: `copied` of an alternative says that its first launch copies an input.
"""

from __future__ import annotations

from dataclasses import replace

from delegate.graph.ir import Tensor
from delegate.launch import Alternative, Schedule, Step


def in_place(schedule: Schedule) -> Schedule:
    """Return the schedule without copies of tensors that are dead afterwards.

    The output then aliases the input, like a view. A persistent input stays live for the next run,
    unless this run writes another value.
    """
    end = len(schedule.steps)
    left = {tensor.state_name for tensor in schedule.outputs}
    needed: dict[Tensor, int] = {}  # index of the last step that reads it
    for place, step in enumerate(schedule.steps):
        needed |= dict.fromkeys(_read(step.alternative), place)
    needed |= dict.fromkeys(schedule.outputs, end)
    needed |= {t: end for t in schedule.inputs if t.state_name and t.state_name not in left}
    sharing: dict[Tensor, list[Tensor]] = {}  # by tensor: all that share its memory
    steps: list[Step] = []
    for place, step in enumerate(schedule.steps):
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
    return replace(schedule, steps=tuple(steps))


def _read(alternative: Alternative) -> list[Tensor]:
    read = [tensor for launch in alternative.launches for tensor in launch.reads]
    return read if alternative.view is None else [alternative.view[0], *read]
