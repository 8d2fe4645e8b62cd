# SPDX-License-Identifier: Apache-2.0
"""Detectors with random weights: every node on the device, and TFLite's results.

YOLO runs at 128 instead of 640 pixels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate
from delegate.inspect import write_model
from tests.support.compare import interpreter, invoke, refusals
from tests.support.detectors import blazeface, efficientdet_lite0
from tests.support.nets import assert_equal_outputs
from tests.support.tiers import slow
from tests.support.verifying import checked, where_all_is_kept
from tests.support.yolo import yolo

pytestmark = pytest.mark.model

YOLOS = {f"yolo{version}": yolo(version, 128) for version in (8, 11)}


@slow
@pytest.mark.parametrize("name", [*YOLOS, "efficientdet_lite0"])
def test_detector_is_exact(name: str, device: DeviceInfo) -> None:
    graph = YOLOS[name] if name in YOLOS else efficientdet_lite0()
    model = write_model(graph)
    delegate = OpenCLDelegate(model, device.index, tune="off")
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    assert [sorted(group) for group in delegate.partitions] == [list(range(len(graph.nodes)))]
    (picture,) = graph.inputs
    rng = np.random.default_rng(1)
    for number in range(2):
        values = rng.random(picture.shape)
        if picture.dtype == "uint8":
            values *= 255
        inputs = [values.astype(picture.dtype)]
        got, expected = invoke(ours, inputs), invoke(reference, inputs)
        assert_equal_outputs(got, expected, f"picture {number}")
        assert len(np.unique(expected[0])) > 50, "nothing was compared"


@slow
@where_all_is_kept
def test_blazeface_is_within_bound(device: DeviceInfo, tmp_path: Path) -> None:
    graph = blazeface()
    picture = np.random.default_rng(1).uniform(-1, 1, graph.inputs[0].shape)
    result = checked(graph, [picture.astype(np.float32)], device, tmp_path)
    assert all(verdict.is_taken for verdict in result.verdicts)
