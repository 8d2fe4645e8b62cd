# SPDX-License-Identifier: Apache-2.0
"""Both loops classify every frame of one video, and report the same figures."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from benchmarks import video, video_peer
from benchmarks.measure import Skipped
from tests.support.model import chain_model, op, t
from tests.support.tiers import slow

av = pytest.importorskip("av", reason="PyAV, the extra [video], is not installed")
POOL = {"padding": "VALID", "stride_w": 8, "stride_h": 8, "filter_width": 8, "filter_height": 8}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "pool.tflite"
    ends = [[t((1, 8, 8, 3), "uint8", 0.5, 3)], [t((1, 1, 1, 3), "uint8", 0.5, 3)]]
    path.write_bytes(chain_model([op("AVERAGE_POOL_2D", *ends, POOL)]))
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.mp4"
    video.write(path, 5)
    return path


def opencv(source: Path, shown: list[NDArray[Any]]) -> SimpleNamespace:
    """Return a fake OpenCV, made from PyAV and Pillow."""

    def capture(path: str) -> SimpleNamespace:
        container = av.open(path)
        frames = (frame.to_ndarray(format="bgr24") for frame in container.decode(video=0))

        def read() -> tuple[bool, Any]:
            frame = next(frames, None)
            return frame is not None, frame

        return SimpleNamespace(read=read)

    def resize(frame: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
        shown.append(frame)
        return np.asarray(Image.fromarray(frame).resize(size))

    def turned(frame: NDArray[np.uint8], _: object) -> NDArray[np.uint8]:
        return np.ascontiguousarray(frame[..., ::-1])

    return SimpleNamespace(VideoCapture=capture, resize=resize, cvtColor=turned, COLOR_BGR2RGB=4)


@slow
def test_label_image_classifies_every_frame(model: Path, source: Path) -> None:
    document = video.told(video.ours(model, source, 1))
    assert document["video"]["decoded"] == document["classified"] == 5
    rate, cores, median, p99 = video.figures(document)
    assert rate > 0
    assert cores > 0
    assert 0 < median <= p99


def test_peer_classifies_every_frame(
    model: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[NDArray[Any]] = []
    monkeypatch.setitem(sys.modules, "cv2", opencv(source, shown))
    document = video_peer.classified(str(model), str(source), 1)
    rate, cores, median, p99 = video.figures(document)
    assert [frame.shape for frame in shown] == [(video.HEIGHT, video.WIDTH, 3)] * 5
    assert not np.array_equal(shown[0], shown[4])
    assert rate > 0
    assert cores > 0
    assert 0 < median <= p99


@slow
def test_failed_process_is_one_line(model: Path, tmp_path: Path) -> None:
    with pytest.raises(Skipped, match=r"ended with 255: ERROR: .*none\.mp4"):
        video.told(video.ours(model, tmp_path / "none.mp4", 1))
