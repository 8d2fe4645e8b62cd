# SPDX-License-Identifier: Apache-2.0
"""What a verification takes and finds. Frozen records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from delegate import Verdict
from delegate.inspect import StepRun, Tensor
from tflite_opencl.console.errors import CommandError
from tflite_opencl.models.build import Array
from tflite_opencl.oracle.values import OutputMismatch

Values = Mapping[int, Array]  # by tensor index


@dataclass(frozen=True, slots=True)
class Check:
    """A tensor computed by a node on the device, for its worst input."""

    step: StepRun  # of the isolated run
    tensor: Tensor
    with_nodes: tuple[int, ...]  # nodes fused into the same kernel
    # On the reference's inputs; None: equal, or within the rounding error of floats.
    alone: OutputMismatch | None
    after_others: OutputMismatch | None  # on the device's own inputs; None: equal
    number: int = 0  # of the input with the worst difference alone


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """The first wrong tensor, with its values."""

    check: Check
    is_alone: bool  # wrong on the reference's inputs, too
    number: int  # of the input
    got: Array
    expected: Array
    inputs: Values  # the node's inputs


@dataclass(frozen=True, slots=True)
class Verification:
    """The results for all inputs."""

    device: str
    reference: str  # the kernels that it was compared with
    reasons: str  # nodes on other kernels than the reference ones, and why; "": none
    count: int  # inputs
    checks: Sequence[Check]  # in execution order
    verdicts: Sequence[Verdict]
    constants: tuple[int, ...]  # nodes with constant results
    fault: Fault | None
    whole: Sequence[OutputMismatch]  # of the model's outputs, run as in label_image
    whole_is_judged: bool  # False: float errors may exceed the bound of a single node

    @property
    def is_wrong(self) -> bool:
        """Whether the device's results differ from those of TFLite's kernels."""
        return self.fault is not None or (self.whole_is_judged and bool(self.whole))


class NothingRuns(CommandError):
    """The device takes no node.

    Attributes:
        verdicts: with the reasons.
    """

    def __init__(self, text: str, verdicts: Sequence[Verdict]) -> None:
        super().__init__(text)
        self.verdicts = verdicts


@dataclass(frozen=True, slots=True)
class InputSets:
    """The model's inputs, one set at a time: all of them might not fit into memory."""

    count: int
    of: Callable[[int], Sequence[Array]]  # index of a set, from 0 -> one array per input
