# SPDX-License-Identifier: Apache-2.0
"""Upload of constant files, and verification of the uploaded content."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo
from delegate.plan.contents import MissingContent, digest_of
from delegate.plan.layout import SLACK_BYTES, Bytes
from delegate.plan.record import BufferPlan, SegmentPlan
from delegate.run import constant_files
from delegate.run.constant_files import load_constants
from delegate.run.device import Device
from delegate.run.mapping import mapped
from delegate.run.weights import Weights

CONTENTS = [np.random.default_rng(n).integers(0, 256, 640 + 64 * n, np.uint8) for n in range(3)]


@dataclass
class FakeSource:
    """Constant files that may be missing, damaged, or corrupted in device memory."""

    files: dict[str, Bytes] = field(
        default_factory=lambda: {digest_of(each): each.copy() for each in CONTENTS}
    )

    def content(self, digest: str, size_bytes: int) -> Bytes:
        values = self.files.get(digest)
        if values is None or values.nbytes != size_bytes or digest_of(values) != digest:
            raise MissingContent(digest)
        return values

    def binary(self, file: str, digest: str) -> bytes | None:
        raise AssertionError


def plan_of(*contents: Bytes, gap: int = 0) -> BufferPlan:
    segments, at = [], 0
    for each in contents:
        segments.append(SegmentPlan(digest_of(each), at, each.nbytes))
        at += each.nbytes + gap
    return BufferPlan(8192, tuple(segments))


@pytest.fixture
def opened(device: DeviceInfo) -> Iterator[Device]:
    opened_device = Device(device)
    yield opened_device
    opened_device.close()


def read(device: Device, buffer: cl.Buffer, size: int) -> Bytes:
    values = np.empty(size, np.uint8)
    cl.enqueue_copy(device.queue, values, buffer)
    return values


def test_files_are_uploaded_in_sequence(opened: Device) -> None:
    weights, source = Weights(opened), FakeSource()
    first = load_constants(weights, opened.queue, [plan_of(*CONTENTS[:1])], source)
    more = load_constants(weights, opened.queue, [plan_of(*CONTENTS)], source)
    assert more.cl_buffers == first.cl_buffers
    (buffer,) = more.cl_buffers
    whole = np.concatenate([*CONTENTS, np.zeros(SLACK_BYTES, np.uint8)])
    assert np.array_equal(read(opened, buffer, whole.size), whole)
    first.close()
    more.close()
    assert [*weights.pool.buffers] == []


@pytest.mark.parametrize("place", range(3))
def test_missing_or_damaged_file_uploads_nothing(opened: Device, place: int) -> None:
    weights = Weights(opened)
    for is_gone in (True, False):
        source = FakeSource()
        digest = digest_of(CONTENTS[place])
        if is_gone:
            del source.files[digest]
        else:
            source.files[digest][place] ^= 1
        with pytest.raises(MissingContent, match=digest):
            load_constants(weights, opened.queue, [plan_of(*CONTENTS)], source)
        assert [*weights.pool.buffers] == []


def test_gaps_and_overlaps_of_segments_are_refused(opened: Device) -> None:
    for gap in (64, -64):
        plan = plan_of(*CONTENTS, gap=gap)
        with pytest.raises(ValueError, match="do not follow each other"):
            load_constants(Weights(opened), opened.queue, [plan], FakeSource())


def test_corruption_in_device_memory_is_a_device_error(
    opened: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not opened.shares_memory:
        pytest.skip("what goes up by copies is read back by upload")

    @contextlib.contextmanager
    def forgetful(queue: cl.CommandQueue, buffer: cl.Buffer, *how: int) -> Iterator[Bytes]:
        with mapped(queue, buffer, *how) as memory:
            yield memory
            memory[0] ^= 1

    monkeypatch.setattr(constant_files, "mapped", forgetful)
    source = FakeSource()
    with pytest.raises(DeviceError, match="does not hold what was written"):
        load_constants(Weights(opened), opened.queue, [plan_of(*CONTENTS[:2])], source)
