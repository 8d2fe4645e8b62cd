# SPDX-License-Identifier: Apache-2.0
"""fully_connected_shifted: what it refuses, and each kernel against the nodes apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.graph.partition import partition_of
from delegate.inspect import Node, read_model
from delegate.passes import PASSES, run_passes
from tests.delegate.ops.test_transformer import given
from tests.support.cases import (
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    RUN,
    SIMT,
    X86,
    Way,
    changed,
    forced,
    require_isa,
)
from tests.support.compare import RUNTIME, assert_close, interpreter, invoke
from tests.support.deal import where_hybrid_runs
from tests.support.factories import refused
from tests.support.fused import SHIFTED, shifted
from tests.support.model import chain_model, const, graph_of

pytestmark = [
    where_hybrid_runs,
    pytest.mark.skipif(RUNTIME.name == "tflite-runtime", reason="it knows no blocks"),
]
WAYS = (PLAIN, SIMT, LANES_4, LANES_8, LANES_16, *X86)


def fused(nodes: list[Node]) -> Node:
    """Return the one node that the pass makes of the products and the sum."""
    graph = graph_of(nodes)
    whole = partition_of(graph, range(len(nodes)))
    (node,) = run_passes(whole, lambda node: True, ["fuse_shifts"]).nodes
    return node


BUILT = [fused(nodes) for nodes in SHIFTED.values()]
NODE = fused(SHIFTED["row"])
SHIFTS = NODE.inputs[4]
assert SHIFTS is not None
test_refusals = refused(
    {
        "sums": (given(NODE, 3, (1, 4)), "shifts 40x3, sums 1x4: 1 rows have 3 blocks each"),
        "shifts": (
            changed(NODE, 4, shape=(40, 2), data=np.ones((40, 2), np.float32)),
            "shifts 40x2, sums 1x3: 1 rows have 3 blocks each",
        ),
        "types": (
            given(NODE, 3, (1, 3), "int32"),
            "sums int32, shifts float32: only float32 is implemented",
        ),
        "infinite": (
            changed(NODE, 4, data=np.full((40, 3), np.inf, np.float32)),
            "a shift of a block is not finite",
        ),
        "computed": (given(NODE, 4, (40, 3)), "shifts are not constant"),
    }
)


def test_a_sum_that_others_read_is_left_alone() -> None:
    nodes = shifted(1, 40, 3)
    whole = partition_of(graph_of(nodes, outputs=[*nodes[-1].outputs, *nodes[1].outputs]), range(3))
    assert run_passes(whole, lambda node: True, [*PASSES]) is whole
    bias = const(np.ones(40, np.float32))
    biased = replace(nodes[1], inputs=(*nodes[1].inputs[:2], bias))
    whole = partition_of(graph_of([nodes[0], biased, nodes[2]]), range(3))
    assert run_passes(whole, lambda node: True, [*PASSES]) is whole


@pytest.mark.device
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("name", SHIFTED)
def test_exact(device: DeviceInfo, name: str, way: Way) -> None:
    require_isa(way, device)
    model = chain_model(SHIFTED[name])
    with forced(way):
        delegate = OpenCLDelegate(model, device.index, tune="off", profiling=True)
        made = interpreter(model, delegate)
    reference = interpreter(model, cpu_kernels="builtin")
    graph = read_model(model)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        values = [rng.normal(0, 1.5, x.shape).astype(np.float32) for x in graph.inputs]
        for ours, theirs in zip(invoke(made, values), invoke(reference, values), strict=True):
            bound = 3e-6 * (1 + np.abs(theirs.astype(np.float64)).max())
            assert_close(ours, theirs, bound, f"{name}, seed {seed}")
    assert {row.op for row in delegate.profile()} == {"fully_connected_shifted"}
    RUN["fully_connected_shifted"] += 1
