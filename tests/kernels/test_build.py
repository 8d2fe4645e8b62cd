# SPDX-License-Identifier: Apache-2.0
"""Every kernel with every set of macros its op emits builds without a warning, on every device."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from delegate import DeviceError, DeviceInfo, KernelBuildError, Node, ops
from delegate.launch import Launch, Rules
from delegate.probe import _launch as self_test_launch
from delegate.runtime import kernels as runtime_kernels
from delegate.runtime.device import Device
from delegate.runtime.kernels import OPTIONS, Kernels, defines_of, folder
from tests.support.cases import LANES_2, WAYS
from tests.support.nodes import valid_nodes

# A device need not have these types; the builtin functions' headers are read before our macros.
FORBIDDEN = {
    word: f"forbidden_{word}"
    for scalar in ("long", "ulong", "double", "half")
    for word in (scalar, *(f"{scalar}{lanes}" for lanes in (2, 3, 4, 8, 16)))
} | {
    word: f"forbidden_{word}"
    for word in ("image1d_t", "image2d_t", "image3d_t", "image2d_array_t", "sampler_t", "event_t")
}

# Of an attribute NVIDIA's compiler gives every kernel itself; of vectors wider than the device's in
# the built-in functions' own declarations, which a forced way may ask for.
REMARK = re.compile(
    r"Function \w+ is a kernel, so overriding noinline attribute"
    r"|without 'avx512f' enabled changes the ABI|failed to build the program"
)


def _nodes() -> Iterator[Node]:
    for dtype in ("uint8", "int8"):
        for channels in (1, 2, 4, 8, 16, 32):
            for size in (1, 5):  # one pixel, and enough for a tile
                yield from valid_nodes(dtype, channels, size).values()


@cache
def _launches() -> dict[str, Launch]:
    """Return a launch for each set of macros there is, by a name for people."""
    launches = [self_test_launch()[0]]
    for way in (*WAYS, LANES_2):
        for twice in (False, True):
            rules = Rules(fully_connected_double_rounding=twice)
            for node in _nodes():
                for alternative in ops.lower(node, replace(way.target, rules=rules)):
                    launches.extend(alternative.launches)
    named = {}
    for launch in launches:
        chosen = [f"{name}={value}" for name, value in launch.defines.items()]
        named["-".join([launch.kernel, *chosen]).lower()] = launch
    return named


@pytest.fixture
def kernels(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    # NOTE: PoCL and rusticl drop their warnings when a build succeeds, so it must not.
    monkeypatch.setattr(runtime_kernels, "OPTIONS", [*OPTIONS, "-Werror"])
    return Kernels(_opened(device))


@cache
def _opened(device: DeviceInfo) -> Device:
    return Device(device)


def test_every_kernel_is_built() -> None:
    stems = {launch.kernel for launch in _launches().values()}
    written = {
        name
        for path in folder().glob("*.cl")
        for name in re.findall(r"^KERNEL\((\w+)\)", path.read_text(), re.MULTILINE)
    }
    assert stems == written


@pytest.mark.parametrize("name", _launches())
def test_builds_without_warnings_or_forbidden_types(name: str, kernels: Kernels) -> None:
    launch = _launches()[name]
    try:
        log = kernels.log(replace(launch, defines={**launch.defines, **FORBIDDEN}))
    except DeviceError as error:
        log = str(error)
    assert [line for line in log.splitlines() if not REMARK.search(line)] == []


def test_a_warning_is_seen(kernels: Kernels) -> None:
    launch = next(launch for launch in _launches().values() if launch.file == "pool_2d")
    with pytest.raises(DeviceError, match="division by zero"):
        kernels.log(replace(launch, defines={**launch.defines, "TAKES_MAX": "(1 / 0)"}))


@pytest.mark.parametrize("word", ["long", "ulong", "double", "half", "long4"])
def test_a_forbidden_type_is_seen(word: str, kernels: Kernels) -> None:
    launch = next(launch for launch in _launches().values() if launch.file == "add")
    with pytest.raises(KernelBuildError):
        kernels.program("add", {**defines_of(launch), **FORBIDDEN, "ELEM": word})


def test_language_is_opencl_c_1_2() -> None:
    assert "-cl-std=CL1.2" in OPTIONS


@pytest.mark.parametrize("path", sorted(folder().glob("*.cl*")), ids=lambda path: path.name)
def test_float_literals_are_float(path: Path) -> None:
    # Without the f they are doubles, which the macros above cannot see.
    code = re.sub(r"//.*|/\*.*?\*/", "", path.read_text())
    assert re.findall(r"\b\d+\.\d*(?:e[+-]?\d+)?(?!\w)", code) == []
