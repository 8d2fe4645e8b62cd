# SPDX-License-Identifier: Apache-2.0
"""Options.alternative and OpenCLDelegate.alternatives: what nodes could run, and what they run."""

from __future__ import annotations

import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import NodeAlternatives, write_model
from tflite_opencl.conformance.cases._convolution import ConvCase
from tflite_opencl.interpreters.interpreter import allocated
from tflite_opencl.interpreters.interpreter import invoke as run
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.oracle.oracle import oracle
from tflite_opencl.oracle.values import input_sets

GRAPH = ConvCase(size=(7, 5, 3), out_c=8).graph("int8")
MODEL = write_model(GRAPH)


@pytest.mark.device
def test_each_alternative_can_be_selected(device: DeviceInfo) -> None:
    runtime, sets = find_runtime(), input_sets(GRAPH)
    right = oracle(runtime, GRAPH, MODEL, sets).outputs

    def alternatives(wanted: str | None) -> NodeAlternatives:
        delegate = OpenCLDelegate(MODEL, device.index, tune="off", alternative=wanted)
        assert delegate.alternatives == []
        result = allocated(runtime, MODEL, "reference", [delegate])
        (row,) = delegate.alternatives
        for inputs, expected in zip(sets, right, strict=True):
            assert run(result, inputs)[0].tobytes() == expected[0].tobytes()
        return row

    first = alternatives(None)
    assert (first.node, first.op) == (0, "CONV_2D")
    assert first.taken == first.names[0]
    assert first.names[-1] == "plain"
    assert len(set(first.names)) == len(first.names) > 1
    for name in (first.names[1], "plain"):
        assert alternatives(name).taken == name
    assert alternatives("of no node").taken == first.taken
