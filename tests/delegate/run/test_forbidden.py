# SPDX-License-Identifier: Apache-2.0
"""Kernels and buffers beyond a device profile's limits are refused with the limit's name."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo
from delegate.guard.probing.probe import examine
from delegate.inspect import KernelBuildError, read_device_profile
from delegate.launch import Launch
from delegate.plan import sources
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.run.device import Device, allowed, identity_with
from tests.delegate.run.test_executor import SUMS, run, sums
from tests.support.schedules import fallback_schedule
from tests.support.tiers import slow

V3D = read_device_profile("v3d")
ROOT = Path(__file__).resolve().parents[3]
HEAD = "kernel void planted(global int* a, global int* b, global int* c, int d"
# Violation -> (a kernel with it, the error)
BROKEN = {
    "long": (f"{HEAD}) {{ long x = a[d]; a[0] = (int)(x * x >> 32); }}", "64-bit integers"),
    "ulong4": (f"{HEAD}) {{ ulong4 x = (ulong4)(a[d]); a[0] = x.s3 != 7; }}", "64-bit integers"),
    "convert_long": (f"{HEAD}) {{ a[0] = (int)(convert_long_sat(a[d]) >> 3); }}", "64-bit integer"),
    "double": (f"{HEAD}) {{ double x = a[d]; a[0] = (int)(x / 3); }}", "doubles"),
    "half": (f"{HEAD}, half e) {{ a[0] = d; }}", "halves"),
    "image": (f"{HEAD}, read_only image2d_t e) {{ a[0] = get_image_width(e); }}", "images"),
    "sampler": (f"{HEAD}, sampler_t e) {{ a[0] = d; }}", "images"),
    "dot": (f"{HEAD}) {{ a[0] = dot_4x8packed_uu_uint(a[1], a[2]); }}", "integer dot products"),
    "arm_dot": (f"{HEAD}) {{ a[0] = arm_dot((uchar4)(1), (uchar4)(2)); }}", "integer dot products"),
    "assembly": (f'{HEAD}) {{ __asm__("nop"); }}', "inline assembly"),
}
LOCAL = f"{HEAD}) {{ local int x[8500]; x[get_local_id(0)] = d; barrier(1); a[0] = x[d]; }}"
ARGUMENTS = f"{HEAD}, uint16 e, float16 f, int16 g, uchar16 h) {{ a[0] = d; }}"
FIXED = f"__attribute__((reqd_work_group_size(512, 1, 1))) {HEAD}) {{ a[get_global_id(0)] = d; }}"


@pytest.fixture
def limited(device: DeviceInfo) -> Kernels:
    return Kernels(Device(device, profile=V3D))


def launch_of(
    source: str, folder: Path, monkeypatch: pytest.MonkeyPatch, group_items: int = 64
) -> Launch:
    """Return a launch of a kernel file with this text."""
    monkeypatch.setattr(sources, "text_of", lambda file: source)
    return Launch("planted", "planted", 1, group_items, {}, (), ())


@pytest.mark.parametrize("what", BROKEN)
def test_violations_of_language_are_refused(
    what: str, limited: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, words = BROKEN[what]
    launch = launch_of(source, tmp_path, monkeypatch)
    reason = limited.check([launch])
    assert reason is not None
    assert f"device profile v3d: there are no {words}" in reason
    with pytest.raises(KernelBuildError, match=r"planted\.cl does not build"):
        limited.build(launch)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (LOCAL, r"needs (34000|34004|68000) bytes of local memory: this device has at most 32768"),
        (ARGUMENTS, r"needs (236|260) bytes of arguments: this device has at most 256"),
        (FIXED, r"needs 512 work-items a group: this device has at most \d+"),
    ],
    ids=["local", "arguments", "group"],
)
def test_violations_of_limits_are_refused(
    source: str, reason: str, device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Device(device, profile=replace(V3D, max_argument_bytes=232, name="small"))
    launch = launch_of(source, tmp_path, monkeypatch)
    if source is LOCAL:
        if opened.cl_device.local_mem_size <= V3D.local_mem_bytes:
            pytest.skip("this device has no more local memory than the profile: its limit counts")
        built = Kernels(Device(device)).kernel(launch)[0]
        kind = cl.kernel_work_group_info.LOCAL_MEM_SIZE
        if not built.get_work_group_info(kind, opened.cl_device):
            pytest.skip(f"{device.driver} says of every kernel that it needs no local memory")
    result = Kernels(opened).check([launch])
    assert result is not None
    assert re.search(
        reason.replace("256", "232") + r" \(device profile small\)", f"kernel planted {result}"
    )


def test_same_kernels_run_without_profile(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Kernels(Device(device))
    for source in (BROKEN["long"][0], BROKEN["ulong4"][0], ARGUMENTS):
        assert plain.check([launch_of(source, tmp_path, monkeypatch)]) is None


def test_work_group_size_is_limited_by_profile(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"{HEAD}) {{ a[get_global_id(0)] = d; }}"
    launch = launch_of(source, tmp_path, monkeypatch, group_items=64)
    for most in (7, 1):
        limited = Kernels(Device(device, profile=replace(V3D, max_work_group_size=most)))
        assert limited.kernel(launch)[1] == most


def test_argument_of_unknown_size_is_refused(
    limited: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"typedef struct {{ int x[400]; }} big; {HEAD}, big e) {{ a[0] = e.x[d]; }}"
    reason = limited.check([launch_of(source, tmp_path, monkeypatch)])
    assert reason is not None
    assert "its bytes cannot be told" in reason


def test_buffer_size_is_limited_by_profile(device: DeviceInfo) -> None:
    small = Device(device, profile=replace(V3D, max_alloc_bytes=100))
    with pytest.raises(DeviceError) as raised:
        planned_executor(small, Kernels(small), fallback_schedule(SUMS))
    assert re.fullmatch(
        r"arena of \d+ bytes: one buffer of this device holds at most 100 \(device profile v3d\)",
        str(raised.value),
    )
    with pytest.raises(DeviceError, match=r"spare memory of 101 bytes: .* at most 100"):
        small.buffer("spare memory", cl.mem_flags.READ_WRITE, 101)
    small.buffer("spare memory", cl.mem_flags.READ_WRITE, 100).release()


def test_kernel_within_limits_runs(device: DeviceInfo) -> None:
    opened = Device(device, profile=V3D)
    values = np.arange(18, dtype=np.uint8)
    assert run(planned_executor(opened, Kernels(opened), fallback_schedule(SUMS)), values) == sums(
        values
    )


def test_facts_are_those_of_profile(device: DeviceInfo) -> None:
    plain, limited = Device(device), Device(device, profile=V3D)
    assert limited.info == plain.info
    assert (limited.type, limited.vector_width) == ("gpu", 1)
    assert limited.max_alloc_bytes == min(plain.max_alloc_bytes, V3D.max_alloc_bytes)
    huge = replace(V3D, max_alloc_bytes=2**60, int_vector_width=64)
    assert Device(device, profile=huge).max_alloc_bytes == plain.max_alloc_bytes
    assert Device(device, profile=huge).vector_width == plain.vector_width


def test_instructions_are_limited_by_profile(device: DeviceInfo) -> None:
    proof = examine(device, V3D)
    assert proof.failure is None
    assert proof.isa <= {*V3D.isa}
    opened = Device(device, proven=["vnni", "mma", "nearest"], profile=V3D)
    assert opened.proven == {"nearest"}
    assert allowed(["vnni"], None) == ["vnni"]


def test_caches_distinguish_profiles(device: DeviceInfo) -> None:
    other = replace(V3D, local_mem_bytes=V3D.local_mem_bytes - 1)
    identities = {identity_with(device, each) for each in (None, V3D, other)}
    assert len(identities) == 3
    assert Device(device, profile=V3D).identity == identity_with(device, V3D)
    assert Device(device).identity == device.identity


@slow
def test_device_that_fails_under_profile_is_not_used(device: DeviceInfo) -> None:
    proof = examine(device, replace(V3D, max_argument_bytes=8, name="tiny"))
    assert proof.failure is not None
    assert re.search(r"needs \d+ bytes of arguments: .* 8 \(device profile tiny\)", proof.failure)


def test_runtime_creates_no_sub_buffers() -> None:
    # Tensors are offsets within one buffer, so sub_buffer_align_bytes cannot be violated.
    sources = (ROOT / "delegate").rglob("*.py")
    assert [path.name for path in sources if "get_sub_region" in path.read_text()] == []
