# SPDX-License-Identifier: Apache-2.0
"""conv_2d_add: what it refuses, and every kernel against the two ops one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node, read_model
from tests.support.cases import (
    DOTS,
    FLOAT4,
    FUSED,
    LANES_8,
    LANES_16,
    NVIDIA,
    PLAIN,
    REGISTERS,
    RUN,
    SEEDS,
    SIMT,
    STAGED,
    STRATEGIES,
    X86,
    Strategy,
    assert_exact_or_refused,
    changed,
    forced,
    require_isa,
    scales,
    zero_points,
)
from tests.support.compare import assert_same, inputs_for, interpreter, invoke
from tests.support.convolution import Convolution, convolutions, float_convolution
from tests.support.factories import refused
from tests.support.fused import fused
from tests.support.model import chain_model, op, t
from tests.support.refusals import activated

QUANT8_STRATEGIES = (PLAIN, LANES_8, LANES_16, *X86, *NVIDIA, FLOAT4, *REGISTERS, STAGED, *DOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualEnd:
    """A convolution and the ADD of its result and another tensor."""

    conv: Convolution | Convolution = field(default_factory=Convolution)
    scales: tuple[float, float] = (0.23, 0.31)  # of the other input and the sum
    zeros: tuple[int, int] = (5, 17)
    fused: str = "NONE"
    is_first: bool = True  # the convolution's result in the ADD

    def __str__(self) -> str:
        return f"{self.conv}-add-{self.fused.lower()}" + ("" if self.is_first else "-second")

    def nodes(self, seed: int = 0) -> list[Node]:
        conv = self.conv.node(seed)
        between = conv.outputs[0]
        of_bytes = isinstance(self.conv, Convolution)
        other, total = (
            t(between.shape, between.dtype, scale, zero) if of_bytes else t(between.shape)
            for scale, zero in zip(self.scales, self.zeros, strict=True)
        )
        operands = [between, other] if self.is_first else [other, between]
        options = {"fused_activation_function": self.fused}
        return [conv, op("ADD", operands, [total], options, version=2)]

    def node(self) -> Node:
        """Return the one node that the pass makes of them."""
        return fused(self.nodes())

    def model(self, seed: int = 0) -> bytes:
        return chain_model(self.nodes(seed))


NODE = ResidualEnd().node()


@pytest.mark.parametrize("strategy", QUANT8_STRATEGIES, ids=str)
def test_every_kernel_of_a_convolution_has_it(strategy: Strategy) -> None:
    conv, add = ResidualEnd().nodes()
    with_add, without = (ops.lower(node, strategy.target) for node in (NODE, conv))
    assert [a.name for a in with_add] == [a.name for a in without]
    for alternative in with_add:
        (launch,) = alternative.launches
        assert launch.defines["HAS_RESIDUAL"] == 1
        assert launch.reads == (NODE.inputs[0], NODE.inputs[3])
        assert launch.writes == NODE.outputs
        assert launch.params["output"] is NODE.outputs[0]
        assert (launch.params["sum_zero"], launch.params["sum_min"]) == (17, 0)
    assert add.op == "ADD"


REFUSALS = {
    "broadcast": (changed(NODE, 3, shape=(8,)), "the summands differ in shape"),
    "types": (changed(NODE, 3, dtype="int8"), "the summands differ in type"),
    "tie": (
        # Half of the sum of two integers is a tie for every odd one, away from 0 in TFLite.
        ResidualEnd(
            conv=Convolution(dtype="int8", zeros=(0, 0, 0), multiplier=0.0625 * 0.03 / 0.5),
            scales=(0.5, 1.0),
            zeros=(0, 0),
        ).node(),
        "no float sum is exact for these scales",
    ),
    "weights": (changed(NODE, 1, data=None), "weights are not constant"),
    "activation": activated(NODE, "TANH", "sum_activation_function"),
}

test_refusals = refused(REFUSALS)

CASES = [
    ResidualEnd(fused="RELU", is_first=False),
    ResidualEnd(conv=Convolution(dtype="int8", per_channel=True), zeros=(-3, 9)),
    ResidualEnd(conv=Convolution(size=(3, 5, 16), kernel=(1, 1), out_c=33, batch=2), fused="RELU"),
    ResidualEnd(
        conv=Convolution(size=(9, 8, 16), kernel=(1, 1), out_c=68, dtype="int8"), zeros=(-128, 127)
    ),
    ResidualEnd(conv=Convolution(size=(1, 1, 7), kernel=(1, 1), out_c=1)),
    ResidualEnd(conv=Convolution(stride=(2, 2), fused="RELU6", out_c=16), fused="RELU6"),
]


@contextmanager
def fused_forced(strategy: Strategy) -> Iterator[None]:
    """Make the fused node use this strategy; the nodes it is made of, any."""
    any_strategy = ops.lower
    with forced(strategy), pytest.MonkeyPatch.context() as patch:
        this_strategy = ops.lower
        patch.setattr(
            ops,
            "lower",
            lambda n, t: (this_strategy if n.op == "conv_2d_add" else any_strategy)(n, t),
        )
        yield


def assert_fused_exact(case: ResidualEnd, device: DeviceInfo, strategy: Strategy) -> None:
    """Compare with TFLite what the fused node gives with this strategy, and that it ran alone."""
    with fused_forced(strategy):
        delegate = OpenCLDelegate(case.model(), device.index, tune="off", profiling=True)
        ours = interpreter(case.model(), delegate)
    reference = interpreter(case.model())
    for inputs in inputs_for(read_model(case.model())):
        (got,), (expected,) = invoke(ours, inputs), invoke(reference, inputs)
        assert_same(got, expected, str(case))
    assert [row.op for row in delegate.profile()] == ["conv_2d_add"]
    RUN["conv_2d_add"] += 1


@pytest.mark.parametrize("strategy", QUANT8_STRATEGIES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_exact(device: DeviceInfo, case: ResidualEnd, strategy: Strategy) -> None:
    require_isa(strategy, device)
    names = {each.name.split()[0] for each in ops.lower(case.node(), strategy.target)}
    if strategy.alternative not in ("", *names):
        pytest.skip("too small for this kernel")
    assert_fused_exact(case, device, strategy)


FLOAT_CASES = [
    ResidualEnd(conv=float_convolution(size=(7, 19, 3), stride=(2, 2), batch=2), fused="RELU"),
    ResidualEnd(conv=float_convolution(size=(4, 4, 61), out_c=19), is_first=False),
    ResidualEnd(conv=float_convolution(size=(5, 7, 13), kernel=(1, 1), out_c=65), fused="RELU6"),
    ResidualEnd(conv=float_convolution(size=(8, 1, 13), kernel=(1, 1), out_c=96, fused="RELU")),
    ResidualEnd(conv=float_convolution(size=(1, 1, 7), kernel=(1, 1), out_c=1)),
]


@pytest.mark.parametrize(
    "strategy", [strategy for strategy in STRATEGIES if strategy is not PLAIN], ids=str
)
@pytest.mark.parametrize("case", FLOAT_CASES, ids=str)
def test_floats_are_those_of_both_ops(
    device: DeviceInfo, case: ResidualEnd, strategy: Strategy
) -> None:
    (inputs, *_) = inputs_for(read_model(case.model()))
    for name in (alternative.name for alternative in ops.lower(case.node(), strategy.target)):
        each = replace(strategy, alternative=name)
        with fused_forced(each):
            delegate = OpenCLDelegate(case.model(), device.index, tune="off", profiling=True)
            ours = interpreter(case.model(), delegate)
            (got,) = invoke(ours, inputs)
        assert [row.op for row in delegate.profile()] == ["conv_2d_add"]
        # The same kernel without it; TFLite adds, or the plain kernel.
        with forced(each) as taken:
            apart = OpenCLDelegate(
                case.model(), device.index, tune="off", passes=(), min_nodes_per_partition=1
            )
            (expected,) = invoke(interpreter(case.model(), apart), inputs)
        assert apart.verdicts[0].reason is None
        assert {*taken} == {name}
        np.testing.assert_array_equal(got, expected, name)
    RUN["conv_2d_add"] += 1


@given(
    conv=convolutions(),
    fused_activation=st.sampled_from(FUSED),
    is_first=st.booleans(),
    strategy=st.sampled_from(
        [
            SIMT,
            *(strategy for strategy in QUANT8_STRATEGIES if strategy.alternative in ("", "plain")),
        ]
    ),
    seed=SEEDS,
    data=st.data(),
)
def test_drawn(
    device: DeviceInfo,
    conv: Convolution,
    fused_activation: str,
    is_first: bool,
    strategy: Strategy,
    seed: int,
    data: st.DataObject,
) -> None:
    case = ResidualEnd(
        conv=conv,
        scales=(data.draw(scales()), data.draw(scales())),
        zeros=(data.draw(zero_points(conv.dtype)), data.draw(zero_points(conv.dtype))),
        fused=fused_activation,
        is_first=is_first,
    )
    assert_exact_or_refused(case.model(seed), device, strategy, seed)
