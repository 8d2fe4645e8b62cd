# SPDX-License-Identifier: Apache-2.0
"""Boards, recognised from recorded files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.boards import BOARDS, write_icd
from tflite_opencl.boards.board import read_board

# Board -> its chip, its nodes with drivers, all drivers in use.
EXPECTED = {
    "vim3": (
        "Amlogic A311D",
        [("Mali GPU", "panfrost"), ("Vivante NPU", "etnaviv")],
        {"panfrost", "etnaviv"},
    ),
    "librem5": ("NXP i.MX 8M Quad", [("Vivante GPU", "etnaviv")], {"etnaviv"}),
    "imx8mp": (
        "NXP i.MX 8M Plus",
        [("Vivante GPU", "galcore"), ("Vivante NPU", "galcore")],
        {"galcore"},
    ),
    "oneplus6": ("Qualcomm Snapdragon 845", [("Adreno GPU", "msm")], {"msm"}),
    "rpi4": ("Broadcom BCM2711", [("VideoCore GPU", "v3d")], {"v3d"}),
    "rk3588": (
        "Rockchip RK3588",
        [("Mali GPU (Valhall)", "panthor"), ("Rockchip NPU core", "rocket")],
        {"panthor", "rocket"},
    ),
}


@pytest.mark.parametrize("name", BOARDS)
def test_contents_of_board(name: str, tmp_path: Path) -> None:
    board = read_board(BOARDS[name].write(tmp_path))
    chip, nodes, drivers = EXPECTED[name]
    assert board.model == BOARDS[name].model
    assert board.chip == chip
    assert board.kernel == BOARDS[name].kernel
    assert [(node.what, node.driver) for node in board.nodes] == nodes
    assert all(node.is_enabled for node in board.nodes)
    assert board.drivers() == drivers
    assert [each.path for each in board.files] == [
        f"/{path}" for path in BOARDS[name].files if path.startswith("dev/")
    ]
    assert all(each.may_open and each.mode.startswith("-rw") for each in board.files)


def test_empty_machine(tmp_path: Path) -> None:
    board = read_board(tmp_path)
    assert (board.model, board.chip, board.kernel) == (None, None, None)
    results = (board.compatible, board.nodes, board.drm, board.files, board.icds, board.delegates)
    assert results == ((),) * 6
    assert board.drivers() == set()


def test_pc_is_named_by_firmware_or_cpu(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("flags : x\nmodel name\t: Some CPU 3\nmodel name\t: b\n")
    assert read_board(tmp_path).model == "Some CPU 3"
    folder = tmp_path / "sys/class/dmi/id"
    folder.mkdir(parents=True)
    (folder / "sys_vendor").write_text("Maker\n")
    (folder / "product_name").write_text("PC 1\n")
    assert read_board(tmp_path).model == "Maker PC 1"


def test_other_path_of_device_tree(tmp_path: Path) -> None:
    folder = tmp_path / "sys/firmware/devicetree/base"
    folder.mkdir(parents=True)
    (folder / "compatible").write_text("khadas,vim3\0amlogic,a311d\0")
    assert read_board(tmp_path).chip == "Amlogic A311D"


def test_disabled_node(tmp_path: Path) -> None:
    root = BOARDS["vim3"].write(tmp_path)
    (root / "proc/device-tree/soc/npu@ff100000/status").write_text("disabled\0")
    (_, npu) = read_board(root).nodes
    assert not npu.is_enabled


def test_libraries_and_icd_files(tmp_path: Path) -> None:
    root = BOARDS["vim3"].write(tmp_path)
    write_icd(root, "rusticl", "libRusticlOpenCL.so.1")
    write_icd(root, "vendor", "/usr/lib/libVivanteOpenCL.so")
    library = root / "usr/lib/aarch64-linux-gnu"
    library.mkdir(parents=True)
    for name in ("libOpenCL.so.1.0.0", "libteflon.so"):
        (library / name).touch()
    os.symlink("libOpenCL.so.1.0.0", library / "libOpenCL.so.1")
    os.symlink("nowhere", library / "libvx_delegate.so")
    board = read_board(root)
    assert [(icd.library, icd.is_found) for icd in board.icds] == [
        ("libRusticlOpenCL.so.1", None),
        ("/usr/lib/libVivanteOpenCL.so", False),
    ]
    assert board.loaders == ("/usr/lib/aarch64-linux-gnu/libOpenCL.so.1",)
    assert board.delegates == ("/usr/lib/aarch64-linux-gnu/libteflon.so",)
    (root / "usr/lib/libVivanteOpenCL.so").touch()
    assert read_board(root).icds[1].is_found


def test_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = BOARDS["imx8mp"].write(tmp_path)
    (root / "dev/galcore").chmod(0o600)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root can open everything
    (galcore,) = read_board(root).files
    assert (galcore.may_open, galcore.mode) == (False, "-rw-------")


def test_folder_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, seen = BOARDS["imx8mp"].write(tmp_path), os.stat

    def stat(path: Any, *args: Any, **keywords: Any) -> os.stat_result:
        if any(each in os.fspath(path) for each in ("device-tree", "devicetree", "sys/module")):
            raise PermissionError(13, "Permission denied", path)
        return seen(path, *args, **keywords)

    monkeypatch.setattr(os, "stat", stat)  # root can read every folder
    board = read_board(root)
    assert (board.compatible, board.nodes, board.modules) == ((), (), ())


def test_invalid_files(tmp_path: Path) -> None:
    root = BOARDS["vim3"].write(tmp_path)
    write_icd(root, "long", "/" + "x" * 300)
    device = root / "sys/class/drm/renderD200/device"
    device.mkdir(parents=True)
    (device / "uevent").write_text("DRIVER=a\nOF_COMPATIBLE_N=many\nOF_COMPATIBLE_0=b\n")
    board = read_board(root)
    assert [icd.is_found for icd in board.icds] == [False]
    assert (board.drm[-1].driver, board.drm[-1].compatible) == ("a", ("b",))
