# SPDX-License-Identifier: Apache-2.0
"""Fails a run on values on which TFLite's kernels fail: indices out of range, division by 0.

The host checks a run's inputs before it, and computed values after it: such tensors are added to
the program's outputs. Kernels tolerate any value meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import InvalidValue
from delegate.graph.ir import Tensor
from delegate.launch import Requirement, size_bytes
from delegate.plan.record import PartitionPlan, StepPlan

Bytes = NDArray[np.uint8]
Checks = list[tuple[int, StepPlan, Requirement]]  # by index in a run's inputs or outputs


class Requirements:
    """The requirements of a plan's nodes.

    Attributes:
        watched: the trailing outputs, for which the caller has no array.
    """

    def __init__(
        self, plan: PartitionPlan, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> None:
        """`inputs`, `outputs`: the plan's run inputs and outputs."""
        self.watched = plan.watched
        self._before: Checks = []
        self._behind: Checks = []
        for step, need in plan.requirements():
            if need.tensor in inputs:
                self._before.append((inputs.index(need.tensor), step, need))
            else:
                self._behind.append((outputs.index(need.tensor), step, need))

    def __bool__(self) -> bool:
        return bool(self._before or self._behind)

    def with_watched(self, outputs: Sequence[Bytes]) -> Sequence[Bytes]:
        """Return the outputs extended by arrays for watched tensors."""
        return (*outputs, *(np.empty(size_bytes(tensor), np.uint8) for tensor in self.watched))

    def require_inputs(self, arrays: Sequence[Bytes], count: int = 1) -> None:
        """Check the inputs of the first `count` batch elements. Raises: InvalidValue."""
        _require(self._before, arrays, count)

    def require_outputs(self, arrays: Sequence[Bytes], count: int = 1) -> None:
        """Check computed values. Raises: InvalidValue."""
        _require(self._behind, arrays, count)


def requirements_of(
    plan: PartitionPlan, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Requirements | None:
    """Return the requirements of a plan's nodes; None: they have none, as usual."""
    return Requirements(plan, inputs, outputs) or None


def _require(checks: Checks, arrays: Sequence[Bytes], count: int) -> None:
    for place, step, need in checks:
        tensor = need.tensor
        if not arrays[place].size:
            continue
        every: NDArray[Any] = arrays[place].view(tensor.dtype).reshape(-1, *tensor.shape)
        value = need.broken_by(every[:count])
        if value is not None:
            raise InvalidValue(
                f"node {step.node_index} ({step.op}): {need.subject} is {value}: {need.rule}"
            )
