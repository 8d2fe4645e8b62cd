# SPDX-License-Identifier: Apache-2.0
"""A machine described by its files: device tree, sysfs, /dev and libraries. Loads no driver.

All paths are relative to a root, so that a recorded tree of another machine can be read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

# A substring of a device tree node's `compatible` -> the hardware, and its kernel drivers.
# Source: the match tables of the kernel's drivers.
_HARDWARE = (
    (r"vivante,gc$", "Vivante GPU or NPU", ("etnaviv", "galcore")),
    (r"qcom,adreno", "Adreno GPU", ("msm", "kgsl")),
    (r"arm,mali-valhall-csf$", "Mali GPU (Valhall)", ("panthor", "mali")),
    (r"arm,mali-(bifrost|valhall|t\d+)|mediatek,mt\d+-mali", "Mali GPU", ("panfrost", "mali")),
    (r"arm,mali-(300|400|450)", "Mali GPU (Utgard)", ("lima", "mali")),
    (r"brcm,\d+-v3d$", "VideoCore GPU", ("v3d",)),
    (r"rockchip,rk\d+-rknn-core$", "Rockchip NPU core", ("rocket", "rknpu")),
    (r"arm,ethos-u", "Ethos-U NPU", ("ethosu",)),
)
# The first match in a machine's `compatible` names its chip.
_CHIPS = {
    "amlogic,a311d": "Amlogic A311D",
    "amlogic,s905d3": "Amlogic S905D3",
    "fsl,imx8mq": "NXP i.MX 8M Quad",
    "fsl,imx8mp": "NXP i.MX 8M Plus",
    "fsl,imx8mm": "NXP i.MX 8M Mini",
    "fsl,imx8qm": "NXP i.MX 8QuadMax",
    "fsl,imx6q": "NXP i.MX 6Quad",
    "qcom,sdm845": "Qualcomm Snapdragon 845",
    "brcm,bcm2711": "Broadcom BCM2711",
    "brcm,bcm2712": "Broadcom BCM2712",
    "rockchip,rk3588": "Rockchip RK3588",
    "rockchip,rk3588s": "Rockchip RK3588S",
}
# A driver is usable only with permission to open these.
_DEVICE_FILES = (
    *("dev/dri/renderD*", "dev/galcore", "dev/accel/accel*", "dev/mali*", "dev/kgsl-3d0"),
    "dev/rknpu",
)
_MODULES = ("galcore", "mali", "kgsl", "rknpu")  # vendors' kernel modules
_LIBRARY_FOLDERS = (
    *("usr/lib/*-linux-gnu*", "usr/lib64", "usr/lib", "usr/local/lib"),
    *("usr/local/lib/*-linux-gnu*", "opt/lib", "vendor/lib64", "lib/*-linux-gnu*"),
    "usr/lib/teflon",
)
ICD_FOLDER = "etc/OpenCL/vendors"  # where the loader searches for drivers, relative to the root
# Third-party delegates and the hardware they support.
DELEGATES = {
    "libteflon.so": "Mesa's delegate for NPUs",
    "libvx_delegate.so": "VeriSilicon's delegate for its NPUs, on TIM-VX",
    "libarmnnDelegate.so": "Arm NN's delegate",
    "libedgetpu.so.1": "Google's delegate for the Edge TPU",
}


@dataclass(frozen=True, slots=True)
class HardwareNode:
    """A GPU or NPU of the device tree."""

    path: str  # in the device tree
    compatible: tuple[str, ...]
    what: str  # for people
    drivers: tuple[str, ...]  # kernel drivers that support it
    is_enabled: bool  # according to the device tree
    driver: str | None  # the bound driver


@dataclass(frozen=True, slots=True)
class DrmDevice:
    """A graphics or compute device exposed by the kernel."""

    name: str  # renderD128, accel0
    driver: str | None
    compatible: tuple[str, ...]  # of its device tree node


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file in /dev that gives access to a driver."""

    path: str
    may_open: bool  # this user has read and write permission
    mode: str  # crw-rw----


@dataclass(frozen=True, slots=True)
class IcdFile:
    """A file that registers a driver with the OpenCL loader."""

    path: str
    library: str  # the library it names
    is_found: bool | None  # whether the library exists, if it is named by a path


@dataclass(frozen=True, slots=True)
class Board:
    """A machine."""

    model: str | None
    chip: str | None
    compatible: tuple[str, ...]  # of the whole machine
    kernel: str | None  # its release
    nodes: tuple[HardwareNode, ...]
    drm: tuple[DrmDevice, ...]
    modules: tuple[str, ...]  # vendors' kernel modules: galcore, mali, kgsl, rknpu
    files: tuple[DeviceFile, ...]
    loaders: tuple[str, ...]
    icds: tuple[IcdFile, ...]
    delegates: tuple[str, ...]

    def drivers(self) -> set[str]:
        """Return the active kernel drivers: bound to a node, behind a device, or a module."""
        found = {node.driver for node in self.nodes} | {device.driver for device in self.drm}
        return {name for name in found if name} | set(self.modules)


