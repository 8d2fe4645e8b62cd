# SPDX-License-Identifier: Apache-2.0
"""Dot products are used only if the device reports them as accelerated."""

from __future__ import annotations

import ctypes as C
from types import SimpleNamespace

import pyopencl as cl
import pytest

from delegate import DeviceInfo
from delegate.guard.probing.self_tests import feature_test
from delegate.isa import BY_NAME
from delegate.run import dot_products
from delegate.run.device import Device
from delegate.run.dot_products import is_accelerated


@pytest.fixture
def device_answer(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The device's answer: a status and six flags."""
    answer: dict[str, object] = {"status": 0, "truths": [0] * 6}

    def info(device: int, name: int, size: int, value: C.Array[C.c_uint32], used: None) -> object:
        assert (name, size) == (0x1075, 24)
        value[:] = answer["truths"]  # type: ignore[assignment]
        return answer["status"]

    monkeypatch.setattr(dot_products.C, "CDLL", lambda _: SimpleNamespace(clGetDeviceInfo=info))
    return answer


def test_accelerated_kind_is_used(device: DeviceInfo, device_answer: dict[str, object]) -> None:
    opened = Device(device).cl_device
    for truths, signed, mixed in (
        ([0, 1, 1, 0, 1, 1], False, True),  # Adreno 740 with Mesa 25.0
        ([1, 1, 0, 0, 0, 0], True, False),
        ([0, 1, 0, 1, 1, 1], False, False),
    ):
        device_answer["truths"] = truths
        assert (is_accelerated(opened, True), is_accelerated(opened, False)) == (signed, mixed)
    device_answer |= {"truths": [1] * 6, "status": cl.status_code.INVALID_VALUE}
    assert not is_accelerated(opened, True)


def test_unaccelerated_kinds_are_not_built(device: DeviceInfo) -> None:
    opened = Device(device)
    for name in ("dot", "mixed_dot"):
        if is_accelerated(opened.cl_device, BY_NAME[name].takes_int8):
            pytest.skip("it is accelerated here")
        assert feature_test(opened, BY_NAME[name]) == (
            "the device does not say that it is accelerated"
        )
