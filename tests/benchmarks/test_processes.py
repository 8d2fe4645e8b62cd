# SPDX-License-Identifier: Apache-2.0
"""Figures of whole processes, with fake answers of real commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from benchmarks import processes
from benchmarks.network import one_pool
from benchmarks.rows import ROWS
from benchmarks.setup import Setup
from delegate import DeviceInfo
from label_image import flags
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.timing.machine import peak_bytes
from tflite_opencl.timing.timing import Times


@pytest.fixture
def setup(tmp_path: Path, device: DeviceInfo) -> Setup:
    """No official models, this device."""
    return Setup(find_runtime(), tmp_path, str(device.index), runs=2, models=tmp_path)


def test_wall_times(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    caches: set[str] = set()

    def seconds(command: Sequence[str], cache: str) -> float:
        assert command[:2] == ("-m", "label_image") or command[:2] == ["-m", "label_image"]
        settings = flags.parse(command[2:])
        assert (settings.count, settings.warnings) == (1, ())
        assert all(Path(path).is_file() for path in (settings.image, settings.labels or ""))
        if not settings.use_gpu:
            return 0.25
        assert not settings.compare
        assert settings.device == setup.device
        is_first = cache not in caches
        caches.add(cache)
        return 5.0 if is_first else 0.75

    def timed(command: Sequence[str], cache: str) -> Times:
        return Times(*[seconds(command, cache) * 1e3] * 4, cpu_load=1)

    monkeypatch.setattr(processes, "_timed", timed)
    monkeypatch.setattr(processes, "_settle", seconds)
    result = ROWS["process"].result(setup)
    first, more = result.figures
    assert (first.value, more.value) == (5.0, 0.5)
    assert len(caches) == 3  # cold ones, and one warm-up
    assert result.paths["CPU alone"].ratio == 3
    assert "needs" in first.not_judged or "PoCL" in first.not_judged


def test_memory(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    megabytes = {
        ("cpu", "v1"): 50, ("opencl", "v1"): 290, ("opencl", "small"): 270, ("modules", "small"): 60
    }  # fmt: skip

    def output(command: Sequence[str], environment: Mapping[str, str]) -> str:
        assert environment["TFLITE_OPENCL_CACHE"]
        _, module, what, model, _, *device = command
        assert module == "benchmarks.peak"
        assert device == ([str(setup.device)] if what == "opencl" else [])
        name = "small" if Path(model).stem == "small" else "v1"
        return f"{megabytes[what, name] * 1_000_000}\n"

    monkeypatch.setattr(processes, "output", output)
    (figure,) = ROWS["memory"].result(setup).figures
    assert figure.value == pytest.approx(290 - 50 - (270 - 60))


def test_peak_memory_of_process(setup: Setup) -> None:
    command = ["-m", "benchmarks.peak", "modules", setup.written("small", one_pool()), "1"]
    assert 10e6 < int(processes.output(command, {})) < 1e9
    assert 10e6 < peak_bytes() < 100e9


def test_failed_process(setup: Setup) -> None:
    with pytest.raises(RuntimeError, match=r"-m benchmarks\.peak ended with 1"):
        processes.output(["-m", "benchmarks.peak", "cpu", "no model", "1"], {})
