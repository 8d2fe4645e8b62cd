# SPDX-License-Identifier: Apache-2.0
"""Failures: wrong models, lost devices, memory, kernels; each has a reason."""

from __future__ import annotations

import logging

import numpy as np
import pyopencl as cl
import pytest

from delegate import DelegateError, DeviceInfo
from delegate.inspect import read_model, write_model
from delegate.plan import sources
from delegate.run.executor import Executor
from tests.support.compare import inputs_for, interpreter, invoke, refusals
from tests.support.model import chain_model, const, graph_of, op
from tests.support.nets import (
    CHAIN,
    POOL,
    THREE_PARTITIONS,
    assert_equal_outputs,
    assert_runs_exactly,
    conv_pool,
    delegate_for,
    error_line,
    image,
    net,
    run_with,
)
from tests.support.opencl import opencl_error
from tests.support.process import run_python
from tests.support.tiers import slow

CONV = {"padding": "SAME", "stride_w": 1, "stride_h": 1}


OTHER_MODELS = {
    "another-op": (
        write_model(net([("MAX_POOL_2D", [0], 1), ("MAX_POOL_2D", [1], 2), ("ADD", [1, 2], 3)])),
        "node 0 is MAX_POOL_2D (0,) -> (1,) in the interpreter, "
        "AVERAGE_POOL_2D (0,) -> (1,) in the delegate's file: give both the same model",
    ),
    "fewer-nodes": (
        write_model(net([("AVERAGE_POOL_2D", [0], 1), ("MAX_POOL_2D", [1], 2)])),
        "the model is 2 nodes in the interpreter, 3 nodes in the delegate's file: "
        "give both the same model",
    ),
    "more-nodes": (
        write_model(
            net(
                [
                    ("AVERAGE_POOL_2D", [0], 1),
                    ("MAX_POOL_2D", [1], 2),
                    ("ADD", [1, 2], 3),
                    ("MUL", [3, 3], 4),
                ]
            )
        ),
        "node 3 is MUL (3, 3) -> (4,) in the interpreter, nothing in the delegate's file: "
        "give both the same model",
    ),
}


@pytest.mark.parametrize("name", OTHER_MODELS)
def test_interpreter_with_another_model_is_refused(device: DeviceInfo, name: str) -> None:
    model, message = OTHER_MODELS[name]
    delegate = delegate_for(write_model(CHAIN), device)
    with pytest.raises(RuntimeError) as raised:
        interpreter(model, delegate)
    assert str(raised.value).splitlines()[0] == f"OpenCL delegate: {message}"
    assert delegate.failure == message
    assert run_with(delegate, write_model(CHAIN), CHAIN, 0)


def test_constants_with_another_shape_are_refused(device: DeviceInfo) -> None:
    graph = conv_pool()
    weights = const(np.zeros((4, 3, 3, 2), np.uint8), 0.02, 120)
    middle, bias = image(1, 7, 6, 4), const(np.zeros(4, np.int32), 0.01)
    pool = op("AVERAGE_POOL_2D", [middle], [image(1, 7, 6, 4)], POOL)
    conv = op("CONV_2D", [image(1, 7, 6, 2), weights, bias], [middle], CONV)
    with pytest.raises(
        RuntimeError,
        match=r"constant 1 is \(4, 3, 3, 2\) in the interpreter, \(5, 3, 3, 2\) in the delegate's",
    ):
        interpreter(chain_model([conv, pool]), delegate_for(write_model(graph), device))


def test_constants_with_other_values_are_refused(device: DeviceInfo) -> None:
    model = bytearray(write_model(conv_pool()))
    weights = read_model(bytes(model)).nodes[0].inputs[1]
    assert weights is not None
    assert weights.data is not None
    model[bytes(model).index(weights.data.tobytes()) + 7] ^= 1
    with pytest.raises(
        RuntimeError, match=r"constant 1 is of other values in the interpreter, another in the"
    ):
        interpreter(bytes(model), delegate_for(write_model(conv_pool()), device))


def test_failed_run_has_reason(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = write_model(CHAIN), inputs_for(CHAIN)[0]
    delegate = delegate_for(model, device)
    ours = interpreter(model, delegate)

    def broken(*_: object) -> None:
        raise DelegateError("running: CL_OUT_OF_RESOURCES")

    with monkeypatch.context() as patch:
        patch.setattr(Executor, "run", broken)
        assert error_line(ours, inputs) == "OpenCL delegate: running: CL_OUT_OF_RESOURCES"
    assert delegate.failure == "running: CL_OUT_OF_RESOURCES"
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))


