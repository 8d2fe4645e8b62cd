# SPDX-License-Identifier: Apache-2.0
"""channel_shuffle: what it refuses, and the kernel against the ops it stands for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Node, read_model
from tests.support.cases import LANES_4, LANES_8, LANES_16, RUN, SIMT, Strategy, forced, require_isa
from tests.support.compare import assert_same, inputs_for, interpreter, invoke
from tests.support.factories import refused
from tests.support.fused import fused
from tests.support.model import chain_model, op
from tests.support.moves import like, numbers

STRATEGIES = (SIMT, LANES_4, LANES_8, LANES_16)


def shuffle(
    shape: tuple[int, ...], dtype: str = "uint8", splits: bool = True, is_second: bool = False
) -> list[Node]:
    """Return the nodes that shuffle the channels of two tensors of a shape, and cut them again.

    `is_second`: axes are counted from the end.
    """
    *outer, channels = shape
    axis = -1 if is_second else len(outer)
    whole, pairs, turned = (
        (*outer, *inner) for inner in ((2 * channels,), (2, channels), (channels, 2))
    )
    joined, apart, across, flat = (like(each, dtype) for each in (whole, pairs, turned, whole))
    order = [*range(len(outer)), len(outer) + 1, len(outer)]
    halves = [like(shape, dtype) for _ in range(2)]
    nodes = [
        op("CONCATENATION", [like(shape, dtype), like(shape, dtype)], [joined], {"axis": axis}),
        op("RESHAPE", [joined, numbers(pairs)], [apart], {"new_shape": pairs}),
        op("TRANSPOSE", [apart, numbers(order)], [across]),
        op("RESHAPE", [across, numbers(whole)], [flat], {"new_shape": whole}),
        op("SPLIT", [numbers(axis), flat], halves, {"num_splits": 2}),
    ]
    return nodes if splits else nodes[:4]


def model_of(nodes: list[Node]) -> bytes:
    return chain_model(nodes, outputs=nodes[-1].outputs)


CASES = {
    "split": shuffle((1, 5, 7, 58)),
    "whole": shuffle((2, 3, 4, 18), "int8", splits=False),
    "one_vector": shuffle((1, 2, 3, 32), "int8", is_second=True),
    "many_rows": shuffle((1, 40, 30, 36)),
    "vectors": shuffle((3, 8)),
}
BUILT = [fused(nodes) for nodes in (*CASES.values(), shuffle((1, 2, 2, 8), splits=False))]
NODE = fused(CASES["split"])
_LEFT, _RIGHT = (tensor for tensor in NODE.inputs if tensor is not None)

test_refusals = refused(
    {
        "odd": (fused(shuffle((1, 2, 2, 9))), "9 channels: 2 outputs do not divide them"),
        "few": (fused(shuffle((1, 2, 2, 6))), "3 channels: fewer than a vector's"),
        "types": (fused(shuffle((1, 2, 2, 8), "int16")), "int16: only uint8, int8"),
        "scales": (
            replace(NODE, inputs=(_LEFT, like(_RIGHT.shape, zero=4))),
            "input and output differ in scale or zero point",
        ),
        "shapes": (
            replace(NODE, inputs=(_LEFT, like((1, 5, 6, 58)))),
            "output 1x5x6x58: the inputs give 1x5x7x58",
        ),
        "one_input": (replace(NODE, inputs=(_LEFT,)), "1 inputs: 2 expected"),
        "output": (
            replace(NODE, outputs=(like((1, 5, 7, 58)), like((1, 5, 7, 59)))),
            "output 1x5x7x59: the inputs give 1x5x7x58",
        ),
    }
)


@pytest.mark.device
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_exact(device: DeviceInfo, name: str, strategy: Strategy) -> None:
    if name == "vectors" and strategy is LANES_16:
        strategy = LANES_8  # half of 8 channels
    require_isa(strategy, device)
    model = model_of(CASES[name])
    with forced(strategy):
        delegate = OpenCLDelegate(model, device.index, tune="off", profiling=True)
        made = interpreter(model, delegate)
    reference = interpreter(model)
    for given in inputs_for(read_model(model)):
        for ours, theirs in zip(invoke(made, given), invoke(reference, given), strict=True):
            assert_same(ours, theirs, name)
    assert [row.op for row in delegate.profile()] == ["channel_shuffle"]
    RUN["channel_shuffle"] += 1
