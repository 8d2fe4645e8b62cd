# SPDX-License-Identifier: Apache-2.0
"""GPU time of a process from DRM's fdinfo files, as real kernels write them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tflite_opencl.timing import drm
from tflite_opencl.timing.drm import Usage, usage
from tflite_opencl.timing.timing import Stopwatch

PLAIN = "pos:\t0\nflags:\t02100002\nmnt_id:\t24\n"
# Each driver's format, with invented numbers.
V3D = """drm-driver:\tv3d
drm-client-id:\t7
drm-engine-bin:\t0 ns
v3d-jobs-bin:\t0 jobs
drm-engine-csd:\t1500000000 ns
v3d-jobs-csd:\t31 jobs
drm-total-memory:\t8 MiB
"""
MSM = """drm-driver:\tmsm
drm-client-id:\t3
drm-engine-gpu:\t250000000 ns
drm-cycles-gpu:\t177500000
drm-maxfreq-gpu:\t710000000 Hz
drm-total-memory:\t512 KiB
"""
I915 = """drm-driver:\ti915
drm-client-id:\t3
drm-pdev:\t0000:00:02.0
drm-engine-render:\t500000000 ns
drm-engine-capacity-video:\t2
drm-total-system0:\t4096
"""
NO_TIMES = "drm-driver:\tpanfrost\ndrm-client-id:\t1\ndrm-total-memory:\t1 MiB\n"


@pytest.fixture
def fdinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fake fdinfo folder, with the handle of an ordinary file."""
    monkeypatch.setattr(drm, "FDINFO", tmp_path)
    (tmp_path / "0").write_text(PLAIN)
    return tmp_path


def test_no_gpu(fdinfo: Path) -> None:
    assert usage() == Usage(0, None)


@pytest.mark.parametrize(
    ("info", "found"),
    [
        (V3D, Usage(8 << 20, 1.5)),
        (MSM, Usage(512 << 10, 0.25)),
        (I915, Usage(4096, 0.5)),
        (NO_TIMES, Usage(1 << 20, None)),
    ],
)
def test_each_driver(info: str, found: Usage, fdinfo: Path) -> None:
    (fdinfo / "5").write_text(PLAIN + info)
    (fdinfo / "6").write_text(PLAIN + info)  # a duplicate of the handle
    assert usage() == found


def test_gpus_are_added(fdinfo: Path) -> None:
    for number, info in enumerate((V3D, MSM, I915, NO_TIMES), start=3):
        (fdinfo / str(number)).write_text(PLAIN + info)
    assert usage() == Usage((9 << 20) + (512 << 10) + 4096, 2.25)


def test_gpu_load_of_timed_run(fdinfo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wall_s = 10.0
    monkeypatch.setattr(time, "perf_counter", lambda: wall_s)
    (fdinfo / "3").write_text(PLAIN + MSM)

    def run() -> None:
        nonlocal wall_s
        wall_s += 0.5
        (fdinfo / "3").write_text(PLAIN + MSM.replace("250000000", "600000000"))

    stopwatch = Stopwatch()
    stopwatch.measure(run, count=1, warmup=0)
    assert stopwatch.times.gpu_load == pytest.approx(0.7)
    (fdinfo / "3").write_text(PLAIN + NO_TIMES)
    stopwatch = Stopwatch()
    stopwatch.measure(lambda: None, count=1, warmup=0)
    assert stopwatch.times.gpu_load is None
