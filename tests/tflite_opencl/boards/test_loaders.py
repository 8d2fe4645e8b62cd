# SPDX-License-Identifier: Apache-2.0
"""Loaders and bare libraries, compared."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from delegate.inspect import PlatformInfo
from tflite_opencl.boards import drivers, loaders
from tflite_opencl.boards.board import read_board
from tflite_opencl.boards.drivers import LoadedIcd

_NONE = LoadedIcd((), None)


def gives(*names: str) -> LoadedIcd:
    return LoadedIcd(tuple(PlatformInfo(each, "", "", ("a device",), None) for each in names), None)


def test_steps_of_hidden_platforms(tmp_path: Path) -> None:
    driver, odd, loader = tmp_path / "libmali.so.1", tmp_path / "libodd.so", tmp_path / "libload.so"
    driver.write_bytes(b"clIcdGetPlatformIDsKHR clGetPlatformIDs")
    odd.write_bytes(b"clGetPlatformIDs")
    loader.write_bytes(b"clIcdGetPlatformIDsKHR OCL_ICD_VENDORS")
    bare = {str(driver): gives("ARM Platform", "rusticl"), str(odd): gives("Odd")}
    others = {str(loader): gives("rusticl", "ARM Platform", "Far")}
    texts = [*loaders.hidden_steps(others, bare, gives("rusticl"), has_gpu=True)]
    assert [step.text for step in texts] == [
        f"register {driver}, which gives ARM Platform: no .icd file names it",
        f"set LD_PRELOAD={odd}, which gives Odd, which has no clIcdGetPlatformIDsKHR for a loader",
        f"set LD_PRELOAD={loader}, which gives Far, which pyopencl's loader does not find",
    ]
    assert texts[0].command == (
        f"echo {driver} | sudo install -Dm644 /dev/stdin /etc/OpenCL/vendors/mali.icd && "
        "tflite-opencl info"
    )
    assert texts[2].command == f"export LD_PRELOAD={loader}; tflite-opencl info"
    known = gives("rusticl", "ARM Platform", "Far")
    assert [*loaders.hidden_steps(others, {}, known, has_gpu=True)] == []


def test_platform_without_devices_counts_on_a_gpu_alone() -> None:
    silent = LoadedIcd((PlatformInfo("rusticl", "", "", (), None),), None)
    bare = {"/usr/lib/libRusticlOpenCL.so": silent}
    assert len([*loaders.hidden_steps({}, bare, gives(), has_gpu=True)]) == 1
    assert [*loaders.hidden_steps({}, bare, gives(), has_gpu=False)] == []


def elf(machine: int, bits: int = 64) -> bytes:
    ident = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    return ident + (3).to_bytes(2, "little") + machine.to_bytes(2, "little")


def test_library_of_another_architecture(tmp_path: Path) -> None:
    library = tmp_path / "libmali.so"
    other = 40 if Path(sys.executable).read_bytes()[18] != 40 else 62
    library.write_bytes(elf(other, 32))
    told = loaders.why_dropped(str(library))
    assert told.startswith(": it is for " + {40: "32-bit Arm", 62: "x86-64"}[other])
    assert loaders.foreign(sys.executable) == ""
    assert loaders.foreign(str(tmp_path / "none")) == ""


def test_bare_library_is_asked_as_its_file_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "usr/lib"
    folder.mkdir(parents=True)
    (folder / "libmali.so").write_bytes(b"clIcdGetPlatformIDsKHR")
    (folder / "libVivanteOpenCL.so").write_bytes(b"clGetPlatformIDs")
    asked: list[str] = []
    monkeypatch.setattr(drivers, "ask_icd", lambda icd: asked.append(f"icd {icd.path}") or _NONE)
    monkeypatch.setattr(
        drivers, "ask_all", lambda other_loader: asked.append(f"all {other_loader}") or _NONE
    )
    board = read_board(tmp_path)
    monkeypatch.setattr(loaders, "_has_entry", lambda path: "mali" in path)
    assert {*loaders.bare_libraries(board)} == {
        "/usr/lib/libmali.so",
        "/usr/lib/libVivanteOpenCL.so",
    }
    assert sorted(asked) == ["all /usr/lib/libVivanteOpenCL.so", "icd /usr/lib/libmali.so"]


def test_userland_of_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaders.userland_steps("aarch64") == []
    monkeypatch.setattr(sys, "maxsize", (1 << 31) - 1)
    (step,) = loaders.userland_steps("aarch64")
    assert step.text.startswith("use a 64-bit userland: the kernel is aarch64")
    assert loaders.userland_steps("armv7l") == []