def test_too_large_partition_stays_on_cpu(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    # A CPU node between them makes two partitions.
    small_in, small_mid, small_out = image(), image(), image()
    large_in, large_out = image(1, 40, 40, 2), image(1, 40, 40, 2)
    big = graph_of(
        [
            op("AVERAGE_POOL_2D", [large_in], [large_out], POOL),
            op("MAX_POOL_2D", [small_in], [small_mid], POOL),
            op("AVERAGE_POOL_2D", [small_mid], [small_out], POOL),
        ]
    )
    model = write_model(big)
    delegate = delegate_for(model, device)
    delegate._engine.device.max_alloc_bytes = 4096
    with caplog.at_level(logging.WARNING, "delegate"):
        assert_runs_exactly(model, big, delegate)
    why = "arena of 6464 bytes: one buffer of this device holds at most 4096"
    assert refusals(delegate) == {0: why, 1: "excluded by exclude_ops"}
    assert delegate.partitions == [[2]]
    assert f"1 nodes go to the CPU: {why}" in caplog.messages


def test_failed_allocation_leaves_partition_to_cpu(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> cl.Buffer:
        code = cl.status_code.MEM_OBJECT_ALLOCATION_FAILURE
        raise opencl_error(cl.MemoryError, "clCreateBuffer", code)

    model = write_model(CHAIN)
    delegate = delegate_for(model, device)
    with monkeypatch.context() as patch:
        patch.setattr(cl, "Buffer", refuses)
        ours = interpreter(model, delegate)
    why = "allocating 0 KiB of memory: CL_MEM_OBJECT_ALLOCATION_FAILURE"
    assert refusals(delegate) == {0: why, 1: "excluded by exclude_ops", 2: why}
    inputs = inputs_for(CHAIN)[0]
    assert_equal_outputs(invoke(ours, inputs), invoke(interpreter(model), inputs))
    assert run_with(delegate, model, CHAIN, 0)
    assert delegate.partitions == [[0], [2]]


def test_device_loss_while_preparing_is_an_error(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object, **__: object) -> cl.Event:
        code = cl.status_code.OUT_OF_RESOURCES
        raise opencl_error(cl.RuntimeError, "enqueue_write_buffer", code)

    delegate = delegate_for(write_model(CHAIN), device)
    monkeypatch.setattr(cl, "enqueue_copy", lost)
    with pytest.raises(RuntimeError, match="allocating 0 KiB: CL_OUT_OF_RESOURCES"):
        interpreter(write_model(CHAIN), delegate)
    assert delegate.failure == "allocating 0 KiB: CL_OUT_OF_RESOURCES"


@slow
def test_device_with_little_memory_leaves_large_nodes_to_cpu(device: DeviceInfo) -> None:
    if "PoCL" not in device.platform_version:
        pytest.skip("only PoCL's memory can be limited from outside")
    code = """
import sys
from delegate import OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter
from tests.support.model import graph_of, op
from tests.support.nets import POOL, image
shape = (1, 4200, 4200, 8)
graph = graph_of([op("AVERAGE_POOL_2D", [image(*shape)], [image(*shape)], POOL),
                  op("AVERAGE_POOL_2D", [image()], [image()], POOL)])
model = write_model(graph)
small = OpenCLDelegate(model, int(sys.argv[1]))
made = interpreter(model, small)
print(small.verdicts[0][2], small.partitions)
"""
    # Both nodes are one partition, which is refused as a whole. They run in sequence or at once:
    # then the arena holds both small pictures.
    assert run_python(code, device.index, POCL_MEMORY_LIMIT="1") in [
        f"arena of {size} bytes: one buffer of this device holds at most 268435456 []\n"
        for size in (282240128, 282240192)
    ]


def test_node_whose_kernel_does_not_build_stays_on_cpu(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = sources.text_of

    def with_a_slip(file: str) -> str:
        return text(file) + ("\nthis is a slip;\n" if file == "add.cl" else "")

    monkeypatch.setattr(sources, "text_of", with_a_slip)
    model = write_model(THREE_PARTITIONS)
    delegate = delegate_for(model, device)
    with caplog.at_level(logging.WARNING, "delegate"):
        assert_runs_exactly(model, THREE_PARTITIONS, delegate)
    result = refusals(delegate)
    assert set(result) == {1, 2, 3, 5, 7}
    assert "kernel add.cl does not build (USES_ADD_QUANT8=1 ELEM=uchar)" in result[1]
    assert "error" in result[1]
    warnings = [message for message in caplog.messages if "does not build" in message]
    assert warnings
    assert len(set(warnings)) == len(warnings)  # once for each build
    for warning in warnings:
        assert "the driver's log:" in warning
        assert "unknown type name 'this'" in warning
    assert delegate.partitions == [[0], [4, 6]] or delegate.partitions == [[0], [4], [6]]
