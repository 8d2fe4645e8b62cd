# SPDX-License-Identifier: Apache-2.0
"""Boards as their files show them: device tree, sysfs and /dev, written below a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """A node of a recorded device tree."""

    path: str
    compatible: tuple[str, ...]
    driver: str = ""  # bound to it; "" = none
    status: str = ""  # "" = no such property, which means okay


@dataclass(frozen=True, slots=True)
class RecordedBoard:
    """The contents of a board's files."""

    model: str
    compatible: tuple[str, ...]
    kernel: str
    nodes: tuple[RecordedNode, ...] = ()
    drm: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  # name, driver, compatible of its node
    modules: tuple[str, ...] = ()
    files: tuple[str, ...] = field(default=())  # empty ones, by path

    def write(self, root: Path) -> Path:
        """Write all files below a folder and return it."""
        tree = root / "proc/device-tree"
        _write(tree / "model", self.model + "\0")
        _write(tree / "compatible", _strings(self.compatible))
        _write(root / "proc/sys/kernel/osrelease", self.kernel + "\n")
        for number, node in enumerate(self.nodes):
            folder = tree / node.path.lstrip("/")
            _write(folder / "compatible", _strings(node.compatible))
            if node.status:
                _write(folder / "status", node.status + "\0")
            uevent = f"OF_FULLNAME={node.path}\nOF_COMPATIBLE_0={node.compatible[0]}\n"
            device = root / f"sys/bus/platform/devices/{number}.device"
            _write(device / "uevent", (f"DRIVER={node.driver}\n" if node.driver else "") + uevent)
        for name, driver, compatible in self.drm:
            kind = "accel" if name.startswith("accel") else "drm"
            folder = root / "sys/class" / kind / name / "device"
            lines = [f"OF_COMPATIBLE_{i}={each}\n" for i, each in enumerate(compatible)]
            _write(folder / "uevent", f"OF_COMPATIBLE_N={len(compatible)}\n" + "".join(lines))
            (root / "sys/bus/platform/drivers" / driver).mkdir(parents=True, exist_ok=True)
            os.symlink(f"../../../../bus/platform/drivers/{driver}", folder / "driver")
        for name in self.modules:
            (root / "sys/module" / name).mkdir(parents=True)
        for path in self.files:
            _write(root / path, "")
        return root


def write_icd(root: Path, name: str, library: str) -> None:
    """Add an ICD file that names a library."""
    _write(root / f"etc/OpenCL/vendors/{name}.icd", library + "\n")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _strings(values: Sequence[str]) -> str:
    return "".join(value + "\0" for value in values)


VIVANTE = ("vivante,gc",)
MALI = ("amlogic,meson-g12a-mali", "arm,mali-bifrost")
ADRENO = ("qcom,adreno-630.2", "qcom,adreno")
PANTHOR = ("rockchip,rk3588-mali", "arm,mali-valhall-csf")
BOARDS = {
    "vim3": RecordedBoard(
        "Khadas VIM3",
        ("khadas,vim3", "amlogic,a311d", "amlogic,g12b"),
        "6.12.0",
        (
            RecordedNode("/soc/gpu@ffe40000", MALI, "panfrost"),
            RecordedNode("/soc/npu@ff100000", VIVANTE, "etnaviv-gpu", "okay"),
        ),
        (("renderD128", "panfrost", MALI), ("renderD129", "etnaviv", ())),
        files=("dev/dri/renderD128", "dev/dri/renderD129"),
    ),
    "librem5": RecordedBoard(
        "Purism Librem 5r4",
        ("purism,librem5r4", "purism,librem5", "fsl,imx8mq"),
        "6.6.0",
        (RecordedNode("/soc@0/gpu@38000000", VIVANTE, "etnaviv-gpu"),),
        (("renderD128", "etnaviv", ()),),
        files=("dev/dri/renderD128",),
    ),
    "imx8mp": RecordedBoard(
        "NXP i.MX8MPlus EVK board",
        ("fsl,imx8mp-evk", "fsl,imx8mp"),
        "5.15.71",
        (
            RecordedNode("/soc@0/gpu@38000000", VIVANTE, "galcore"),
            RecordedNode("/soc@0/npu@38500000", VIVANTE, "galcore"),
        ),
        modules=("galcore",),
        files=("dev/galcore", "usr/lib/libvx_delegate.so"),
    ),
    "oneplus6": RecordedBoard(
        "OnePlus 6",
        ("oneplus,enchilada", "qcom,sdm845"),
        "6.11.0",
        (RecordedNode("/soc@0/gpu@5000000", ADRENO, "adreno"),),
        (("renderD128", "msm_dpu", ("qcom,sdm845-dpu",)),),
        files=("dev/dri/renderD128",),
    ),
    "rpi4": RecordedBoard(
        "Raspberry Pi 4 Model B Rev 1.4",
        ("raspberrypi,4-model-b", "brcm,bcm2711"),
        "6.6.20",
        (RecordedNode("/v3dbus/v3d@7ec04000", ("brcm,2711-v3d",), "v3d"),),
        (("renderD128", "v3d", ("brcm,2711-v3d",)),),
        files=("dev/dri/renderD128",),
    ),
    "rk3588": RecordedBoard(
        "QuartzPro64",
        ("pine64,quartzpro64", "rockchip,rk3588"),
        "6.18.0",
        (
            RecordedNode("/gpu@fb000000", PANTHOR, "panthor"),
            RecordedNode("/npu@fdab0000", ("rockchip,rk3588-rknn-core",), "rocket"),
        ),
        (("renderD128", "panthor", PANTHOR), ("accel0", "rocket", ("rockchip,rk3588-rknn-core",))),
        files=("dev/dri/renderD128", "dev/accel/accel0"),
    ),
}
