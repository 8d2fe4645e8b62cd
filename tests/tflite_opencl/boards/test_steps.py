# SPDX-License-Identifier: Apache-2.0
"""What hides hardware and drivers, told by files, and the command to type."""

from __future__ import annotations

import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.boards import BOARDS, RecordedBoard, RecordedNode
from tflite_opencl.boards.advice import Situation
from tflite_opencl.boards.board import read_board
from tflite_opencl.boards.device_files import DeviceFile
from tflite_opencl.boards.steps import NextStep, file_step, one_command

_NODE = RecordedNode("/v3dbus/v3d@7ec04000", ("brcm,2711-v3d",))
_BARE = replace(BOARDS["rpi4"], nodes=(_NODE,), drm=(), files=())
_WHAT = "/v3dbus/v3d@7ec04000 (VideoCore GPU)"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def first_step(root: Path) -> NextStep:
    return Situation(read_board(root)).next_steps()[0]


def written(root: Path, board: RecordedBoard, files: dict[str, str]) -> Path:
    for path, text in files.items():
        write(root / path, text)
    return board.write(root)


MODULES = "lib/modules/6.6.20"


@pytest.mark.parametrize(
    ("files", "text", "command"),
    [
        ({f"{MODULES}/modules.dep": "kernel/drivers/gpu/drm/v3d/v3d.ko.xz: kernel/x.ko.xz\n"},
         f"load the kernel driver v3d for {_WHAT}", "sudo modprobe v3d && tflite-opencl info"),
        ({f"usr/{MODULES}/modules.dep": "kernel/drivers/gpu/drm/v3d/v3d.ko:\n",
          "etc/modprobe.d/no.conf": "# why\nblacklist v3d\n"},
         f"let the kernel load v3d for {_WHAT}: /etc/modprobe.d/no.conf blocks it",
         "sudo modprobe v3d"),
        ({"proc/cmdline": "quiet module_blacklist=vc4,v3d splash"},
         f"let the kernel load v3d for {_WHAT}: module_blacklist=vc4,v3d in /proc/cmdline "
         "blocks it", "sudo apt install mesa-opencl-icd"),
        ({f"{MODULES}/modules.dep": "kernel/drivers/gpu/drm/xv3d/av3d.ko:\n"},
         f"use a kernel with v3d: this one has no such module, and {_WHAT} needs it",
         "sudo apt install mesa-opencl-icd"),
        ({f"{MODULES}/modules.builtin": "kernel/drivers/gpu/drm/v3d/v3d.ko\n"},
         f"read sudo dmesg for v3d: it is built in, and did not take {_WHAT}",
         "sudo dmesg | grep -i -e v3d -e firmware -e deferred"),
        ({"sys/module/v3d/x": "", "sys/bus/platform/devices/0.device/waiting_for_supplier": "1\n"},
         f"read sudo dmesg for v3d: it is loaded, and did not take {_WHAT}, which waits for "
         "another device's driver", "sudo dmesg | grep -i -e v3d -e firmware -e deferred"),
    ],
    ids=["there", "blocked", "cmdline", "missing", "built in", "waits"],
)  # fmt: skip
def test_kernel_module(files: dict[str, str], text: str, command: str, tmp_path: Path) -> None:
    release = {"etc/os-release": 'ID=raspbian\nID_LIKE="debian"\n'}
    root = written(tmp_path, _BARE, files | release)
    steps = Situation(read_board(root)).next_steps()
    assert steps[0].text == text
    assert one_command(steps, has_gpu=False) == command


def test_firmware_is_missing_until_its_file_is_there(tmp_path: Path) -> None:
    board = replace(BOARDS["rk3588"], drm=())
    root = written(tmp_path, board, {"usr/lib/firmware/arm/x": ""})
    assert first_step(root).text == (
        "install the firmware arm/mali/arch*/mali_csffw.bin (of linux-firmware) for "
        "/gpu@fb000000 (Mali GPU (Valhall)), and restart"
    )
    write(root / "usr/lib/firmware/arm/mali/arch10.8/mali_csffw.bin.zst", "")
    assert "firmware" not in first_step(root).text


def test_firmware_that_the_device_tree_names(tmp_path: Path) -> None:
    board = replace(BOARDS["oneplus6"], drm=())
    root = written(tmp_path, board, {"lib/firmware/qcom/a630_sqe.fw": ""})
    zap = root / "proc/device-tree/soc@0/gpu@5000000/zap-shader/firmware-name"
    write(zap, "qcom/sdm845/oneplus6/a630_zap.mbn\0")
    assert "the firmware qcom/sdm845/oneplus6/a630_zap.mbn (of" in first_step(root).text
    write(root / "lib/firmware/qcom/sdm845/oneplus6/a630_zap.mbn.xz", "")
    assert "firmware" not in first_step(root).text


def test_gpu_that_works_needs_no_firmware(tmp_path: Path) -> None:
    root = written(tmp_path, BOARDS["rk3588"], {"lib/firmware/x": ""})
    assert not any("firmware" in step.text for step in Situation(read_board(root)).next_steps())


