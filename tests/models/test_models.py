# SPDX-License-Identifier: Apache-2.0
"""Other real models: segmentation, key points, keywords, machine sounds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import Tensor, read_model
from tests.support.compare import Arrays, interpreter, invoke, oracle, refusals
from tests.support.nets import assert_equal_outputs
from tests.support.shared import model_path, picture_path
from tests.support.tiers import slow
from tflite_opencl.pictures.image import load_picture, to_input

pytestmark = pytest.mark.model

# Quantised models: every node on the device, and bit-exact.
WHOLE = [
    "ad01_int8",
    "deeplabv3_mnv2_pascal_quant",
    "ds_cnn_s_quantized_int16",
    "mbnet128_0.25_q",
    "split_concat",
]
# These are tuned; the others run lowering's first choices.
TUNED = {"deeplabv3_mnv2_pascal_quant"}
MOVENET = "movenet_single_pose_lightning_ptq"


def inputs_of(tensors: tuple[Tensor, ...]) -> list[Arrays]:
    """Return a set of random inputs, and one of a picture if the model has a picture input."""
    rng = np.random.default_rng(7)
    drawn: Arrays = []
    for tensor in tensors:
        if tensor.dtype == "float32":
            drawn.append(rng.standard_normal(tensor.shape).astype(np.float32))
        else:
            limits = np.iinfo(tensor.dtype)
            drawn.append(
                rng.integers(limits.min, limits.max, tensor.shape, tensor.dtype, endpoint=True)
            )
    (first, *_) = tensors
    if len(first.shape) == 4 and first.shape[3] == 3 and len(tensors) == 1:
        picture = load_picture(picture_path("grace_hopper_517x606.bmp"))
        return [drawn, [to_input(picture, first.shape, first.dtype)]]
    return [drawn]


@pytest.mark.parametrize("name", WHOLE)
def test_model_is_exact_and_fully_delegated(device: DeviceInfo, name: str) -> None:
    path = model_path(name)
    graph = read_model(path)
    cpu_kernels = oracle(path)
    delegate = OpenCLDelegate(path, device.index, tune="quick" if name in TUNED else "off")
    ours = interpreter(path, delegate, cpu_kernels)
    reference = interpreter(path, cpu_kernels=cpu_kernels)
    assert refusals(delegate) == {}
    assert [sorted(group) for group in delegate.partitions] == [list(range(len(graph.nodes)))]
    for number, inputs in enumerate(inputs_of(graph.inputs)):
        got, expected = invoke(ours, inputs), invoke(reference, inputs)
        assert_equal_outputs(got, expected, f"input {number}")
        assert any(len(np.unique(values)) > 1 for values in expected), "nothing was compared"


@slow
def test_movenet_is_mostly_delegated(device: DeviceInfo) -> None:
    path = model_path(MOVENET)
    graph = read_model(path)
    cpu_kernels = oracle(path)
    delegate = OpenCLDelegate(path, device.index)
    ours = interpreter(path, delegate, cpu_kernels)
    reference = interpreter(path, cpu_kernels=cpu_kernels)
    left = Counter(refusals(delegate).values())
    assert left.total() <= 0.02 * len(graph.nodes), left
    for inputs in inputs_of(graph.inputs):
        (got,), (expected,) = invoke(ours, inputs), invoke(reference, inputs)
        # Key points: y, x and score of each; the quantised layers before them are exact.
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6)
        assert np.ptp(expected) > 0.01


def test_model_with_unknown_op_delegates_nothing(device: DeviceInfo) -> None:
    path = model_path("model_invoking_error")
    delegate = OpenCLDelegate(path, device.index)
    with pytest.raises(RuntimeError, match="fake-op-double"):
        interpreter(path, delegate)
    assert delegate.partitions == []
