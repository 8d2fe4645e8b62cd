# SPDX-License-Identifier: Apache-2.0
"""A Model on several devices has the same outputs as on one, even if devices fail."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import (
    DelegateError,
    DeviceError,
    DeviceInfo,
    Model,
    NoDeviceError,
    Run,
    TooLarge,
    Unsupported,
    list_devices,
)
from delegate.inspect import Graph, write_model
from delegate.model import model as model_module
from delegate.model.one_device import OneDevice
from delegate.options import Options
from delegate.run.executor import Executor
from tests.support.compare import assert_same, interpreter, invoke
from tests.support.model import chain_model, op
from tests.support.nets import conv_pool, image

pytestmark = pytest.mark.device
GRAPH = conv_pool()
BATCH = 3


def pictures(count: int) -> NDArray[Any]:
    shape = (count, *GRAPH.inputs[0].shape[1:])
    return np.random.default_rng(count).integers(0, 256, shape).astype(np.uint8)


def references(given: NDArray[Any]) -> NDArray[Any]:
    """Return the reference kernels' outputs."""
    interp = interpreter(write_model(GRAPH))
    return np.concatenate([invoke(interp, [picture[np.newaxis]])[0] for picture in given])


@pytest.fixture(scope="module")
def ours() -> Iterator[Model]:
    """Open a network on every device of this machine."""
    try:
        opened_model = Model(write_model(GRAPH), "all", BATCH, tune="off")
    except NoDeviceError as error:
        pytest.skip(str(error))
    with opened_model:
        yield opened_model


@pytest.mark.parametrize("count", [1, BATCH, 4 * BATCH, 50])
def test_outputs_equal_reference_in_order_of_pictures(ours: Model, count: int) -> None:
    before = sum(portion.pictures for portion in ours.portions)
    given = pictures(count)
    (got,) = ours.run(given)
    assert_same(got, references(given), f"{count} pictures")
    assert sum(portion.pictures for portion in ours.portions) == before + count


def test_runs_can_be_awaited_in_any_order(ours: Model) -> None:
    given = [pictures(count) for count in (1, 2, 3, 2, 1)]
    pending = [ours.run_async(each) for each in given]
    for number in (4, 0, 2, 1, 3):
        assert_same(pending[number].result()[0], references(given[number]), f"run {number}")
    assert pending[0].device in [portion.device for portion in ours.portions]


def test_input_arrays_can_be_reused(ours: Model) -> None:
    expected = references(pictures(BATCH))
    array = pictures(BATCH)
    pending = ours.run_async(array)
    array[:] = 0
    assert_same(pending.result()[0], expected, "an array of the caller's")
    buffer = ours.empty_input()
    assert isinstance(buffer, np.ndarray)
    for _ in range(3):
        buffer[:] = pictures(BATCH)
        assert_same(ours.run_async(buffer).result()[0], expected, "a buffer")


def test_devices_agree(ours: Model) -> None:
    given = pictures(2)
    outputs = ours.run_on_each(given)
    assert [info for info, _ in outputs] == [portion.device for portion in ours.portions]
    for info, (got,) in outputs:
        assert_same(got, references(given), info.name)


def test_attributes(ours: Model) -> None:
    assert ours.device == ours.portions[0].device
    assert set(list_devices()) >= {portion.device for portion in ours.portions}
    assert ours.input_details[0].shape == (BATCH, 7, 6, 2)
    assert ours.batch == BATCH
    assert ours.tuning_left >= 0


def test_wrong_arrays_are_refused(ours: Model) -> None:
    with pytest.raises(ValueError, match=r"of shape \(1\.\., 7, 6, 2\)$"):
        ours.run(np.zeros((2, 6, 7, 2), np.uint8))
    with pytest.raises(ValueError, match=r"of shape \(1\.\.3, 7, 6, 2\)$"):
        ours.run_async(pictures(BATCH + 1))


# One real device, and fakes


