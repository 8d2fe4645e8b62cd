# SPDX-License-Identifier: Apache-2.0
"""CONV_3D and CONV_3D_TRANSPOSE: launches, refusals, and their floats against TFLite's."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node, sum_bound
from tests.support.cases import (
    DRAWN_STRATEGIES,
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    SIMT,
    Strategy,
    changed,
    only_launch,
)
from tests.support.compare import Arrays, Bounds
from tests.support.factories import refused
from tests.support.floats import assert_float_or_refused, assert_float_strategies
from tests.support.model import const, op, t
from tests.support.refusals import activated, sparse

Three = tuple[int, int, int]
CONV, TRANSPOSED = "CONV_3D", "CONV_3D_TRANSPOSE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One node by its parameters."""

    op: str = CONV
    size: Three = (4, 5, 6)
    in_c: int = 3
    out_c: int = 8
    kernel: Three = (3, 3, 3)
    stride: Three = (1, 1, 1)
    dilation: Three = (1, 1, 1)
    padding: str = "SAME"
    batch: int = 1
    fused: str = "NONE"
    has_bias: bool = True

    def out_size(self) -> tuple[int, ...]:
        """Return the sizes of the result."""
        axes = zip(self.size, self.kernel, self.stride, self.dilation, strict=True)
        if self.op == TRANSPOSED:
            if self.padding == "SAME":
                return tuple(size * stride for size, _, stride, _ in axes)
            return tuple((n - 1) * s + (k - 1) * d + 1 for n, k, s, d in axes)
        if self.padding == "SAME":
            return tuple(-(-size // stride) for size, _, stride, _ in axes)
        return tuple((n + s - (k - 1) * d - 1) // s for n, k, s, d in axes)

    def node(self) -> Node:
        """Return the node with drawn weights."""
        rng = np.random.default_rng(3)
        channels = self.in_c, self.out_c
        shape = (*self.kernel, *(channels if self.op == CONV else channels[::-1]))
        weights = const(rng.standard_normal(shape).astype(np.float32))
        source = t((self.batch, *self.size, self.in_c))
        result = t((self.batch, *self.out_size(), self.out_c))
        bias = const(rng.standard_normal(self.out_c).astype(np.float32))
        inputs = [source, weights]
        if self.op == TRANSPOSED:
            inputs = [const(np.array(result.shape, np.int32)), weights, source]
        options = {"padding": self.padding, "fused_activation_function": self.fused}
        for axis, stride, dilation in zip("dhw", self.stride, self.dilation, strict=True):
            options |= {f"stride_{axis}": stride, f"dilation_{axis}_factor": dilation}
        return op(self.op, [*inputs, *([bias] if self.has_bias else [])], [result], options)

    def bounds(self, inputs: Arrays) -> Bounds:
        """Return what rounding may change, by the sums of the products' absolute values."""
        node = self.node()
        weights, *rest = (each.data for each in node.inputs[1:] if each is not None)
        assert weights is not None
        small, large = self.size, self.out_size()
        if self.op == CONV:
            small, large = large, self.size
        # How far the window lies before the larger of the two volumes.
        axes = zip(small, large, self.kernel, self.stride, self.dilation, strict=True)
        before = [
            max(0, (n - 1) * s + (k - 1) * d + 1 - m) // 2 if self.padding == "SAME" else 0
            for n, m, k, s, d in axes
        ]
        source = np.abs(inputs[0].astype(np.float64))
        total = np.zeros(node.outputs[0].shape)
        for place in np.ndindex(*small):
            for tap in np.ndindex(*self.kernel):
                steps = zip(place, tap, self.stride, self.dilation, before, strict=True)
                at = tuple(p * s + k * d - b for p, k, s, d, b in steps)
                if not all(0 <= each < size for each, size in zip(at, large, strict=True)):
                    continue
                given, made = (at, place) if self.op == CONV else (place, at)
                factors = np.abs(weights[tap])
                row = source[(slice(None), *given)]
                total[(slice(None), *made)] += row @ (factors if self.op == CONV else factors.T)
        biases = [np.abs(each) for each in rest if each is not None and each.shape == (self.out_c,)]
        return [sum_bound(total + sum(biases), int(np.prod(self.kernel)) * self.in_c + 1)]


CASES = {
    "usual": {},
    "one": {"size": (1, 1, 1), "kernel": (1, 1, 1), "in_c": 1, "out_c": 1},
    "strides": {"size": (5, 7, 9), "stride": (2, 2, 2), "batch": 2, "out_c": 17},
    "valid": {"size": (4, 6, 11), "kernel": (2, 3, 1), "padding": "VALID", "fused": "RELU6"},
    "mixed": {"size": (3, 4, 9), "kernel": (1, 2, 4), "stride": (1, 2, 3), "has_bias": False},
    "dilated": {"size": (5, 6, 9), "dilation": (1, 2, 3), "kernel": (2, 2, 3), "out_c": 5},
    "deep": {"size": (2, 2, 5), "in_c": 33, "out_c": 33, "kernel": (2, 2, 2), "stride": (2, 2, 2)},
}
VOLUMES = {
    f"{kind}-{name}": Volume(op=kind, **case)  # type: ignore[arg-type]
    for (name, case), kind in itertools.product(CASES.items(), (CONV, TRANSPOSED))
}


@pytest.mark.parametrize("strategy", [SIMT, LANES_4, LANES_16], ids=str)
@pytest.mark.parametrize("name", VOLUMES)
def test_floats(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    case = VOLUMES[name]
    assert_float_strategies(case.node(), device, strategy, case.bounds)


@pytest.mark.parametrize("kind", [CONV, TRANSPOSED])
def test_vectors_then_plain(kind: str) -> None:
    found = ops.lower(Volume(op=kind).node(), LANES_8.target)
    assert [each.name for each in found] == ["vector 8x4", "plain"]
    launch = only_launch(found[0])
    assert launch.kernel == f"{kind.lower()}_float"
    assert (launch.params["in_w"], launch.params["out_w"]) == (6, 6)
    few = Volume(op=kind, out_c=1, size=(2, 2, 3)).node()
    assert [each.name for each in ops.lower(few, LANES_8.target)] == ["plain"]


NODE, OTHER = (Volume(op=kind).node() for kind in (CONV, TRANSPOSED))
test_refusal = refused(
    {
        "computed": (changed(NODE, 1, data=None), "weights are not constant"),
        "sparse": sparse(NODE, 1, data=None),
        "type": (changed(NODE, 0, dtype="int8"), "int8: only float32"),
        "rank": (
            changed(NODE, 0, shape=(4, 5, 6, 3)),
            "shape 4x5x6x3: rank 5 without a size of 0 is needed",
        ),
        "channels": (
            changed(NODE, 0, shape=(1, 4, 5, 6, 4)),
            "4 input channels: the weights have 3",
        ),
        "other_channels": (
            changed(OTHER, 2, shape=(1, 4, 5, 6, 4)),
            "4 input and 8 output channels: the weights have 3 and 8",
        ),
        "output": (
            changed(NODE, -1, shape=(1, 4, 5, 7, 8)),
            "output 1x4x5x7x8: the inputs give 1x4x5x6x8",
        ),
        "stride": (
            changed(NODE, options={"stride_d": 0}),
            "stride 0, dilation 1 of 3 taps: out of range",
        ),
        "padding": (
            changed(NODE, options={"padding": "SOME"}),
            "padding SOME: only SAME and VALID exist",
        ),
        "infinite": (
            changed(NODE, 1, data=np.full((3, 3, 3, 3, 8), np.inf, np.float32)),
            "a weight is not finite: times a padding zero it is not zero",
        ),
        "terms": (
            Volume(in_c=2000, size=(1, 1, 1)).node(),
            "54000 terms a sum: too many for a work-item",
        ),
        "computed_shape": (changed(OTHER, 0, data=None), "output shapes: not constant"),
        "tanh": activated(NODE, "TANH"),
    }
)


@st.composite
def volumes(draw: st.DrawFn) -> Volume:
    """Draw a node of either kind."""

    def three(most: int) -> Three:
        return (*(draw(st.integers(1, most)) for _ in range(3)),)  # type: ignore[return-value]

    kind = draw(st.sampled_from([CONV, TRANSPOSED]))
    case = Volume(
        op=kind,
        size=three(5),
        in_c=draw(st.integers(1, 9)),
        out_c=draw(st.integers(1, 20)),
        kernel=three(3),
        stride=three(3),
        padding=draw(st.sampled_from(["SAME", "VALID"])),
        batch=draw(st.integers(1, 2)),
        fused=draw(st.sampled_from(FUSED)),
        has_bias=draw(st.booleans()),
    )
    return case if min(case.out_size()) > 0 else replace(case, padding="SAME")


@given(case=volumes(), strategy=DRAWN_STRATEGIES)
def test_drawn(device: DeviceInfo, case: Volume, strategy: Strategy) -> None:
    assert_float_or_refused(case.node(), device, strategy, case.bounds)


NODES = {"CONV_3D": NODE, "CONV_3D_TRANSPOSE": OTHER}
