# SPDX-License-Identifier: Apache-2.0
"""Networks of poolings and sums, in which the op alone decides where a node runs.

TAKEN ops run on the device. Tests leave LEFT ops to the CPU with exclude_ops=LEFT, so that new
ops do not change the partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Graph, Tensor
from tests.support.compare import assert_same, inputs_for, interpreter, invoke
from tests.support.model import const, graph_of, op, t

TAKEN = ("AVERAGE_POOL_2D", "ADD")  # with one input and with two
LEFT = ("MAX_POOL_2D", "MUL")
SHAPE = (1, 3, 3, 2)
POOL = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "filter_width": 2, "filter_height": 2}


def image(*shape: int, signature: Sequence[int] = ()) -> Tensor:
    """Return a uint8 tensor; scale and zero point are always the same."""
    return t(shape or SHAPE, "uint8", 0.5, 128, shape_signature=signature)


def net(nodes: Sequence[tuple[str, Sequence[int], int]], outputs: Sequence[int] = ()) -> Graph:
    """Return the graph of nodes (op, input numbers, output number); number 0 is the graph's input.

    Its outputs are the tensors that no node reads, and `outputs`.
    """
    tensors = {number: image() for number in [0, *(result for _, _, result in nodes)]}
    read = {number for _, sources, _ in nodes for number in sources}
    shown = [n for n in tensors if n and (n not in read or n in outputs)]
    return graph_of(
        [
            op(
                name,
                [tensors[n] for n in sources],
                [tensors[result]],
                POOL if "POOL" in name else {},
            )
            for name, sources, result in nodes
        ],
        [tensors[0]],
        [tensors[n] for n in shown],
    )


def conv_pool(has_open_batch: bool = False) -> Graph:
    """Return CONV_2D and AVERAGE_POOL_2D, which run with any batch size."""
    rng = np.random.default_rng(5)
    weights = const(rng.integers(0, 255, (5, 3, 3, 2)).astype(np.uint8), 0.02, 120)
    bias = const(rng.integers(-99, 99, 5).astype(np.int32), 0.01)

    def tensor(*sizes: int) -> Tensor:
        return image(1, *sizes, signature=(-1, *sizes) if has_open_batch else ())

    source, middle, result = tensor(7, 6, 2), tensor(7, 6, 5), tensor(7, 6, 5)
    conv = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    return graph_of(
        [
            op("CONV_2D", [source, weights, bias], [middle], conv),
            op("AVERAGE_POOL_2D", [middle], [result], POOL),
        ]
    )


def delegate_for(
    model: bytes | str, device: DeviceInfo, exclude_ops: Sequence[str] = LEFT, **options: Any
) -> OpenCLDelegate:
    """Return a delegate on this device that leaves only LEFT to the CPU; tuning is off."""
    options = {"min_nodes_per_partition": 1, "tune": "off", **options}
    return OpenCLDelegate(model, device.index, exclude_ops=exclude_ops, **options)


def assert_equal_outputs(
    got: Sequence[NDArray[np.uint8]], expected: Sequence[NDArray[np.uint8]], where: str = "run"
) -> None:
    """Assert that two runs have equal outputs."""
    assert len(got) == len(expected) > 0
    for number, pair in enumerate(zip(got, expected, strict=True)):
        assert_same(*pair, f"{where}, output {number}")


def assert_runs_exactly(model: bytes | str, graph: Graph, delegate: OpenCLDelegate) -> None:
    """Assert that a new interpreter with the delegate gives the reference kernels' outputs."""
    ours, reference = interpreter(model, delegate), interpreter(model)
    for number, inputs in enumerate(inputs_for(graph)):
        assert_equal_outputs(invoke(ours, inputs), invoke(reference, inputs), f"inputs {number}")


CHAIN = net([("AVERAGE_POOL_2D", [0], 1), ("MAX_POOL_2D", [1], 2), ("ADD", [1, 2], 3)])
# 0 - 1 - 2 are one partition of 3 nodes; 4 is one of 1; 6 - 7 are one of 2.
THREE_PARTITIONS = net(
    [
        ("AVERAGE_POOL_2D", [0], 1),
        ("ADD", [0, 1], 2),
        ("ADD", [1, 2], 3),
        ("MAX_POOL_2D", [3], 4),
        ("AVERAGE_POOL_2D", [4], 5),
        ("MUL", [4, 5], 6),
        ("AVERAGE_POOL_2D", [6], 7),
        ("ADD", [7, 1], 8),
    ]
)


def run_with(delegate: OpenCLDelegate, model: bytes, graph: Graph, seed: int) -> bool:
    """Assert the same for one input set of this seed; return True."""
    inputs = inputs_for(graph, seed)[0]
    assert_equal_outputs(
        invoke(interpreter(model, delegate), inputs), invoke(interpreter(model), inputs)
    )
    return True


def error_line(made: Any, inputs: Sequence[NDArray[Any]]) -> str:
    """Return the first line of the error of an interpreter's run."""
    with pytest.raises(RuntimeError) as raised:
        invoke(made, inputs)
    return str(raised.value).splitlines()[0]
