# SPDX-License-Identifier: Apache-2.0
"""NaN and infinities through products of floats: the class of number that TFLite gives.

What overflows in a single product is not here: TFLite rounds it before it is added, and a fused
multiply-add does not (docs/ops.md).
"""

from __future__ import annotations

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Node, read_model
from tests.support.cases import (
    FUSED,
    LANES_4,
    LANES_8,
    LANES_16,
    MANY_REGISTERS,
    PLAIN,
    SIMT,
    Strategy,
    forced,
    require_isa,
)
from tests.support.compare import interpreter, invoke
from tests.support.convolution import float_convolution
from tests.support.floats import kinds
from tests.support.model import chain_model, const, op, t
from tests.support.transpose_conv import Transposed

WIDE = {"size": (5, 6, 9), "out_c": 17}
CASES: dict[str, Node] = {
    **{f"conv_2d_{each}": float_convolution(**WIDE, fused=each).node() for each in FUSED},
    "pointwise": float_convolution(**WIDE, kernel=(1, 1)).node(),
    "depthwise": float_convolution(size=(5, 6, 16), depth_multiplier=1).node(),
    "depthwise_relu6": float_convolution(size=(5, 6, 16), depth_multiplier=1, fused="RELU6").node(),
    "groups": float_convolution(size=(5, 6, 8), out_c=8, groups=2).node(),
    "transposed": Transposed(dtype="float32", size=(4, 5, 9), out_c=17).node(),
    "rows": op(
        "FULLY_CONNECTED",
        [t((20, 33)), const(np.random.default_rng(1).standard_normal((19, 33)).astype("f")), None],
        [t((20, 19))],
        {"fused_activation_function": "RELU"},
    ),
}
STRATEGIES = (PLAIN, SIMT, LANES_4, LANES_8, LANES_16, MANY_REGISTERS)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_products(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    require_isa(strategy, device)
    model = chain_model([CASES[name]])
    with forced(strategy):
        delegate = OpenCLDelegate(model, device.index, tune="off")
        made = interpreter(model, delegate)
    assert [reason for *_, reason in delegate.verdicts] == [None]
    reference = interpreter(model)
    (x,) = read_model(model).inputs
    seen = 0
    for odd in ([np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [1e10, np.nan, np.inf]):
        rng = np.random.default_rng(7)
        values = rng.normal(0, 1.5, x.shape).astype(np.float32)
        places = rng.integers(0, values.size, values.size // 50 + len(odd))
        values.reshape(-1)[places] = rng.choice(odd, len(places))
        (ours,), (theirs,) = invoke(made, [values]), invoke(reference, [values])
        np.testing.assert_array_equal(kinds(ours), kinds(theirs), err_msg=f"{odd}")
        seen += np.count_nonzero(kinds(theirs))
    assert seen
