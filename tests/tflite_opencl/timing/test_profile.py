# SPDX-License-Identifier: Apache-2.0
"""Profiles: their parts add up, and their rows are the nodes on the device."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from delegate import DelegateError, DeviceInfo, OpenCLDelegate
from delegate.format.reader import read_model
from delegate.inspect import LaunchTime, infer, write_model
from tests.support.compare import interpreter, invoke
from tests.support.small_v2 import small_v2
from tests.support.tiers import slow
from tflite_opencl.conformance.cases.loops import recurrent
from tflite_opencl.oracle.values import input_sets
from tflite_opencl.timing.profile import Profile, profile_of, timed_runs
from tflite_opencl.timing.profile_text import profile_text, rate_words

GRAPH = small_v2()
MODEL = write_model(GRAPH)


def opened(device: DeviceInfo, **options: Any) -> tuple[OpenCLDelegate, Any]:
    """Return a delegate with separate launches, and its interpreter after a first run."""
    delegate = OpenCLDelegate(MODEL, device.index, tune="off", profiling=True, **options)
    interp = interpreter(MODEL, delegate)
    invoke(interp, input_sets(GRAPH)[0])
    return delegate, interp


def profiled(device: DeviceInfo, **options: Any) -> Profile:
    delegate, interp = opened(device, **options)
    return profile_of(delegate, infer(read_model(MODEL)), interp.invoke)


def test_parts_add_up_to_wall_time(device: DeviceInfo) -> None:
    profile = profiled(device)
    names = [name for name, _ in profile.parts]
    assert {"TFLite, and the nodes on the CPU", "Python", "upload", "download"} <= set(names)
    assert len(names) == len(set(names))
    assert sum(part for _, part in profile.parts) == pytest.approx(profile.wall, rel=0.01)
    # The clocks of device and host may differ a little.
    assert all(part > -0.05 * profile.wall for _, part in profile.parts)
    assert profile.launches == 13
    assert (profile.up_bytes, profile.down_bytes) == (32 * 32 * 3, 21)


def test_rows_have_nodes_and_work(device: DeviceInfo) -> None:
    profile = profiled(device)
    rows = {row.node: row for row in profile.rows}
    # RESHAPE has no launch, and the ADD's kernel also computes its convolution.
    assert [*rows] == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 14]
    assert rows[0].shape == "1x32x32x3 -> 1x16x16x16"
    assert rows[0].multiply_adds == 16 * 16 * 16 * 3 * 3 * 3
    assert rows[1].multiply_adds == 16 * 16 * 16 * 3 * 3
    assert rows[9].op == "conv_2d_add"
    assert rows[9].shape == "1x8x8x96 -> 1x8x8x24"
    assert rows[9].multiply_adds == 8 * 8 * 24 * 96
    assert rows[9].bytes == 8 * 8 * (96 + 24 + 24) + 24 * 96 + 4 * 24
    assert rows[11].multiply_adds is None
    assert all(row.microseconds > 0 for row in profile.rows)
    assert all((row.gap is not None) == profile.has_timers for row in profile.rows)
    assert all("/" in row.sizes and row.kernels for row in profile.rows)


def test_device_without_timers(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = OpenCLDelegate.profile

    def idle(self: OpenCLDelegate) -> list[LaunchTime]:
        return [replace(each, microseconds=0.0) for each in profile(self)]

    monkeypatch.setattr(OpenCLDelegate, "profile", idle)
    result = profiled(device)
    assert not result.has_timers
    assert all(row.microseconds > 0 and row.gap is None for row in result.rows)
    assert "kernels, launch overhead and the wait" in dict(result.parts)
    assert sum(part for _, part in result.parts) == pytest.approx(result.wall, rel=0.01)
    assert "The device's timers do not count the work." in profile_text(result, 160)


def test_partitions_are_merged(device: DeviceInfo) -> None:
    options = {"exclude_ops": ["AVERAGE_POOL_2D"], "min_nodes_per_partition": 1}
    delegate, interp = opened(device, **options)
    (run,) = timed_runs(delegate, interp.invoke, 1)
    first, second = run.partitions
    assert run.begun <= first.called <= first.returned <= second.called <= run.ended
    for each in run.partitions:
        marks = (each.called, each.begun, each.uploaded, each.enqueued, each.computed)
        assert list(marks) == sorted(marks)
        assert len(each.calls) == len(each.launches)
    profile = profile_of(delegate, infer(read_model(MODEL)), interp.invoke)
    assert 11 not in {row.node for row in profile.rows}
    assert sum(part for _, part in profile.parts) == pytest.approx(profile.wall, rel=0.01)


def test_profiled_runs_are_right(device: DeviceInfo) -> None:
    delegate, interp = opened(device)
    detail = interp.get_output_details()[0]
    usual = interp.get_tensor(detail["index"]).tobytes()
    interp.set_tensor(detail["index"], interp.get_tensor(detail["index"]) * 0)
    timed_runs(delegate, interp.invoke, 1)
    assert interp.get_tensor(detail["index"]).tobytes() == usual


def test_profile_requires_separate_launches(device: DeviceInfo) -> None:
    delegate = OpenCLDelegate(MODEL, device.index, tune="off")
    interp = interpreter(MODEL, delegate)
    with pytest.raises(DelegateError, match="profiling=True"):
        delegate.timed_runs(interp.invoke)


def test_text_has_two_orders_and_widths(device: DeviceInfo) -> None:
    profile = profiled(device)

    def order(text: str) -> list[int]:
        return [int(node) for node in re.findall(r"^ +(\d+) {3}[A-Za-z]", text, re.MULTILINE)]

    assert order(profile_text(profile, 160)) == [row.node for row in profile.rows]
    longest = sorted(profile.rows, key=lambda row: -row.microseconds)
    assert order(profile_text(profile, 160, by_time=True)) == [row.node for row in longest]
    narrow = profile_text(profile, 80)
    assert "A terminal of 140 columns" in narrow
    assert max(map(len, narrow.splitlines())) <= 80
    assert " all of it " in narrow


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0"), (1234, "0.0123"), (78_660_000, "787"), (99_960_000, "1000"), (110_400_000, "1104")],
)
def test_format_of_rates(count: int, words: str) -> None:
    assert rate_words(count, 100.0) == words
    assert rate_words(count, 0.0) == ""


@slow
def test_kernels_are_named_once(device: DeviceInfo) -> None:
    graph = recurrent("gru", 5, 3, 4)
    model = write_model(graph)
    delegate = OpenCLDelegate(
        model, device.index, tune="off", profiling=True, min_nodes_per_partition=1
    )
    interp = interpreter(model, delegate)
    invoke(interp, input_sets(graph)[0])
    profile = profile_of(delegate, graph, interp.invoke)
    (row,) = profile.rows
    assert row.op == "WHILE"
    kernels = row.kernels.split(", ")
    assert len(kernels) == profile.launches > 40
    text = profile_text(profile, 200)
    assert f"5 x gather, {kernels.count('conv_2d_1x1_float')} x conv_2d_1x1_float" in text
    assert text.count("conv_2d_1x1_float") == 1