def opened(
    monkeypatch: pytest.MonkeyPatch,
    device: DeviceInfo,
    others: Sequence[DelegateError | None],
    lost: int | None = None,
) -> Model:
    """Return a Model on a device, and on the same one again or on one that cannot be opened.

    `lost`: the device that fails to start runs.
    """
    errors = [None, *others]
    infos = tuple(device for _ in errors)
    numbers = iter(range(len(errors)))

    class Opening(OneDevice):
        def __init__(self, graph: Graph, options: Options, batch: int) -> None:
            self.number = next(numbers)
            if (error := errors[self.number]) is not None:
                raise error
            super().__init__(graph, options, batch)

        def start(self, *arguments: Any) -> Run:
            if self.number == lost:
                raise DeviceError("running: CL_DEVICE_NOT_AVAILABLE")
            return super().start(*arguments)

    monkeypatch.setattr(model_module, "OneDevice", Opening)
    monkeypatch.setattr(model_module, "several_devices", lambda _: infos)
    return Model(write_model(GRAPH), "all", BATCH, tune="off")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_devices_that_cannot_be_opened_are_skipped(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [
        TooLarge("arena of 9 bytes: one buffer of this device holds at most 8"),
        NoDeviceError("no OpenCL device works: Odd (1.0): its self-test died"),
        Unsupported("node 0 (CONV_2D): why"),
    ]
    with opened(monkeypatch, device, errors) as ours:
        given = pictures(2 * BATCH)
        assert_same(ours.run(given)[0], references(given), "on what is left")
        assert [portion.device for portion in ours.portions] == [device]
    assert warnings(caplog) == [  # of the second one the engine has told
        f"device {device.index} ({device.name}) is left out: {errors[0]}",
        f"device {device.index} ({device.name}) is left out: {errors[2]}",
    ]


def test_device_loss_in_run_loses_no_picture(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(monkeypatch, device, [None], lost=1) as ours:
        given = pictures(10 * BATCH)
        while not ours.portions[1].failure:
            assert_same(ours.run(given)[0], references(given), "both")
        assert_same(ours.run(given)[0], references(given), "the other one")
    assert warnings(caplog) == [
        f"device {device.index} ({device.name}) is left out, and the others take its pictures: "
        "running: CL_DEVICE_NOT_AVAILABLE"
    ]


def test_loss_of_all_devices_is_an_error(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def submit(self: Executor, *arrays: Any) -> None:
        raise DeviceError("running: CL_OUT_OF_RESOURCES")

    with opened(monkeypatch, device, [None]) as ours:
        monkeypatch.setattr(Executor, "submit", submit)
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"^running: CL_OUT_OF_RESOURCES$"):
                ours.run(pictures(10 * BATCH))


def test_dropped_model_ends_its_threads(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {*threading.enumerate()}
    ours = opened(monkeypatch, device, [])
    threads = {*threading.enumerate()} - before
    assert threads
    del ours
    gc.collect()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


NOT_OURS = chain_model([op("fake-op", [image()], [image()], is_custom=True)])


def test_model_that_no_device_runs_is_an_error(device: DeviceInfo) -> None:
    errors = []
    for selector in (device.index, f"{device.index},"):
        with pytest.raises(Unsupported) as raised:
            Model(NOT_OURS, selector)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]


def test_failed_self_tests_of_all_devices_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(graph: Graph, options: Options, batch: int) -> None:
        name = "AB"[int(options.device or 0)]
        raise NoDeviceError(f"no OpenCL device works: {name} (1.0): its self-test died")

    infos = [DeviceInfo(number, "P", "1", "N", "V", "3", "1", "cpu") for number in range(2)]
    monkeypatch.setattr(model_module, "OneDevice", fails)
    monkeypatch.setattr(model_module, "several_devices", lambda _: infos)
    with pytest.raises(NoDeviceError) as raised:
        Model(write_model(GRAPH), "all")
    assert str(raised.value) == (
        "no OpenCL device works: A (1.0): its self-test died; B (1.0): its self-test died"
    )
