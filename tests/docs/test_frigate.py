# SPDX-License-Identifier: Apache-2.0
"""docs/frigate/opencl_tfl.py in a fake Frigate, which has only the interface of detectors."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, NoDeviceError
from label_image import RunError
from tests.support.command import pooling_model
from tests.support.isolated import children, is_alive
from tests.support.model import t
from tests.support.process import ROOT
from tests.support.scenes import constant_model, detector
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite


class DetectionApi(ABC):
    """Frigate's interface of detectors. Source: frigate/detectors/detection_api.py"""

    type_key: str

    @abstractmethod
    def __init__(self, detector_config: Any) -> None:
        self.width, self.height = detector_config.model.width, detector_config.model.height

    @abstractmethod
    def detect_raw(self, tensor_input: NDArray[np.uint8]) -> NDArray[np.float32]: ...


class BaseDetectorConfig:
    """Fields with defaults, like pydantic's. Source: frigate/detectors/detector_config.py"""

    def __init__(self, **given: Any) -> None:
        for name, value in given.items():
            setattr(self, name, value)


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the detector's module, imported as Frigate imports plugins."""
    modules = {
        "frigate": {},
        "frigate.detectors": {},
        "frigate.detectors.detection_api": {"DetectionApi": DetectionApi},
        "frigate.detectors.detector_config": {"BaseDetectorConfig": BaseDetectorConfig},
    }
    for name, contents in modules.items():
        module = ModuleType(name)
        vars(module).update(contents)
        monkeypatch.setitem(sys.modules, name, module)
    path = ROOT / "docs" / "frigate" / "opencl_tfl.py"
    spec = importlib.util.spec_from_file_location("frigate.detectors.plugins.opencl_tfl", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def opened(
    plugin: ModuleType, path: Path, model: bytes, side: int, device: str, **fields: Any
) -> DetectionApi:
    """Return the detector that Frigate creates for this configuration."""
    path.write_bytes(model)
    kind = DetectionApi.__subclasses__()[-1]  # earlier tests' modules left others
    assert kind.type_key == plugin.DETECTOR_KEY == "opencl_tfl"
    of_model = SimpleNamespace(path=str(path), width=side, height=side, **fields)
    config = plugin.OpenCLDetectorConfig(type="opencl_tfl", device=device, model=of_model)
    result: DetectionApi = kind(config)
    return result


@slow
@needs_tflite
def test_ssd(plugin: ModuleType, device: DeviceInfo, tmp_path: Path) -> None:
    opened_detector = opened(plugin, tmp_path / "m.tflite", detector(), 4, str(device.index))
    pixels = np.zeros((1, 4, 4, 3), np.uint8)
    pixels[0, :, :2], pixels[0, :, 2:] = (51, 204, 102), (0, 51, 153)  # green and blue halves
    rows = opened_detector.detect_raw(pixels)
    assert (rows.shape, rows.dtype) == ((20, 6), np.float32)
    np.testing.assert_allclose(rows[0], [0, 0.8, 0, 0, 1, 0.5], atol=1e-6)
    np.testing.assert_allclose(rows[1], [1, 0.6, 0, 0.5, 1, 1], atol=1e-6)
    assert not rows[2:].any()


@slow
def test_crash_of_driver_loses_no_frame(
    plugin: ModuleType, device: DeviceInfo, tmp_path: Path
) -> None:
    side, heads = 64, np.zeros((1, 4 + 30, 84), np.float32)
    heads[0, :4, 0], heads[0, 4, 0] = np.array([6, 6, 8, 10]) / side, 0.9
    before = children()
    opened_detector = opened(
        plugin, tmp_path / "m.tflite", constant_model(heads), side, str(device.index)
    )
    frame = np.zeros((1, side, side, 3), np.uint8)
    rows = opened_detector.detect_raw(frame)
    (first,) = children() - before
    os.kill(first, signal.SIGKILL)
    np.testing.assert_array_equal(opened_detector.detect_raw(frame), rows)
    assert rows[0, 1] == np.float32(0.9)
    assert not is_alive(first)
    for _ in range(4):  # after three deaths the CPU detects
        for child in children() - before:
            os.kill(child, signal.SIGKILL)
        np.testing.assert_array_equal(opened_detector.detect_raw(frame), rows)
    assert not children() - before
    assert opened_detector._detect.device == "CPU"  # type: ignore[attr-defined]


class Word(Enum):
    """An enum value of Frigate's configuration."""

    NCHW = "nchw"
    HWCN = "hwcn"
    FLOAT = "float"


FORMATS = [
    ({"input_tensor": "nchw"}, lambda p: p.transpose(0, 3, 1, 2)),
    ({"input_tensor": "hwnc"}, lambda p: p.transpose(1, 2, 0, 3)),
    ({"input_tensor": Word.HWCN}, lambda p: p.transpose(1, 2, 3, 0)),
    ({"input_dtype": "float"}, lambda p: (p / 255).astype(np.float32)),
    ({"input_dtype": "float_denorm"}, lambda p: p.astype(np.float32)),
    ({"input_pixel_format": "bgr"}, lambda p: p[..., ::-1]),
    (
        {"input_tensor": Word.NCHW, "input_dtype": Word.FLOAT, "input_pixel_format": "bgr"},
        lambda p: (p[..., ::-1].transpose(0, 3, 1, 2) / 255).astype(np.float32),
    ),
]


@slow
@needs_tflite
@pytest.mark.parametrize(("fields", "given"), FORMATS)
def test_frame_formats_of_frigate(
    fields: dict[str, Any],
    given: Callable[[NDArray[Any]], NDArray[Any]],
    plugin: ModuleType,
    device: DeviceInfo,
    tmp_path: Path,
) -> None:
    opened_detector = opened(
        plugin, tmp_path / "m.tflite", detector(), 4, str(device.index), **fields
    )
    pixels = np.zeros((1, 4, 4, 3), np.uint8)
    pixels[0, :, :2], pixels[0, :, 2:] = (51, 204, 102), (0, 51, 153)
    rows = opened_detector.detect_raw(np.ascontiguousarray(given(pixels)))
    np.testing.assert_allclose(rows[0], [0, 0.8, 0, 0, 1, 0.5], atol=1e-6)
    np.testing.assert_allclose(rows[1], [1, 0.6, 0, 0.5, 1, 1], atol=1e-6)


@pytest.mark.parametrize(
    ("field", "word"),
    [("input_pixel_format", "yuv"), ("input_tensor", "chwn"), ("input_dtype", "half")],
)
def test_unknown_format_is_refused(
    field: str, word: str, plugin: ModuleType, tmp_path: Path
) -> None:
    with pytest.raises(plugin.FormatRefused, match=f"model.{field} is {word}: this detector takes"):
        opened(plugin, tmp_path / "m.tflite", detector(), 4, "0", **{field: word})


@slow
def test_yolo_with_more_objects_than_rows(
    plugin: ModuleType, device: DeviceInfo, tmp_path: Path
) -> None:
    side, count = 64, 84  # cells of strides 8, 16 and 32
    heads = np.zeros((1, 4 + 30, count), np.float32)
    for number in range(25):  # objects that do not overlap
        x, y = 6 + 12 * (number % 5), 6 + 12 * (number // 5)
        heads[0, :4, number] = np.array([x, y, 8, 10]) / side
        heads[0, 4 + number, number] = 0.95 - number / 100
    opened_detector = opened(
        plugin, tmp_path / "m.tflite", constant_model(heads), side, str(device.index)
    )
    rows = opened_detector.detect_raw(np.zeros((1, side, side, 3), np.uint8))
    assert rows[:, 0].tolist() == [*range(20)]
    np.testing.assert_allclose(rows[:, 1], 0.95 - np.arange(20) / 100, atol=1e-6)
    np.testing.assert_allclose(rows[0, 2:] * side, [1, 2, 11, 10], atol=1e-4)


@slow
def test_errors_are_explained(plugin: ModuleType, device: DeviceInfo, tmp_path: Path) -> None:
    with pytest.raises(NoDeviceError):
        opened(plugin, tmp_path / "m.tflite", detector(), 4, "no such device")
    classifier = pooling_model(t((1, 4, 4, 3), "uint8", 0.5, 0))
    with pytest.raises(RunError):
        opened(plugin, tmp_path / "m.tflite", classifier, 4, str(device.index))
