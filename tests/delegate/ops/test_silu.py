# SPDX-License-Identifier: Apache-2.0
"""silu: what it refuses, and its table against the ops that it stands for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Node, write_model
from tests.support.cases import GROUPS, X86, Strategy, changed, forced, quantization, require_isa
from tests.support.compare import assert_same, interpreter, invoke
from tests.support.factories import refused
from tests.support.fused import fused
from tests.support.model import graph_of, op, t

Quantities = tuple[float, int]


def silu(
    dtype: str,
    source: Quantities = (0.05, 3),
    result: Quantities = (0.04, -20),
    activation: str = "NONE",
) -> list[Node]:
    """Return a LOGISTIC of all values of a type, and the MUL of both."""
    least = int(np.iinfo(dtype).min)
    x, share = t((2, 128), dtype, *source), t((2, 128), dtype, 1 / 256, least)
    y = t((2, 128), dtype, result[0], result[1] if least else result[1] + 128)
    options = {"fused_activation_function": activation}
    return [op("LOGISTIC", [x], [share]), op("MUL", [x, share], [y], options)]


CASES = {
    "int8": silu("int8"),
    "uint8": silu("uint8"),
    "relu6": silu("int8", activation="RELU6"),
    "coarse": silu("int8", (0.5, -128), (0.7, -128)),
    "fine": silu("int8", (0.2, 0), (1e-4, 0)),
}
BUILT = [fused(nodes) for nodes in CASES.values()]
NODE = BUILT[0]

test_refusal = refused(
    {
        "no_scale": (
            replace(NODE, intermediates=()),
            "no intermediate tensor: its scale is needed",
        ),
        "share": (
            replace(NODE, intermediates=(t((2, 128), "int8", 1 / 128, -128),)),
            "output scale 0.0078125, zero point -128: TFLite's is 0.00390625, -128",
        ),
        "ratio": (
            changed(NODE, -1, quantization=quantization(1e-30)),
            "a scale ratio of 1.95313e+26: more than 2^30",
        ),
        "int16": (changed(NODE, 0, dtype="int16"), "int16 in, int8 out: they must be equal"),
    }
)


@pytest.mark.parametrize("strategy", [*GROUPS, *X86], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_every_value(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    require_isa(strategy, device)
    nodes = CASES[name]
    model = write_model(graph_of(nodes))
    (source, *_) = nodes[0].inputs
    assert source is not None
    values = np.arange(256, dtype=np.uint8).view(source.dtype).reshape(2, 128)
    (expected,) = invoke(interpreter(model), [values])
    assert len(np.unique(expected)) > 2
    with forced(strategy):
        delegate = OpenCLDelegate(model, device.index, tune="off", passes=("fuse_silu",))
        (got,) = invoke(interpreter(model, delegate), [values])
    assert_same(got, expected, name)
