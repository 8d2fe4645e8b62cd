# SPDX-License-Identifier: Apache-2.0
"""Large buffers of devices that have the host's memory lie in large pages, where Linux has them."""

from __future__ import annotations

import gc
import mmap
import re
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceInfo
from delegate.format.source import open_model
from delegate.plan.contents import owner_of
from delegate.run import pages
from delegate.run.device import Device
from delegate.run.pages import drop_pages, in_large_pages

SIZE = 5 << 20


def flags_at(address: int) -> list[str]:
    """Return what Linux says of the mapping that an address lies in; [] where it says nothing."""
    is_its = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if (place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            is_its = int(place[1], 16) <= address < int(place[2], 16)
        elif is_its and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


def resident_bytes() -> int:
    """Return the memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def written_and_read(device: Device) -> cl.Buffer:
    """Return a buffer whose bytes went up and came back."""
    buffer = device.buffer("memory", cl.mem_flags.READ_WRITE, SIZE)
    values = np.random.default_rng(0).integers(0, 256, SIZE).astype(np.uint8)
    kept = np.empty_like(values)
    cl.enqueue_copy(device.queue, buffer, values)
    cl.enqueue_copy(device.queue, kept, buffer)
    np.testing.assert_array_equal(kept, values)
    return buffer


def test_they_are_aligned_zeros_and_end_with_what_has_them() -> None:
    values = in_large_pages(SIZE)
    assert values is not None
    assert values.size == SIZE
    address = values.__array_interface__["data"][0]
    assert address % (2 << 20) == 0
    assert not values.any()
    if flags := flags_at(address):  # qemu-user says nothing
        assert "hg" in flags  # MADV_HUGEPAGE
    values[:] = 1
    before = resident_bytes()
    del values
    gc.collect()
    assert resident_bytes() < before - (4 << 20)


def test_a_few_bytes_need_none() -> None:
    assert in_large_pages(1 << 20) is None


@pytest.mark.parametrize("why", ["no such system", "no room"])
def test_without_them_memory_is_the_drivers(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def refused(*_: object, **__: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    if why == "no room":
        monkeypatch.setattr(pages.mmap, "mmap", refused)
    else:
        monkeypatch.delattr(pages.mmap, "MADV_HUGEPAGE")
    assert in_large_pages(SIZE) is None


@pytest.mark.device
@pytest.mark.parametrize("has_large", [True, False])
def test_a_buffer_keeps_what_is_written_to_it(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, has_large: bool
) -> None:
    if not has_large:
        monkeypatch.setattr("delegate.run.device.in_large_pages", lambda _: None)
    opened = Device(device)
    buffer = written_and_read(opened)
    gc.collect()  # what holds the memory is the buffer
    assert written_and_read(opened) is not buffer
    buffer.release()


def mapped_bytes(path: Path) -> int:
    """Return how much of a file is in this process."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.endswith(str(path)))
    return next(int(s.split()[1]) for s in lines[begin:] if s.startswith("Rss:")) << 10


def test_pages_of_a_file_go_and_come_again(tmp_path: Path) -> None:
    content = np.random.default_rng(1).integers(0, 256, 1 << 22, np.uint8)
    (tmp_path / "model").write_bytes(content.tobytes())
    view = open_model(tmp_path / "model")
    part = np.frombuffer(view[1000:], np.int16)[: 1 << 20].reshape(1024, -1)
    assert owner_of(part) is view.obj
    total = int(part.sum())
    before = mapped_bytes(tmp_path / "model")
    drop_pages(part[:512])
    drop_pages(part[::-2, ::3])
    assert mapped_bytes(tmp_path / "model") < before - (1 << 19)
    assert int(part.sum()) == total
    assert np.array_equal(np.frombuffer(view, np.uint8), content)


def test_memory_that_is_no_files_stays() -> None:
    for values in (np.arange(1 << 16), np.frombuffer(bytes(range(256)) * 256, np.uint8)):
        kept = values.copy()
        drop_pages(values)
        assert np.array_equal(values, kept)
    pages = in_large_pages(1 << 22)
    if pages is not None:
        pages[:] = 3
        drop_pages(pages)
        assert pages.min() == 3
