# SPDX-License-Identifier: Apache-2.0
"""The oracle is right even where TFLite's memory plan is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate.inspect import Node, Tensor, write_model
from tests.support.compare import RUNTIME
from tests.support.model import const, graph_of, op, t
from tests.support.without_tflite import needs_tflite
from tflite_opencl.conformance.cases.mediapipe import transpose_conv_bias
from tflite_opencl.oracle.node_kernels import NoOracle
from tflite_opencl.oracle.oracle import oracle


@needs_tflite
def test_operand_read_later_is_not_overwritten() -> None:
    """TFLite lets views share a tensor's memory, and updates one of them in place."""
    x, negative, first, second = t((2, 12)), t((2, 12)), t((24,)), t((4, 6))
    update, starts, updated, later = t((2, 3)), const(np.int32([1, 2])), t((4, 6)), t((3, 8))
    wide, result = t((2, 1, 12)), t((4, 6))

    def reshape(source: Tensor, result: Tensor) -> Node:
        shape = const(np.array(result.shape, np.int32))
        return op("RESHAPE", [source, shape], [result], {"new_shape": result.shape})

    graph = graph_of(
        [
            op("NEG", [x], [negative]),
            op("EXPAND_DIMS", [negative, const(np.int32(1))], [wide]),
            reshape(wide, first),
            reshape(first, second),
            op("DYNAMIC_UPDATE_SLICE", [second, update, starts], [updated]),
            op("NEG", [updated], [result]),  # a graph output has separate memory
            reshape(wide, later),
        ],
        [x, update],
        [result, later],
    )
    given = np.arange(24, dtype=np.float32).reshape(2, 12)
    known = oracle(RUNTIME, graph, write_model(graph), [[given, np.full((2, 3), 99, np.float32)]])
    np.testing.assert_array_equal(known.outputs[0][1], -given.reshape(3, 8))


@needs_tflite
def test_mediapipe_op_is_compared_with_tflite_ops() -> None:
    graph = transpose_conv_bias((1, 4, 5, 3), 8, (3, 3), (2, 2), "SAME")
    zeros = [np.zeros((1, 4, 5, 3), np.float32)]
    known = oracle(RUNTIME, graph, write_model(graph), [zeros])
    bias = graph.nodes[0].inputs[2]
    assert bias is not None
    np.testing.assert_array_equal(known.outputs[0][0], np.broadcast_to(bias.data, (1, 8, 9, 8)))
    malformed = replace(graph.nodes[0], options={"custom_options": b""})
    other = replace(graph, nodes=(malformed,))
    with pytest.raises(NoOracle, match="unresolved custom op"):
        oracle(RUNTIME, other, write_model(other), [zeros])


@needs_tflite
@pytest.mark.parametrize(("name", "is_exact"), [("SQRT", True), ("EXP", False)])
def test_floats_without_a_tolerance(name: str, is_exact: bool) -> None:
    x, y, z = t((1, 9)), t((1, 9)), t((1, 9))
    graph = graph_of([op("ADD", [x, x], [y]), op(name, [y], [z])], [x], [z])
    inputs = [np.random.default_rng(3).uniform(1, 2, (1, 9)).astype(np.float32)]
    known = oracle(RUNTIME, graph, write_model(graph), [inputs])
    (bound,) = known.without_tolerance(graph).bounds[0]
    (wide,) = known.bounds[0]
    assert bound is not None
    assert wide is not None
    assert np.any(wide)
    assert not np.any(bound) if is_exact else bound is wide
