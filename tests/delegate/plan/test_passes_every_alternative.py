# SPDX-License-Identifier: Apache-2.0
"""Every alternative of fused nodes, compared with TFLite's kernels.

Alternatives must not assume what a pass changes: a 1x1 window with a border is not a matrix
product.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.errors import Unsupported
from delegate.graph.partition import partition_of
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node, Tensor, read_model
from delegate.launch import Alternative
from delegate.plan.passes import run_passes
from delegate.target import Target
from tests.delegate.ops.test_layers_channel_shuffle import shuffle
from tests.support.cases import (
    ARM,
    DOTS,
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    NEAREST,
    NO_FACTS,
    NVIDIA,
    REGISTERS,
    SEEDS,
    SIMT,
    STAGED,
    X86,
    Strategy,
    emulated,
    has_isa,
    strategy_on,
)
from tests.support.compare import assert_close, assert_same, inputs_for, interpreter, invoke
from tests.support.convolution import Convolution, convolutions
from tests.support.model import chain_model, const, op, t
from tests.support.tiers import slow

pytestmark = pytest.mark.usefixtures("one_device", "unoptimised")

STRATEGIES = (
    SIMT, LANES_4, LANES_8, LANES_16, *X86, *NVIDIA, *ARM, NEAREST, *REGISTERS, STAGED, *DOTS
)  # fmt: skip
EIGHT_BITS = ("uint8", "int8")
Borders = tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Chain:
    """A PAD, a VALID convolution and an ADD; the borders and the ADD may be missing."""

    conv: Convolution  # of the PAD's output
    borders: Borders = ((0, 0), (0, 0))
    adds: str = ""  # the ADD's activation; "" for no ADD

    def nodes(self, seed: int = 0) -> list[Node]:
        conv = self.conv.node(seed)
        padded, between = conv.inputs[0], conv.outputs[0]
        assert padded is not None
        nodes = [conv]
        if any(map(any, self.borders)):
            (top, bottom), (left, right) = self.borders
            n, height, width, channels = padded.shape
            shape = (n, height - top - bottom, width - left - right, channels)
            amounts = const(np.int32([(0, 0), *self.borders, (0, 0)]))
            nodes = [op("PAD", [replace(padded, shape=shape), amounts], [padded]), conv]
        if self.adds:
            other, total = _like(between, 0.23, 5), _like(between, 0.31, 17)
            options = {"fused_activation_function": self.adds}
            nodes.append(op("ADD", [between, other], [total], options, version=2))
        return nodes


def _like(tensor: Tensor, scale: float, zero: int) -> Tensor:
    if tensor.dtype == "float32":
        return t(tensor.shape)
    return t(tensor.shape, tensor.dtype, scale, 0 if tensor.dtype == "int16" else zero)


@contextmanager
def _made_run_as(names: Sequence[str], strategy: Strategy) -> Iterator[None]:
    """Make fused nodes run the first of these alternatives, on the strategy's target.

    Other nodes run as usual.
    """
    lower = ops.lower

    def chosen(node: Node, target: Target) -> tuple[Alternative, ...]:
        if not _is_made(node):
            return lower(node, target)
        return tuple(each for each in _alternatives(node, strategy) if each.name in names)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "lower", chosen)
        yield


def _is_made(node: Node) -> bool:
    return node.op.islower() or node.options.get("padding") == "EXPLICIT"


_LOWER = ops.lower


def _alternatives(node: Node, strategy: Strategy) -> tuple[Alternative, ...]:
    """Return a node's alternatives for a strategy: an emulating one has only those that need it."""
    alternatives = _LOWER(
        node, replace(Target(rules=installed_rules()), **{**NO_FACTS, **strategy.facts})
    )
    if not strategy.is_emulated:
        return alternatives
    return tuple(e for each in alternatives if (e := emulated(each)).launches != each.launches)


def assert_every_alternative(nodes: Sequence[Node], device: DeviceInfo, strategy: Strategy) -> int:
    """Assert that a chain has TFLite's outputs with each alternative of its fused node.

    Floats may differ by rounding. Return the number of alternatives that ran; 0: nothing is fused.
    """
    model = chain_model(nodes, outputs=nodes[-1].outputs)
    reference = interpreter(model)
    graph = read_model(model)

    def accepts(node: Node) -> bool:
        try:
            return bool(_alternatives(node, strategy))
        except Unsupported:
            return False

    nodes = run_passes(partition_of(graph, range(len(graph.nodes))), accepts).nodes
    result = next(filter(_is_made, nodes), None)
    if result is None:
        return 0
    given = inputs_for(graph)[1:3]
    expected = [invoke(reference, each) for each in given]
    names = [each.name for each in _alternatives(result, strategy)]
    for name in names:
        with _made_run_as([name], strategy):
            delegate = OpenCLDelegate(
                model, device.index, tune="off", min_nodes_per_partition=1, in_child_first=False
            )
            ours = interpreter(model, delegate)
        assert (result.op, name) in {(row.op, row.taken) for row in delegate.alternatives}, name
        for inputs, wanted in zip(given, expected, strict=True):
            for got, right in zip(invoke(ours, inputs), wanted, strict=True):
                if right.dtype == np.float32:
                    assert_close(got, right, 1e-5 * float(np.abs(right).max()), name)
                else:
                    assert_same(got, right, name)
        delegate.close()
    return len(names)


