# SPDX-License-Identifier: Apache-2.0
"""Huge pages for large buffers of devices that share the host's memory."""

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
    """Return Linux's flags of the mapping at an address; [] if unknown."""
    is_its = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if (place := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            is_its = int(place[1], 16) <= address < int(place[2], 16)
        elif is_its and line.startswith("VmFlags:"):
            return line.split()[1:]
    return []


def resident_bytes() -> int:
    """Return this process's resident memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def written_and_read(device: Device) -> cl.Buffer:
    """Return a buffer after a round trip of its bytes."""
    buffer = device.buffer("memory", cl.mem_flags.READ_WRITE, SIZE)
    values = np.random.default_rng(0).integers(0, 256, SIZE).astype(np.uint8)
    result = np.empty_like(values)
    cl.enqueue_copy(device.queue, buffer, values)
    cl.enqueue_copy(device.queue, result, buffer)
    np.testing.assert_array_equal(result, values)
    return buffer


def test_pages_are_aligned_zeroed_and_freed_with_owner() -> None:
    values = in_large_pages(SIZE)
    assert values is not None
    assert values.size == SIZE
    address = values.__array_interface__["data"][0]
    assert address % (2 << 20) == 0
    assert not values.any()
    if flags := flags_at(address):  # qemu-user reports no flags
        assert "hg" in flags  # MADV_HUGEPAGE
    values[:] = 1
    before = resident_bytes()
    del values
    gc.collect()
    assert resident_bytes() < before - (4 << 20)


@pytest.mark.parametrize("size", [32 << 20, 512 << 20])
def test_huge_pages_of_larger_small_pages(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels with pages of 16 KiB (Pi 5, Asahi) and of 64 KiB."""
    (tmp_path / "size").write_text(f"{size}\n")
    monkeypatch.setattr(pages, "_SIZE_FILE", str(tmp_path / "size"))
    pages.huge_page_bytes.cache_clear()
    try:
        assert in_large_pages(2 * size - 1) is None
        values = in_large_pages(2 * size)  # whose pages are not touched
        assert values is not None
        assert values.__array_interface__["data"][0] % size == 0
        assert values.size == 2 * size
    finally:
        pages.huge_page_bytes.cache_clear()


def test_small_buffers_need_no_huge_pages() -> None:
    assert in_large_pages(1 << 20) is None


@pytest.mark.parametrize("why", ["no such system", "no room"])
def test_driver_allocates_without_huge_pages(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def refused(*_: object, **__: object) -> mmap.mmap:
        raise OSError(12, "Cannot allocate memory")

    if why == "no room":
        monkeypatch.setattr(pages.mmap, "mmap", refused)
    else:
        monkeypatch.delattr(pages.mmap, "MADV_HUGEPAGE")
    assert in_large_pages(SIZE) is None


@pytest.mark.device
@pytest.mark.parametrize("has_large", [True, False])
def test_buffer_content_survives(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, has_large: bool
) -> None:
    if not has_large:
        monkeypatch.setattr("delegate.run.device.in_large_pages", lambda _: None)
    opened = Device(device)
    buffer = written_and_read(opened)
    gc.collect()  # the buffer owns the memory
    assert written_and_read(opened) is not buffer
    buffer.release()


def mapped_bytes(path: Path) -> int:
    """Return the resident size of a mapped file."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    begin = next(at for at, line in enumerate(lines) if line.endswith(str(path)))
    return next(int(s.split()[1]) for s in lines[begin:] if s.startswith("Rss:")) << 10


def test_pages_of_file_can_be_dropped(tmp_path: Path) -> None:
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


def test_anonymous_memory_is_not_dropped() -> None:
    for values in (np.arange(1 << 16), np.frombuffer(bytes(range(256)) * 256, np.uint8)):
        copy = values.copy()
        drop_pages(values)
        assert np.array_equal(values, copy)
    pages = in_large_pages(1 << 22)
    if pages is not None:
        pages[:] = 3
        drop_pages(pages)
        assert pages.min() == 3
