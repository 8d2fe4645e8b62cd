# SPDX-License-Identifier: Apache-2.0
"""What a verification finds of each tensor, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate import Verdict
from delegate.inspect import StepRun, Tensor
from tflite_opencl.common.errors import CommandError
from tflite_opencl.common.values import compare
from tflite_opencl.verify.errors import errors

Array = NDArray[Any]
Values = Mapping[int, Array]  # by tensor index


@dataclass(frozen=True, slots=True)
class Apart:
    """How a tensor differs from the reference's."""

    wrong: int  # elements
    size: int  # of the tensor
    most: float  # quanta of integers, else the greatest difference
    is_beyond: bool  # more than is allowed
    text: str  # one line, for people


@dataclass(frozen=True, slots=True)
class Check:
    """One computed tensor of a node on the device, in its worst input."""

    step: StepRun  # of the isolated run
    tensor: Tensor
    with_nodes: tuple[int, ...]  # nodes that the same kernel computes
    # On the reference's inputs; None: equal, or as near as the rounding of floats allows.
    alone: Apart | None
    after_others: Apart | None  # on the device's own inputs; None: equal


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """The first tensor that is wrong, with its values."""

    check: Check
    is_alone: bool  # wrong on the reference's inputs, too
    number: int  # of the input
    got: Array
    expected: Array
    inputs: Values  # what the node was given


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of all inputs."""

    device: str
    reference: str  # the kernels that it was compared with
    count: int  # inputs
    checks: Sequence[Check]  # in execution order
    verdicts: Sequence[Verdict]
    constants: tuple[int, ...]  # nodes whose results are known before a run
    fault: Fault | None
    whole: Sequence[Apart]  # of the model's outputs, run as label_image runs it
    whole_is_judged: bool  # False: floats may add up to more than one node's own bound


def apart(
    got: Array, expected: Array, bound: NDArray[np.float64] | None, tolerance: int, where: str
) -> Apart | None:
    """Return how far a tensor is off; None: not, or within `bound` for floats.

    Raises:
        CommandError: the shapes or types differ, so it is another tensor.
    """
    try:
        found = compare(got, expected, bound, tolerance, where)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if found is None:
        return None
    most = float(np.abs(errors(got, expected).apart).max(initial=0))
    text = (
        f"{where}: {found.count} of {found.size} elements differ, by up to {most:g}"
        f"{'' if got.dtype.kind == 'f' else ' quanta'}; first at {list(found.first)}: "
        f"{found.got:g} instead of {found.expected:g}"
    )
    return Apart(found.count, found.size, most, found.is_beyond, text)


def worse(one: Apart | None, other: Apart | None) -> Apart | None:
    """Return the one to report."""
    found = [each for each in (other, one) if each is not None]
    return max(found, key=lambda each: (each.is_beyond, each.most), default=None)
