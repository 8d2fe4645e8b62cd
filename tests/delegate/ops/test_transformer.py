# SPDX-License-Identifier: Apache-2.0
"""What passes make of a transformer's nodes: refusals, and each kernel against the nodes apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo
from tests.support.cases import (
    LANES_4,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    Strategy,
)
from tests.support.factories import refused
from tests.support.fused import (
    EVERY,
    GATES,
    LAYER_NORMS,
    NORMS,
    ROPES,
    SCALED,
    SHARES,
    assert_near_nodes,
    fused,
    given,
)
from tests.support.model import const

STRATEGIES = (PLAIN, SIMT, LANES_4, LANES_8, LANES_16)


BUILT = [fused(nodes) for nodes in EVERY.values()]
NORM, ROPE, GATE = fused(NORMS["rows"]), fused(ROPES["rows"]), fused(GATES["row"])
SCALE = fused(SCALED["rows"])
LAYER, SHARE = fused(LAYER_NORMS["rows"]), fused(SHARES["row"])


test_refusals = refused(
    {
        "norm_type": (given(NORM, 0, (3, 5, 37), "int32"), "int32: only float32 is implemented"),
        "norm_computed": (given(NORM, 1, (37,)), "scales are not constant"),
        "norm_scale": (
            replace(NORM, inputs=(NORM.inputs[0], const(np.ones(36, np.float32)))),
            "scales 36 of rows of 37: one a column is needed, at most 32768",
        ),
        "norm_column": (
            replace(NORM, inputs=(NORM.inputs[0], const(np.ones((37, 1), np.float32)))),
            "scales 37x1 of rows of 37: one a column is needed, at most 32768",
        ),
        "norm_shape": (given(NORM, 0, (3, 5, 38)), "output 3x5x37: the inputs give 3x5x38"),
        "layer_type": (given(LAYER, 0, (3, 5, 37), "int32"), "int32: only float32 is implemented"),
        "layer_computed": (given(LAYER, 2, (37,)), "offsets are not constant"),
        "layer_offset": (
            replace(LAYER, inputs=(*LAYER.inputs[:2], const(np.ones(36, np.float32)))),
            "offsets 36 of rows of 37: one a column is needed, at most 32768",
        ),
        "scaled_type": (given(SCALE, 3, (3, 5, 37), "int32"), "int32: only float32 is implemented"),
        "scaled_shape": (
            given(SCALE, 3, (5, 37)), "output 5x37: the inputs give 3x5x37"
        ),
        "scaled_computed": (given(SCALE, 2, (37,)), "offsets are not constant"),
        "share_type": (given(SHARE, 1, (1, 576), "int16"), "int16: only float32 is implemented"),
        "share_shape": (given(SHARE, 1, (1, 575)), "output 1x575: the inputs give 1x576"),
        "rope_type": (given(ROPE, 1, (5, 32), "int8"), "int8: only float32 is implemented"),
        "rope_sines": (given(ROPE, 2, (5, 31)), "output 5x31: the inputs give 5x32"),
        "rope_angles": (
            given(given(ROPE, 1, (3, 32)), 2, (3, 32)),
            "angles 3x32 of rows 3x5x64: they do not fit",
        ),
        "gate_type": (given(GATE, 1, (1, 1536), "int16"), "int16: only float32 is implemented"),
        "gate_shape": (given(GATE, 1, (1, 1535)), "output 1x1535: the inputs give 1x1536"),
    }
)  # fmt: skip


@pytest.mark.device
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_exact(device: DeviceInfo, name: str, strategy: Strategy) -> None:
    assert_near_nodes(EVERY[name], device, strategy)
