# SPDX-License-Identifier: Apache-2.0
"""The number of concurrent runs of a Model on a device, and their memory."""

from __future__ import annotations

import numpy as np
import pytest

from delegate import DeviceInfo, Model
from delegate.errors import TooLarge
from delegate.format.writer import write_model
from delegate.model.one_device import SLOTS, SLOTS_FAR, OneDevice
from delegate.run.executor import Executor
from tests.support.nets import conv_pool


def assert_runs_under_way(model: Model, count: int) -> None:
    """Assert that concurrent runs have the same outputs as single ones."""
    rng = np.random.default_rng(0)
    (details,) = model.input_details
    given = [rng.integers(0, 256, details.shape).astype(details.dtype) for _ in range(count)]
    pending = [model.run_async(array) for array in given]
    outputs = [each.result()[0] for each in pending]
    assert len({output.tobytes() for output in outputs}) == count
    for array, output in zip(given, outputs, strict=True):
        assert np.array_equal(output, model.run(array)[0])


@pytest.mark.parametrize("is_far", [False, True])
def test_discrete_device_has_more_slots(device: DeviceInfo, is_far: bool) -> None:
    with Model(write_model(conv_pool()), device.index, batch=2, tune="off") as model:
        one = model._on
        assert isinstance(one, OneDevice)
        assert one.slots == (SLOTS_FAR if one._engine.device.is_far else SLOTS)
        assert device.type != "cpu" or not one._engine.device.is_far
        one.slots = SLOTS_FAR if is_far else SLOTS
        assert_runs_under_way(model, 6)
        assert len(one._slots) == one.slots


@pytest.mark.parametrize("room", [1, 2, 3])
def test_slots_are_limited_by_memory(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    with Model(write_model(conv_pool()), device.index, batch=2, tune="off") as model:
        one = model._on
        assert isinstance(one, OneDevice)
        one.slots = SLOTS_FAR
        sibling = one._engine.sibling

        def limited(executor: Executor) -> Executor:
            if len(one._slots) == room:
                raise TooLarge("no room")
            return sibling(executor)

        monkeypatch.setattr(one._engine, "sibling", limited)
        if room < SLOTS:
            with pytest.raises(TooLarge, match="no room"):
                assert_runs_under_way(model, 2)
            return
        assert_runs_under_way(model, 7)
        assert (one.slots, len(one._slots)) == (room, room)


def test_run_cannot_be_cancelled_and_calls_callbacks(device: DeviceInfo) -> None:
    callbacks = []
    with Model(write_model(conv_pool()), device.index, batch=2, tune="off") as model:
        (details,) = model.input_details
        run = model.run_async(np.zeros(details.shape, details.dtype))
        run.when_done(lambda: callbacks.append(run.is_done))
        run.cancel()
        assert (callbacks, run.is_done) == ([], False)
        assert np.array_equal(run.result()[0], model.run(np.zeros(details.shape, np.uint8))[0])
        run.when_done(lambda: callbacks.append(run.is_done))
        assert callbacks == [True, True]
