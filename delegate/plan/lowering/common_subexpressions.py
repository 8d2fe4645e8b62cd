# SPDX-License-Identifier: Apache-2.0
"""Common subexpression elimination: equal launches on the same tensors run once.

Ops are unaware of it: each node that multiplies a row has its own launch that quantises it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from delegate.graph.ir import Tensor
from delegate.launch import Launch, Schedule, Step, is_temporary


def eliminate_common_launches(schedule: Schedule) -> Schedule:
    """Return the schedule without launches whose temporaries an equal launch has written.

    The equality ends when an input is overwritten, as the state of a recurrent network is at each
    step. Temporaries that are written twice are left alone.
    """
    counts = Counter(tensor for launch in schedule.launches for tensor in launch.writes)
    known: dict[Hashable, Launch] = {}
    reading: dict[Tensor, set[Hashable]] = {}  # keys of launches that read each tensor
    root = schedule.roots()
    same: dict[Tensor, Tensor] = {}  # eliminated temporary -> its replacement
    steps: list[Step] = []
    for step in schedule.steps:
        alternative = step.alternative
        launches: list[Launch] = []
        for launch in alternative.launches:
            launch = launch.reading(same)
            is_own = all(is_temporary(t) and counts[t] == 1 for t in launch.writes)
            key = _key(launch) if is_own else None
            if is_own and (equal := known.get(key)) is not None:
                same |= zip(launch.writes, equal.writes, strict=True)
                continue
            launches.append(launch)
            for tensor in launch.writes:
                for other in reading.pop(root.get(tensor, tensor), ()):
                    known.pop(other, None)
            if is_own:
                known[key] = launch
                for tensor in launch.reads:
                    reading.setdefault(root.get(tensor, tensor), set()).add(key)
        if launches != [*alternative.launches]:
            step = replace(step, alternative=replace(alternative, launches=tuple(launches)))
        steps.append(step)
    return replace(schedule, steps=tuple(steps)) if same else schedule


def _key(launch: Launch) -> Hashable:
    """Return a key that launches share if they compute the same into tensors of their own."""
    own = {tensor: place for place, tensor in enumerate(launch.writes)}
    params = tuple(
        (name, ("own", own[value]) if isinstance(value, Tensor) and value in own else value)
        for name, value in launch.params.items()
    )
    return (
        (launch.file, launch.kernel, launch.tiles, launch.group_items, launch.is_specialised),
        tuple(launch.defines.items()),
        tuple((tensor.shape, tensor.dtype) for tensor in launch.writes),
        launch.reads,
        params,
    )
