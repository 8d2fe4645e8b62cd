# SPDX-License-Identifier: Apache-2.0
"""Times of frames, and what the processors did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from label_image.video import load
from label_image.video.load import Latencies, Loads, Parts, Span, ThreadTimes


def test_quantiles_of_many_frames_are_within_two_percent() -> None:
    latencies = Latencies()
    assert latencies.quantile(0.5) is None
    spent = np.random.default_rng(1).lognormal(2, 0.7, 5000)
    for each in spent:
        latencies.add(float(each))
    for part in (0.01, 0.5, 0.99, 1.0):
        exact = np.quantile(spent, part, method="inverted_cdf")
        got = latencies.quantile(part)
        assert got is not None
        assert exact <= got * 1.0001 <= exact * 1.0202


def test_memory_does_not_grow_with_the_frames() -> None:
    latencies = Latencies()
    for exponent in range(100_000):
        latencies.add(10 ** (exponent % 900 / 100 - 3))  # a microsecond to eleven days
    assert len(latencies._counts) < 1000


def test_a_span_counts_what_came_since() -> None:
    parts = Parts(decoded=5, classified=3, dropped=2)
    span = Span(parts)
    parts.decoded, parts.classified, parts.dropped = 9, 6, 3
    parts.decoding_s = 1e9  # more than there was
    assert span.counts(parts) == (4, 3, 1)
    loads = span.loads(parts)
    assert loads.decoding > 1
    assert loads.inference == 0


def test_a_gpu_is_named_where_a_driver_tells_its_load() -> None:
    assert "GPU" not in load.loads_text(Loads(0, 0, 0, 0, None))
    assert load.loads_text(Loads(0.1, 0.2, 0.5, 0.3, 0.25)) == (
        "CPU: decoding 0.10, preparing 0.20, inference 0.50, showing 0.30, GPU 0.25"
    )


def test_ffmpeg_s_threads_count_after_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task, name in (("1", "python"), ("2", "av:h264:df0"), ("3", "av:h264:df1")):
        (tmp_path / task).mkdir()
        (tmp_path / task / "comm").write_text(f"{name}\n")
        (tmp_path / task / "schedstat").write_text("1500000000 2 3\n")
    monkeypatch.setattr(load, "_TASKS", tmp_path)
    times = ThreadTimes()
    assert times.look() == 3.0
    (tmp_path / "3" / "comm").unlink()
    assert times.look() == 3.0