def read_board(root: str | os.PathLike[str] = "/") -> Board:
    """Read a machine's files; missing facts are None or empty."""
    base = Path(root)
    trees = (base / "proc/device-tree", base / "sys/firmware/devicetree/base")
    # Not Path.is_dir, which raises on missing permissions, as in a container.
    tree = next((each for each in trees if os.path.isdir(each)), None)
    compatible = () if tree is None else _strings(tree / "compatible")
    return Board(
        model=_model(base, tree),
        chip=next((_CHIPS[each] for each in compatible if each in _CHIPS), None),
        compatible=compatible,
        kernel=_text(base / "proc/sys/kernel/osrelease"),
        nodes=() if tree is None else tuple(_nodes(base, tree)),
        drm=tuple(_drm(base)),
        modules=tuple(name for name in _MODULES if os.path.isdir(base / "sys/module" / name)),
        files=tuple(_files(base)),
        loaders=_libraries(base, ("libOpenCL.so*",)),
        icds=tuple(_icds(base)),
        delegates=_libraries(base, DELEGATES),
    )


def _model(base: Path, tree: Path | None) -> str | None:
    if tree is not None and (names := _strings(tree / "model")):
        return names[0]
    parts = [_text(base / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    cpu = re.search(r"^model name\s*: *(.+)$", _text(base / "proc/cpuinfo") or "", re.MULTILINE)
    return " ".join(filter(None, parts)) or (cpu[1] if cpu else None)


def _nodes(base: Path, tree: Path) -> Iterator[HardwareNode]:
    bound = _bound(base)
    for folder, folders, names in os.walk(tree):
        folders.sort()
        if "compatible" not in names:
            continue
        compatible = _strings(Path(folder) / "compatible")
        known = next(
            (entry for entry in _HARDWARE for each in compatible if re.match(entry[0], each)), None
        )
        if known is None:
            continue
        path, (_, what, drivers) = _shown(tree, Path(folder)), known
        kind = Path(folder).name.split("@")[0]
        if drivers[0] == "etnaviv" and kind in ("gpu", "npu"):
            what = f"Vivante {kind.upper()}"
        status, *_ = _strings(Path(folder) / "status") or ("okay",)
        is_enabled = status in ("okay", "ok")
        yield HardwareNode(path, compatible, what, drivers, is_enabled, bound.get(path))


def _bound(base: Path) -> dict[str, str]:
    """Return the driver bound to each device tree node, as far as sysfs shows."""
    found: dict[str, str] = {}
    for uevent in (base / "sys/bus/platform/devices").glob("*/uevent"):
        values = _uevent(uevent)
        driver = _driver(values.get("DRIVER") or _link(uevent.parent / "driver"))
        if driver and "OF_FULLNAME" in values:
            found[values["OF_FULLNAME"]] = driver
    return found


def _driver(name: str | None) -> str | None:
    """Return the DRM driver's name: some drivers bind components under other names."""
    if name == "etnaviv-gpu":
        return "etnaviv"
    return "msm" if name and (name == "adreno" or name.startswith("msm")) else name


def _drm(base: Path) -> Iterator[DrmDevice]:
    for folder in _matching(base, ("sys/class/drm/renderD*", "sys/class/accel/accel*")):
        values = _uevent(folder / "device/uevent")
        driver = _driver(_link(folder / "device/driver") or values.get("DRIVER"))
        names = (values.get(f"OF_COMPATIBLE_{i}", "") for i in count())
        yield DrmDevice(folder.name, driver, tuple(takewhile(bool, names)))


def _icds(base: Path) -> Iterator[IcdFile]:
    for path in _matching(base, (f"{ICD_FOLDER}/*.icd",)):
        library = _text(path) or ""
        # Not Path.exists, which raises on overlong names.
        is_there = os.path.exists(base / library.lstrip("/"))
        yield IcdFile(_shown(base, path), library, is_there if library.startswith("/") else None)


def _files(base: Path) -> Iterator[DeviceFile]:
    for path in _matching(base, _DEVICE_FILES):
        mode, may_open = stat.filemode(path.stat().st_mode), os.access(path, os.R_OK | os.W_OK)
        yield DeviceFile(_shown(base, path), may_open, mode)


def _libraries(base: Path, names: Iterable[str]) -> tuple[str, ...]:
    patterns = [f"{folder}/{name}" for folder in _LIBRARY_FOLDERS for name in names]
    return tuple(_shown(base, path) for path in _matching(base, patterns))


def _matching(base: Path, patterns: Iterable[str]) -> list[Path]:
    found: dict[Path, Path] = {}
    for pattern in patterns:
        for path in sorted(base.glob(pattern)):
            if os.path.exists(path):  # the link may be broken
                found.setdefault(path.resolve(), path)
    return list(found.values())


def _shown(base: Path, path: Path) -> str:
    return "/" + path.relative_to(base).as_posix()


def _strings(path: Path) -> tuple[str, ...]:
    """Return the zero-terminated strings of a device tree property."""
    text = _text(path)
    return () if text is None else tuple(filter(None, text.split("\0")))


def _uevent(path: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in (_text(path) or "").splitlines())
    return {key: value for key, _, value in pairs}


def _link(path: Path) -> str | None:
    try:
        return os.path.basename(os.readlink(path))
    except OSError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
