# SPDX-License-Identifier: Apache-2.0
"""The NumPy reference equals TFLite's, bit for bit, on suite cases and whole models."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from delegate.inspect import Graph, Node, read_model, write_model
from tests.support.compare import RUNTIME, inputs_for, interpreter, invoke
from tests.support.model import chain_model, const, op, t
from tests.support.nets import CHAIN
from tests.support.shared import model_path
from tests.support.without_tflite import needs_tflite
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.interpreters.numpy_kernels import NoNumpyForm
from tflite_opencl.interpreters.own_interpreter import NumpyInterpreter
from tflite_opencl.models.build import Case

# Number of cases per family, evenly spaced.
CASES = {
    "add": 20,
    "average_pool_2d": 20,
    "chain": 30,
    "concatenation": 12,
    "conv_2d": 60,
    "depthwise_conv_2d": 40,
    "fully_connected": 25,
    "max_pool_2d": 12,
    "pad": 12,
    "reshape": 5,
    "softmax": 12,
}


def cases(family: str) -> Iterator[Case]:
    """Yield a sample of the family's 8-bit cases."""
    results = [
        each for each in all_cases() if each.name.startswith((f"{family}/int8", f"{family}/u"))
    ]
    return itertools.islice(results[:: max(1, len(results) // CASES[family])], CASES[family])


def assert_equal(graph: Graph, model: bytes | str) -> None:
    ours, theirs = NumpyInterpreter(read_model(model)), interpreter(model)
    for inputs in inputs_for(graph)[1:]:
        for got, expected in zip(invoke(ours, inputs), invoke(theirs, inputs), strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)


@needs_tflite
@pytest.mark.parametrize("family", CASES)
def test_arithmetic_equals_reference_kernels(family: str) -> None:
    if RUNTIME.name != "ai-edge-litert" and family in ("fully_connected", "chain"):
        pytest.skip("tflite-runtime rounds FULLY_CONNECTED twice")
    compared = 0
    for case in cases(family):
        graph = case.make()
        model = write_model(graph)
        try:
            interpreter(model)
            assert_equal(graph, model)
        except NoNumpyForm:
            continue
        except RuntimeError:
            continue  # TFLite does not run it
        compared += 1
    assert compared >= CASES[family] // 3


@needs_tflite
@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_128_quant", "vww_96_int8", "kws_ref_model"])
def test_whole_models(name: str) -> None:
    path = model_path(name)
    assert_equal(read_model(path), path)


@needs_tflite
def test_sizes_and_indices_equal_folding() -> None:
    x, y = t((3,), "int32"), t((3,), "int32")
    clamped = {"fused_activation_function": "RELU6"}
    model = chain_model([op("MUL", [x, const(np.int32([-1, 3, 2]))], [y], clamped)])
    assert_equal(read_model(model), model)
    wrapped = chain_model([op("GATHER", [const(np.int32([7, 8])), x], [y], {"axis": 0})])
    interp = NumpyInterpreter(read_model(wrapped))
    with pytest.raises(NoNumpyForm, match=r"node 0 .GATHER.: .* no such form"):
        invoke(interp, [np.int32([0, 1, 2])])


def test_run_reads_set_tensors() -> None:
    interp = NumpyInterpreter(CHAIN)
    index = interp.get_input_details()[0]["index"]
    with pytest.raises(ValueError, match="is given"):
        interp.set_tensor(index, np.zeros((1, 1), np.uint8))
    with pytest.raises(ValueError, match="was not computed"):
        interp.get_tensor(interp.get_output_details()[0]["index"])
    first, second = (invoke(interp, inputs) for inputs in inputs_for(CHAIN)[1:3])
    assert not np.array_equal(first[0], second[0])


def node(name: str, dtype: str = "uint8", **options: object) -> Node:
    scale = None if dtype == "float32" else 0.5
    source, result = t((1, 2, 2, 3), dtype, scale), t((1, 2, 2, 3), dtype, scale)
    return op(name, [source, t((1, 2, 2, 3), dtype, scale)], [result], options)


REFUSED = {
    "op": (node("MUL"), r"node 0 \(MUL\): numpy's reference has no such op"),
    "floats": (node("ADD", "float32"), r"node 0 \(ADD\): float32, and numpy's reference knows"),
    "int16": (node("ADD", "int16"), r"node 0 \(ADD\): int16, and numpy's reference knows"),
    "activation": (
        node("ADD", fused_activation_function="TANH"),
        r"node 0 \(ADD\): an activation that is no clamp",
    ),
    "rescaled": (
        op(
            "RESHAPE",
            [t((1, 4), "uint8", 0.5), const(np.int32([4]))],
            [t((4,), "uint8", 0.25)],
            {"new_shape": (4,)},
        ),
        r"node 0 \(RESHAPE\): the scale or zero point changes",
    ),
}


@pytest.mark.parametrize(("made", "why"), REFUSED.values(), ids=REFUSED)
def test_unsupported_node_is_named(made: Node, why: str) -> None:
    with pytest.raises(NoNumpyForm, match=why):
        NumpyInterpreter(read_model(chain_model([made])))
