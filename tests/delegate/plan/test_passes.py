# SPDX-License-Identifier: Apache-2.0
"""Selection of passes: all by default, and equal outputs without any."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from delegate import DeviceInfo, Options
from delegate.engine import Engine
from delegate.format.writer import write_model
from delegate.graph.partition import partition_of
from delegate.inspect import Graph
from delegate.plan.passes import PASSES, run_passes
from delegate.target import Rules
from tests.support.compare import assert_exact
from tests.support.convolution import Convolution
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import whole

pytestmark = pytest.mark.usefixtures("one_context")


def residual() -> Graph:
    """Return x -PAD-> p -CONV_2D-> y, (y, z) -ADD-> s, to which both passes apply."""
    conv = Convolution(size=(8, 7, 8), out_c=16, padding="VALID", dtype="uint8").node()
    padded = conv.inputs[0]
    assert padded is not None
    x, y = replace(padded, shape=(1, 6, 5, 8)), conv.outputs[0]
    z, s = t(y.shape, "uint8", 0.05, 120), t(y.shape, "uint8", 0.1, 7)
    amounts = const(np.int32([[0, 0], [1, 1], [1, 1], [0, 0]]))
    return whole(graph_of([op("PAD", [x, amounts], [padded]), conv, op("ADD", [y, z], [s])]))


@pytest.mark.parametrize(
    ("names", "ops"),
    [
        ((), ["PAD", "CONV_2D", "ADD"]),
        (("fuse_pad",), ["CONV_2D", "ADD"]),
        (("fuse_add",), ["PAD", "conv_2d_add"]),
        (tuple(PASSES), ["conv_2d_add"]),
    ],
    ids=["none", "fuse_pad", "fuse_add", "all"],
)
def test_named_passes_run(names: tuple[str, ...], ops: list[str]) -> None:
    partition = partition_of(residual(), range(3))
    result = run_passes(partition, lambda node: True, names)
    assert [node.op for node in result.nodes] == ops
    assert (result is partition) == (not names)


@pytest.mark.device
def test_engine_runs_selected_passes(device: DeviceInfo) -> None:
    partition = partition_of(residual(), range(3))
    for names, has_pad in (((), True), (tuple(PASSES), False)):
        engine = Engine(Options(device.index, tune="off", passes=names))
        plan = engine.executor(partition, engine.target(Rules())).plan
        assert ("PAD" in {step.op for step in plan.steps}) == has_pad
        engine.close()


@pytest.mark.device
@pytest.mark.parametrize("names", [(), ("fuse_add",)], ids=["none", "one"])
def test_outputs_are_equal(names: tuple[str, ...], device: DeviceInfo) -> None:
    assert_exact(write_model(residual()), device, passes=names)
