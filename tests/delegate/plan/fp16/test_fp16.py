# SPDX-License-Identifier: Apache-2.0
"""Precision fp16: which tensors are fp16, the error, and what stays exact."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, Model, OpenCLDelegate, Options
from delegate.graph.partition import partition_of
from delegate.guard.probing.probe import examine
from delegate.inspect import Graph, halves_bound, write_model
from delegate.isa import FP16, FP16_STORAGE
from delegate.plan.fp16.fp16 import KERNELS
from delegate.plan.lowering.compiler import compile_partition, rewritten
from delegate.plan.sources import files, text_of
from delegate.target import Target
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.model import const, graph_of, op, t
from tests.support.nets import conv_pool
from tests.support.tiers import slow
from tflite_opencl.oracle.oracle import oracle

CONV = {
    **{"padding": "SAME", "stride_w": 1, "stride_h": 1},
    **{"dilation_w_factor": 1, "dilation_h_factor": 1},
}
RELU = {"fused_activation_function": "RELU"}


def network(channels: int = 8) -> Graph:
    """Return a network with nodes that support fp16, that move values, and that need float32."""
    rng = np.random.default_rng(5)

    def weights(*shape: int) -> NDArray[np.float32]:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    x, c = t((1, 8, 6, 3)), channels
    first, deep, joined, total = (t((1, 8, 6, c)) for _ in range(4))
    padded, pooled, wave, flat, shares = (
        t((1, 9, 8, c)), t((1, 4, 4, c)), t((1, 4, 4, c)), t((1, 16 * c)), t((1, 16 * c)),
    )  # fmt: skip
    places = const(np.array([[0, 0], [0, 1], [1, 1], [0, 0]], np.int32))
    depthwise = const(rng.standard_normal((1, 3, 3, c)).astype(np.float32) / 3)
    nodes = [
        op("CONV_2D", [x, const(weights(c, 3, 3, 3)), const(weights(c))], [first], CONV | RELU),
        op(
            "DEPTHWISE_CONV_2D", [first, depthwise, const(weights(c))], [deep],
            {**CONV, **RELU, "depth_multiplier": 1},
        ),
        op("CONV_2D", [deep, const(weights(c, 1, 1, c)), const(weights(c))], [joined], CONV),
        op("ADD", [joined, first], [total]),
        op("PAD", [total, places], [padded]),
        op(
            "MAX_POOL_2D", [padded], [pooled],
            {"padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2,
             "filter_height": 3},
        ),
        op("SIN", [pooled], [wave]),
        op("RESHAPE", [wave], [flat], {"new_shape": [1, 16 * c]}),
        op("SOFTMAX", [flat], [shares], {"beta": 1.0}),
    ]  # fmt: skip
    return graph_of(nodes, [x], [shares, total])


def target(*isa: str) -> Target:
    return Target(device_type="gpu", isa=frozenset(isa))


def test_which_tensors_are_fp16() -> None:
    graph = network()
    partition = partition_of(graph, range(len(graph.nodes)))
    device = target(FP16_STORAGE)
    result = rewritten(partition, device, lambda _: None, (), allows_fp16=True)
    # SIN needs float32, because the sine of a rounded angle may be anything. Moves of float32 stay
    # float32, and SOFTMAX returns to fp16. Outputs are float32.
    assert [node.op for node in result.nodes] == [
        *("to_halves", "CONV_2D", "DEPTHWISE_CONV_2D", "CONV_2D", "ADD", "PAD", "MAX_POOL_2D"),
        *("to_floats", "SIN", "RESHAPE", "to_halves", "SOFTMAX", "to_floats", "to_floats"),
    ]
    assert (result.inputs, result.outputs) == (partition.inputs, partition.outputs)
    program = compile_partition(result, device, lambda _, ways: ways[0])
    dtypes = {tensor.dtype for launch in program.launches for tensor in launch.writes}
    assert dtypes == {"float16", "float32"}
    assert rewritten(partition, device, lambda _: None, ()) is partition
    assert rewritten(partition, target(), lambda _: None, (), allows_fp16=True) is partition


@pytest.mark.parametrize("channels", [5, 8, 16])
@pytest.mark.parametrize("arithmetic", [True, False], ids=["fp16", "stored"])
def test_outputs_are_near_reference(device: DeviceInfo, channels: int, arithmetic: bool) -> None:
    proven = examine(device).isa
    if not {FP16_STORAGE, *([FP16] if arithmetic else [])} <= {*proven}:
        pytest.skip(f"{device.name} has not proven it")
    graph = network(channels)
    inputs = [np.random.default_rng(6).standard_normal((1, 8, 6, 3)).astype(np.float32)]
    known = oracle(RUNTIME, graph, write_model(graph), [inputs])
    without = () if arithmetic else (FP16,)
    halves, floats = (
        Model(graph, device.index, exclude_isa=without, precision=p) for p in ("fp16", "fp32")
    )
    result, exact = halves.run(inputs), floats.run(inputs)
    for ours, theirs, own in zip(result, known.outputs[0], exact, strict=True):
        # No bound is known for a chain of three sums, but for one with as many terms.
        bound = halves_bound(np.abs(theirs) * 2.0**-19 + 2.0**-19, theirs)
        assert (np.abs(ours - theirs) <= bound).all()
        assert not np.array_equal(ours, own)  # they were halves


def test_integers_stay_exact(device: DeviceInfo) -> None:
    graph = conv_pool()
    inputs = [np.random.default_rng(7).integers(0, 256, graph.inputs[0].shape).astype(np.uint8)]
    known = oracle(RUNTIME, graph, write_model(graph), [inputs])
    for ours, theirs in zip(
        Model(graph, device.index, precision="fp16").run(inputs), known.outputs[0], strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


@slow
def test_device_without_fp16_uses_float32(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = [np.random.default_rng(8).standard_normal((1, 8, 6, 3)).astype(np.float32)]
    result, exact = (
        Model(network(), device.index, exclude_isa=(FP16_STORAGE,), precision=p).run(inputs)
        for p in ("fp16", "fp32")
    )
    for ours, own in zip(result, exact, strict=True):
        np.testing.assert_array_equal(ours, own)
    if FP16_STORAGE in examine(device).isa:
        assert "stays float32" in caplog.text


def test_kernels_with_macro_halves_support_fp16() -> None:
    has_stored = re.compile(r"STORED_(FLOAT|ELEM|ALPHA)|IN_MEMORY")
    owners = {
        kernel: path.stem
        for path in files().values()
        if path.suffix == ".cl"
        for kernel in re.findall(r"^KERNEL\((\w+)\)$", path.read_text(), re.MULTILINE)
    }
    for kernel in KERNELS:
        assert has_stored.search(text_of(f"{owners[kernel]}.cl")), kernel


def beyond() -> tuple[Graph, NDArray[np.float32]]:
    """Return a graph with a convolution whose results overflow fp16, and its input."""
    x, sums, y = t((1, 8, 8, 64)), t((1, 8, 8, 4)), t((1, 8, 8, 4))
    weights = np.random.default_rng(9).uniform(0.5, 1.5, (4, 3, 3, 64)).astype(np.float32)
    bias = const(np.zeros(4, np.float32))
    nodes = [
        op("CONV_2D", [x, const(weights), bias], [sums], CONV),
        op("MUL", [sums, const(np.array(1e-3, np.float32))], [y]),
    ]
    pixels = np.random.default_rng(10).uniform(100, 255, (1, 8, 8, 64)).astype(np.float32)
    return graph_of(nodes, [x]), pixels


@slow
def test_overflow_continues_in_float32(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture
) -> None:
    if FP16_STORAGE not in examine(device).isa:
        pytest.skip(f"{device.name} has not proven it")
    graph, pixels = beyond()
    with Model(graph, device.index, tune="off") as model:
        (expected,) = model.run(pixels)
    with Model(graph, device.index, tune="off", precision="fp16") as model:
        runs = [model.run(pixels)[0], model.run_async(pixels).result()[0], model.run(pixels)[0]]
    for result in runs:
        np.testing.assert_allclose(result, expected, rtol=1e-5)
    assert caplog.text.count("runs in float32 from now on") == 1
    caplog.clear()
    delegate = OpenCLDelegate(device=device.index, tune="off", precision="fp16")
    interp = interpreter(write_model(graph), delegate)
    for _ in range(2):
        np.testing.assert_allclose(invoke(interp, [pixels])[0], expected, rtol=1e-5)
    assert caplog.text.count("runs in float32 from now on") == 1
    del interp
    delegate.close()


def test_overflow_with_several_slots(device: DeviceInfo) -> None:
    if FP16_STORAGE not in examine(device).isa:
        pytest.skip(f"{device.name} has not proven it")
    graph, pixels = beyond()
    with Model(graph, device.index, 2, tune="off", precision="fp16") as model:
        both = np.concatenate([pixels, pixels / 2])
        runs = [model.run_async(both) for _ in range(3)] + [model.run_async(pixels)]
        results = [run.result()[0] for run in runs]
    assert [len(each) for each in results] == [2, 2, 2, 1]
    for each in results:
        np.testing.assert_allclose(each[0], results[0][0], rtol=1e-5)
        assert np.isfinite(each).all()


def test_invalid_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="precision='half': one of fp32, fp16, ieee"):
        Options(precision="half")