def test_gpu_on_the_pci_bus(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:03:00.0"
    for name, text in {"vendor": "0x1002", "class": "0x030000", "device": "0x15bf"}.items():
        write(folder / name, f"{text}\n")
    write(tmp_path / "sys/bus/pci/devices/0000:00:1f.3/vendor", "0x8086\n")
    write(tmp_path / "sys/bus/pci/devices/0000:00:1f.3/class", "0x040300\n")
    write(tmp_path / "proc/sys/kernel/osrelease", "6.12\n")
    write(tmp_path / "lib/modules/6.12/modules.dep", "kernel/drivers/gpu/drm/amd/amdgpu.ko:\n")
    (node,) = read_board(tmp_path).nodes
    assert (node.path, node.compatible) == ("0000:03:00.0", ("pci 1002:15bf",))
    step = first_step(tmp_path)
    assert step.text == "load the kernel driver amdgpu for 0000:03:00.0 (AMD GPU)"
    write(folder / "uevent", "DRIVER=amdgpu\nPCI_ID=1002:15BF\n")
    board = read_board(tmp_path)
    assert board.drivers() == {"amdgpu"}
    assert first_step(tmp_path).text == (
        "install rusticl (Debian: mesa-opencl-icd) and set RUSTICL_ENABLE=radeonsi"
    )


CLOSED = DeviceFile("/dev/dri/renderD128", False, "crw-rw----", "render")


@pytest.mark.parametrize(
    ("file", "text", "command"),
    [
        (CLOSED, "add the user to group render, and log in again",
         "sudo usermod -aG render $USER && newgrp render"),
        (replace(CLOSED, is_member=True), "log in again, as this session is older than",
         "sg render -c 'tflite-opencl info'"),
        (replace(CLOSED, group="992"), "it with --group-add 992 (podman: --group-add keep", ""),
        (replace(CLOSED, is_barred=True), "it with --device /dev/dri instead of a volume", ""),
        (replace(CLOSED, mode="crw-------"),
         'a udev rule KERNEL=="renderD*", GROUP="render", MODE="0660", and the user in group',
         """echo 'KERNEL=="renderD*", GROUP="render", MODE="0660"' | sudo tee """
         "/etc/udev/rules.d/70-renderD128.rules && sudo udevadm trigger /dev/dri/renderD128 && "
         "sudo usermod -aG render $USER"),
    ],
    ids=["group", "old session", "container", "device rules", "root's"],
)  # fmt: skip
def test_closed_render_node(file: DeviceFile, text: str, command: str) -> None:
    step = file_step(file)
    assert step.text.startswith("let this ")
    assert text in step.text
    assert step.command == command


def test_group_of_a_node(tmp_path: Path) -> None:
    root, user = BOARDS["rpi4"].write(tmp_path), pwd.getpwuid(os.getuid()).pw_name
    (file,) = read_board(root).files
    number = os.stat(root / "dev/dri/renderD128").st_gid
    assert (file.group, file.is_member) == (str(number), False)
    write(root / "etc/group", f"a:x:{number}1:{user}\nrender:x:{number}:somebody,{user}\n")
    (file,) = read_board(root).files
    assert (file.group, file.is_member) == ("render", True)
    write(root / "etc/group", f"render:x:{number}:somebody\n")
    assert read_board(root).files[0].is_member is False


def test_node_that_device_rules_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, opened = BOARDS["rpi4"].write(tmp_path), os.open
    (file,) = read_board(root).files
    assert (file.may_open, file.is_barred) == (True, False)

    def refuse(path: object, *args: int, **more: int) -> int:
        if str(path).endswith("renderD128"):
            raise PermissionError(1, "Operation not permitted")
        return opened(path, *args, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "open", refuse)
    (file,) = read_board(root).files
    assert (file.may_open, file.is_barred) == (False, True)


def test_bare_libraries(tmp_path: Path) -> None:
    folder = "usr/lib/aarch64-linux-gnu"
    write(tmp_path / folder / "libmali-bifrost.so.1.9.0", "")
    os.symlink("libmali-bifrost.so.1.9.0", tmp_path / folder / "libmali.so.1")
    write(tmp_path / folder / "libRusticlOpenCL.so.1.0.0", "")
    os.symlink("libRusticlOpenCL.so.1.0.0", tmp_path / folder / "libRusticlOpenCL.so.1")
    write(tmp_path / "etc/OpenCL/vendors/rusticl.icd", "libRusticlOpenCL.so.1\n")
    assert read_board(tmp_path).bare == (f"/{folder}/libmali.so.1",)
    write(tmp_path / "etc/OpenCL/vendors/mali.icd", f"/{folder}/libmali.so.1\n")
    assert read_board(tmp_path).bare == ()


def test_a_gpu_that_runs_decides_the_command() -> None:
    steps = [NextStep("a"), NextStep("b", "fix"), NextStep("c"), NextStep("d", "run")]
    assert one_command(steps, has_gpu=False) == "fix"
    assert one_command(steps, has_gpu=True) == "run"
    assert one_command(steps[:1], has_gpu=True) == ""