_1X1 = Convolution(size=(7, 9, 16), kernel=(1, 1), out_c=24, padding="VALID")
_DEPTHWISE = replace(_1X1, size=(7, 9, 64), kernel=(3, 3), depth_multiplier=1)
CHAINS = {
    "1x1": Chain(_1X1, ((1, 1), (1, 1))),
    "1x1_after": Chain(replace(_1X1, size=(7, 9, 19), batch=2), ((0, 2), (0, 1))),
    "1x1_strided": Chain(replace(_1X1, stride=(2, 2)), ((1, 1), (1, 1))),
    "1x1_added": Chain(_1X1, ((1, 1), (1, 1)), "RELU"),
    "3x3_far": Chain(replace(_1X1, kernel=(3, 3)), ((4, 0), (0, 5))),
    "depthwise": Chain(_DEPTHWISE, ((1, 1), (1, 1))),
    "depthwise_far": Chain(_DEPTHWISE, ((0, 4), (2, 3))),
    "depthwise_1x1": Chain(replace(_DEPTHWISE, kernel=(1, 1)), ((1, 1), (1, 1))),
}


@slow
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("dtype", [*EIGHT_BITS, "int16", "float32"])
def test_exact(device: DeviceInfo, dtype: str, strategy: Strategy) -> None:
    if not _is_tried(device, strategy, dtype):
        pytest.skip(f"{device.name} does not run {strategy} of {dtype}")
    # Emulations of instructions take seconds to build.
    names = ["1x1", "1x1_after", "depthwise_far"] if strategy.is_emulated else [*CHAINS]
    if dtype in EIGHT_BITS:  # alternating: the op tests run all types
        names = names[(STRATEGIES.index(strategy) + EIGHT_BITS.index(dtype)) % 2 :: 2]
    for name in names:
        chain = CHAINS[name]
        case = replace(chain, conv=replace(chain.conv, dtype=dtype))
        assert assert_every_alternative(case.nodes(), device, strategy) or strategy.is_emulated, (
            name
        )


def _is_tried(device: DeviceInfo, strategy: Strategy, dtype: str) -> bool:
    """Whether a device runs a strategy natively, and the strategy is not only for 8 bits."""
    is_for_8_bits = strategy in (*DOTS, *NVIDIA, *ARM, *X86, STAGED, NEAREST)
    return (
        strategy_on(device, strategy) is strategy
        and has_isa(strategy, device)
        and (dtype in EIGHT_BITS or not is_for_8_bits)
    )


@st.composite
def chains(draw: st.DrawFn) -> Chain:
    """Draw a chain to which at least one pass applies, often with 1x1 windows."""
    conv = draw(convolutions(is_depthwise=draw(st.booleans())))
    dtype = draw(st.sampled_from([conv.dtype, conv.dtype, "int16", "float32"]))
    if dtype == "int16":
        conv = replace(conv, zeros=None, multiplier=min(conv.multiplier, 1.0))
    border = st.tuples(st.integers(0, 4), st.integers(0, 4))
    borders = draw(border), draw(border)
    height, width = (size + sum(pair) for size, pair in zip(conv.size, borders, strict=False))
    conv = replace(conv, dtype=dtype, size=(height, width, conv.size[2]), padding="VALID")
    if draw(st.booleans()) or min(conv.out_size()) < 1:
        conv = replace(conv, kernel=(1, 1), stride=draw(st.sampled_from([(1, 1), (1, 1), (2, 1)])))
    adds = not conv.depth_multiplier and draw(st.booleans())
    return Chain(conv, borders, draw(st.sampled_from(FUSED)) if adds else "")


@slow
@given(chain=chains(), strategy=st.sampled_from(STRATEGIES), seed=SEEDS)
def test_drawn(device: DeviceInfo, chain: Chain, strategy: Strategy, seed: int) -> None:
    strategy = strategy_on(device, strategy)
    assume(_is_tried(device, strategy, chain.conv.dtype) and not strategy.is_emulated)
    assert_every_alternative(chain.nodes(seed), device, strategy)


@given(
    channels=st.integers(8, 40),
    rows=st.integers(1, 9),
    dtype=st.sampled_from(["uint8", "int8"]),
    splits=st.booleans(),
    strategy=st.sampled_from([SIMT, LANES_4, LANES_8, LANES_16]),
)
def test_drawn_shuffles(
    device: DeviceInfo, channels: int, rows: int, dtype: str, splits: bool, strategy: Strategy
) -> None:
    strategy = strategy_on(device, strategy)
    assume(has_isa(strategy, device))
    assert_every_alternative(shuffle((rows, channels), dtype, splits), device, strategy)
