# SPDX-License-Identifier: Apache-2.0
"""Hybrid ops on rows with infinities, or whose range no float holds, against TFLite's, bit for bit.

The scale of such a row is infinite, so that what is left of it are infinities and NaN. Rows with
NaN are not here: docs/ops.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo
from delegate.inspect import Graph, Node, write_model
from tests.support.cases import (
    ARM_OR_OTHER,
    LANES_8,
    LANES_16,
    NVIDIA,
    PLAIN,
    SIMT,
    X86,
    Strategy,
    assert_exact_strategy,
    forced,
    require_isa,
)
from tests.support.compare import assert_within
from tests.support.model import chain_model, const, op, t
from tests.support.tiers import where_rows_are_known
from tflite_opencl.conformance.cases._convolution import HYBRID, ConvCase
from tflite_opencl.conformance.cases.recurrent import lstm, svdf
from tflite_opencl.conformance.cases.rnns import rnn

pytestmark = where_rows_are_known

STRATEGIES = (PLAIN, SIMT, LANES_8, LANES_16, *X86, *ARM_OR_OTHER, *NVIDIA)
MOST = 3e38
INF = np.inf
# What some places of a row hold; each of the last three has a range that no float holds.
ODD = ([INF], [-INF], [INF, -INF], [MOST], [MOST, -MOST], [INF, -MOST], [-INF, MOST])


def _products(depth: int, asymmetric: bool) -> Node:
    rng = np.random.default_rng(depth)
    weights = const(rng.integers(-127, 128, (33, depth)).astype(np.int8), 0.02)
    options = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": asymmetric}
    inputs = [t((6, depth)), weights, const(rng.normal(size=33).astype(np.float32))]
    return op("FULLY_CONNECTED", inputs, [t((6, 33))], options, version=9)


def _matrices() -> Node:
    weights = const(np.random.default_rng(0).integers(-127, 128, (37, 19)).astype(np.int8), 0.02)
    options = {"adj_x": False, "adj_y": False, "asymmetric_quantize_inputs": True}
    return op("BATCH_MATMUL", [t((5, 37)), weights], [t((5, 19))], options, version=4)


# A row's last values become int8 in another way than the eight before: 37 and 7.
NODES: dict[str, Node] = {
    **{
        f"rows_{depth}_{'a' * is_asymmetric}symmetric": _products(depth, is_asymmetric)
        for depth in (7, 37, 64)
        for is_asymmetric in (False, True)
    },
    "matrices": _matrices(),
    **{
        f"{name}_{kind.replace('-', '_')}": case.node(kind, None)
        for kind in HYBRID
        for name, case in {
            "conv": ConvCase(size=(7, 6, 5), out_c=19, batch=2),
            "conv_blocks": ConvCase(size=(6, 19, 5), out_c=45, fused="RELU"),
            "conv_large": ConvCase(size=(65, 64, 4), kernel=(1, 1), out_c=3, batch=2),
            "transposed": ConvCase(
                op="TRANSPOSE_CONV", size=(4, 5, 3), stride=(2, 2), out_c=17, batch=2
            ),
        }.items()
    },
    "depthwise": ConvCase(op="DEPTHWISE_CONV_2D", size=(7, 6, 17), batch=2).node(HYBRID[1], None),
}
STATEFUL: dict[str, Graph] = {
    "svdf": svdf("hybrid", (2, 15, 5, 2, 3)),
    "svdf_asymmetric": svdf("hybrid", (2, 15, 5, 2, 3), True, True),
    "rnn": rnn("hybrid", (2, 1, 15, 6), "RELU6", "RNN"),
    "rnn_asymmetric": rnn("hybrid", (2, 1, 15, 6), "NONE", "RNN", "-asymmetric"),
}
LSTMS = {
    form: lstm("hybrid", (1, 1, 15, 6), form, op="LSTM")  # one row: without clips
    for form in ("plain", "plain-asymmetric", "projection")
}


def _sets(shape: tuple[int, ...]) -> list[list[NDArray[np.float32]]]:
    """Return inputs with odd numbers at the beginning, at the end and in the middle."""
    rng, sets = np.random.default_rng(1), []
    for odd in ODD:
        for first in (0, -len(odd), 11):
            values = rng.normal(0, 1.5, shape).astype(np.float32)
            rows = values.reshape(shape[0], -1)
            rows[0, first % (rows.shape[1] - len(odd) + 1) :][: len(odd)] = odd
            sets.append([values])
    return sets


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", NODES)
def test_products(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    (source,) = (each for each in NODES[name].inputs if each and each.data is None)
    assert_exact_strategy(chain_model([NODES[name]]), device, strategy, inputs=_sets(source.shape))


@pytest.mark.parametrize("strategy", STRATEGIES[:3], ids=str)
@pytest.mark.parametrize("name", STATEFUL)
def test_one_step(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    """The next step's rows have NaN."""
    for (values,) in _sets(STATEFUL[name].inputs[0].shape):
        assert_exact_strategy(write_model(STATEFUL[name]), device, strategy, inputs=[[values]])


@pytest.mark.parametrize("strategy", STRATEGIES[:3], ids=str)
@pytest.mark.parametrize("form", LSTMS)
def test_one_step_of_an_lstm(form: str, strategy: Strategy, device: DeviceInfo) -> None:
    """What is finite is in bound: TANH and LOGISTIC are the device's own."""
    require_isa(strategy, device)
    for (values,) in _sets(LSTMS[form].inputs[0].shape):
        with forced(strategy):
            assert_within(
                write_model(LSTMS[form]), device, lambda _: [np.array(1e-6)], inputs=[[values]]
            )


@pytest.mark.parametrize("strategy", STRATEGIES[:3], ids=str)
@pytest.mark.parametrize("value", [INF, -INF])
def test_pictures_of_nothing_else(value: float, strategy: Strategy, device: DeviceInfo) -> None:
    """Taps that meet no pixel add nothing, which 0 times an infinite scale would."""
    case = ConvCase(op="TRANSPOSE_CONV", size=(3, 9, 1), kernel=(1, 3), out_c=8)
    node = replace(case, has_bias=False).node("hybrid", None)
    assert node.inputs[1] is not None
    weights = replace(node.inputs[1], data=np.full((8, 1, 3, 1), 3, np.int8))
    node = replace(node, inputs=(node.inputs[0], weights, *node.inputs[2:]))
    picture = np.full((1, 3, 9, 1), value, np.float32)
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=[[picture]])
