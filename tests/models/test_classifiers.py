# SPDX-License-Identifier: Apache-2.0
"""Real quantised classifiers: every node on the device, every output exact."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import read_model, write_model
from tests.support.compare import Arrays, interpreter, invoke, refusals
from tests.support.nets import assert_equal_outputs
from tests.support.shared import model_path, picture_path, picture_paths
from tests.support.tiers import slow
from tflite_opencl.pictures.image import load_picture, to_input

pytestmark = pytest.mark.model

CLASSIFIERS = [
    "mobilenet_v1_0.25_128_quant",
    "mobilenet_v1_0.75_192_quant",
    "mobilenet_v1_1.0_224_quant",
    "mobilenet_v2_1.0_224_quant",
    "tf2_mobilenet_v2_1.0_224_ptq",
    "pretrainedResnet_quant",
    "vww_96_int8",
    "kws_ref_model",
]
# Of each kind, the model with the most alternatives is tuned, also for the persistent
# launch; the others run lowering's first choices, which only need compilation.
TUNED = {"mobilenet_v2_1.0_224_quant", "pretrainedResnet_quant", "kws_ref_model"}


@cache
def cases(name: str) -> list[tuple[str, NDArray[Any], Arrays]]:
    """Return (description, input, reference outputs): pictures and random values."""
    path = model_path(name)
    (tensor,) = read_model(path).inputs
    rng = np.random.default_rng(7)
    limits = np.iinfo(tensor.dtype)
    inputs = {
        Path(picture).name: to_input(load_picture(picture), tensor.shape, tensor.dtype)
        for picture in [*picture_paths(2), picture_path("grace_hopper_517x606.bmp")]
    }
    inputs["random"] = rng.integers(
        limits.min, limits.max, tensor.shape, tensor.dtype, endpoint=True
    )
    reference = interpreter(path)
    return [(what, values, invoke(reference, [values])) for what, values in inputs.items()]


@slow
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifier_is_exact_and_fully_delegated(device: DeviceInfo, name: str) -> None:
    path = model_path(name)
    delegate = OpenCLDelegate(path, device.index, tune="quick" if name in TUNED else "off")
    ours = interpreter(path, delegate)
    count = len(read_model(path).nodes)
    assert refusals(delegate) == {}
    assert [sorted(group) for group in delegate.partitions] == [list(range(count))]
    seen = set()
    for what, values, expected in cases(name):
        got = invoke(ours, [values])
        assert_equal_outputs(got, expected, what)
        seen.add(got[0].tobytes())
    assert len(seen) > 1, "all outputs are alike: nothing was compared"


@slow
def test_first_rows_of_mobilenet_v1(device: DeviceInfo) -> None:
    path = model_path("mobilenet_v1_1.0_224_quant")
    picture = to_input(
        load_picture(picture_path("grace_hopper_517x606.bmp")), (1, 224, 224, 3), "uint8"
    )
    (scores,) = invoke(interpreter(path, OpenCLDelegate(path, device.index)), [picture])
    # The last two are equal to others, too: label_image's order has other tests.
    assert {row: int(scores[0, row]) for row in (653, 907, 458, 835, 668)} == {
        653: 198,  # / 255 = 0.776471
        907: 27,
        458: 3,
        835: 2,
        668: 2,
    }
    assert np.sort(scores[0])[-5:].tolist() == [2, 2, 3, 27, 198]


@pytest.mark.parametrize("name", ["mobilenet_v1_0.25_128_quant", "pretrainedResnet_quant"])
def test_every_inner_tensor_is_exact(device: DeviceInfo, name: str) -> None:
    graph = read_model(model_path(name))
    computed = tuple(tensor for node in graph.nodes for tensor in node.outputs)
    model = write_model(dataclasses.replace(graph, outputs=computed))
    delegate = OpenCLDelegate(model, device.index, tune="off")
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    for what, values, _ in cases(name)[-2:]:
        got, expected = invoke(ours, [values]), invoke(reference, [values])
        assert len(got) == len(graph.nodes)
        assert_equal_outputs(got, expected, what)
