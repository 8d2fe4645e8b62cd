# SPDX-License-Identifier: Apache-2.0
"""fully_connected_shifted: what it refuses, and each kernel against the nodes apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.graph.partition import partition_of
from delegate.plan.passes import PASSES, run_passes
from tests.support.cases import (
    AMX,
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    X86,
    Strategy,
    changed,
)
from tests.support.compare import RUNTIME
from tests.support.factories import refused
from tests.support.fused import SHIFTED, assert_near_nodes, fused, given, shifted
from tests.support.model import const, graph_of
from tests.support.tiers import where_rows_are_known

pytestmark = [
    where_rows_are_known,
    pytest.mark.skipif(RUNTIME.name == "tflite-runtime", reason="it knows no blocks"),
]
STRATEGIES = (PLAIN, SIMT, LANES_4, LANES_8, LANES_16, *X86, AMX)


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
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", SHIFTED)
def test_exact(device: DeviceInfo, name: str, strategy: Strategy) -> None:
    assert_near_nodes(SHIFTED[name], device, strategy, cpu_kernels="builtin")
