# SPDX-License-Identifier: Apache-2.0
"""A machine described by its files: device tree, sysfs, /dev and libraries. Loads no driver.

All paths are relative to a root, so that a recorded tree of another machine can be read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path

from tflite_opencl.boards.device_files import DeviceFile, device_files
from tflite_opencl.boards.files import link, matching, shown, strings_of, text_of, uevent
from tflite_opencl.boards.kernel_files import KernelModule, missing_firmware, module_of, pci_gpus

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
_MODULES = ("galcore", "mali", "kgsl", "rknpu")  # vendors' kernel modules
LIBRARY_FOLDERS = (
    *("usr/lib/*-linux-gnu*", "usr/lib64", "usr/lib", "usr/local/lib"),
    *("usr/local/lib/*-linux-gnu*", "opt/lib", "vendor/lib64", "lib/*-linux-gnu*"),
    "usr/lib/teflon",
)
# Drivers' libraries, which packages may leave without an ICD file, and vendors' always do.
_DRIVERS = (
    *("libmali.so*", "libmali-*.so", "libMali.so", "libGLES_mali.so", "libVivanteOpenCL.so*"),
    *("libOpenCL_adreno.so*", "libPVROCL.so*", "libRusticlOpenCL.so*", "libpocl.so*"),
    "libnvidia-opencl.so*",
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
    """A GPU or NPU of the device tree or on the PCI bus."""

    path: str  # in the device tree, or the address on the bus
    compatible: tuple[str, ...]
    what: str  # for people
    drivers: tuple[str, ...]  # kernel drivers that support it
    is_enabled: bool  # according to the device tree
    driver: str | None  # the bound driver
    modules: tuple[KernelModule, ...] = ()  # its kernel drivers, if none is bound
    firmware: tuple[str, ...] = ()  # files that its driver needs and does not find
    waits: bool = False  # its driver waits for that of another device


@dataclass(frozen=True, slots=True)
class DrmDevice:
    """A graphics or compute device exposed by the kernel."""

    name: str  # renderD128, accel0
    driver: str | None
    compatible: tuple[str, ...]  # of its device tree node


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
    bare: tuple[str, ...] = ()  # OpenCL drivers' libraries that no ICD file names
    systems: tuple[str, ...] = ()  # the distribution, and those it derives from: raspbian, debian

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
    compatible = () if tree is None else strings_of(tree / "compatible")
    kernel = text_of(base / "proc/sys/kernel/osrelease")
    icds = tuple(_icds(base))
    return Board(
        model=_model(base, tree),
        chip=next((_CHIPS[each] for each in compatible if each in _CHIPS), None),
        compatible=compatible,
        kernel=kernel,
        nodes=(*(() if tree is None else _nodes(base, tree, kernel)), *_pci_nodes(base, kernel)),
        drm=tuple(_drm(base)),
        modules=tuple(name for name in _MODULES if os.path.isdir(base / "sys/module" / name)),
        files=tuple(device_files(base)),
        loaders=_libraries(base, ("libOpenCL.so*",)),
        icds=icds,
        delegates=_libraries(base, DELEGATES),
        bare=tuple(_bare(base, icds)),
        systems=tuple(_systems(base)),
    )


def _model(base: Path, tree: Path | None) -> str | None:
    if tree is not None and (names := strings_of(tree / "model")):
        return names[0]
    parts = [text_of(base / "sys/class/dmi/id" / name) for name in ("sys_vendor", "product_name")]
    cpu = re.search(r"^model name\s*: *(.+)$", text_of(base / "proc/cpuinfo") or "", re.MULTILINE)
    return " ".join(filter(None, parts)) or (cpu[1] if cpu else None)


def _nodes(base: Path, tree: Path, kernel: str | None) -> Iterator[HardwareNode]:
    bound = _bound(base)
    for folder, folders, names in os.walk(tree):
        folders.sort()
        if "compatible" not in names:
            continue
        compatible = strings_of(Path(folder) / "compatible")
        known = next(
            (entry for entry in _HARDWARE for each in compatible if re.match(entry[0], each)), None
        )
        if known is None:
            continue
        path, (_, what, drivers) = shown(tree, Path(folder)), known
        kind = Path(folder).name.split("@")[0]
        if drivers[0] == "etnaviv" and kind in ("gpu", "npu"):
            what = f"Vivante {kind.upper()}"
        status, *_ = strings_of(Path(folder) / "status") or ("okay",)
        is_enabled, (driver, waits) = status in ("okay", "ok"), bound.get(path, (None, False))
        modules = () if driver else tuple(module_of(base, kernel, each) for each in drivers)
        firmware = missing_firmware(base, compatible, Path(folder))
        yield HardwareNode(
            path, compatible, what, drivers, is_enabled, driver, modules, firmware, waits
        )


def _pci_nodes(base: Path, kernel: str | None) -> Iterator[HardwareNode]:
    for path, compatible, what, drivers, driver in pci_gpus(base):
        modules = () if driver else tuple(module_of(base, kernel, each) for each in drivers)
        yield HardwareNode(path, (compatible,), what, drivers, True, driver, modules)


def _bound(base: Path) -> dict[str, tuple[str | None, bool]]:
    """Return the driver bound to each device tree node, as far as sysfs shows.

    With it: whether the device waits for that of another one.
    """
    found: dict[str, tuple[str | None, bool]] = {}
    for path in (base / "sys/bus/platform/devices").glob("*/uevent"):
        values = uevent(path)
        driver = _driver(values.get("DRIVER") or link(path.parent / "driver"))
        waits = text_of(path.parent / "waiting_for_supplier") == "1"
        if "OF_FULLNAME" in values:
            found[values["OF_FULLNAME"]] = driver, waits
    return found


def _driver(name: str | None) -> str | None:
    """Return the DRM driver's name: some drivers bind components under other names."""
    if name == "etnaviv-gpu":
        return "etnaviv"
    return "msm" if name and (name == "adreno" or name.startswith("msm")) else name


def _drm(base: Path) -> Iterator[DrmDevice]:
    for folder in matching(base, ("sys/class/drm/renderD*", "sys/class/accel/accel*")):
        values = uevent(folder / "device/uevent")
        driver = _driver(link(folder / "device/driver") or values.get("DRIVER"))
        names = (values.get(f"OF_COMPATIBLE_{i}", "") for i in count())
        yield DrmDevice(folder.name, driver, tuple(takewhile(bool, names)))


def _icds(base: Path) -> Iterator[IcdFile]:
    for path in matching(base, (f"{ICD_FOLDER}/*.icd",)):
        library = text_of(path) or ""
        # Not Path.exists, which raises on overlong names.
        is_there = os.path.exists(base / library.lstrip("/"))
        yield IcdFile(shown(base, path), library, is_there if library.startswith("/") else None)


def _bare(base: Path, icds: Sequence[IcdFile]) -> Iterator[str]:
    """Yield OpenCL drivers' libraries that no ICD file names."""
    named = {os.path.realpath(base / each.library.lstrip("/")) for each in icds}
    names = {os.path.basename(each.library) for each in icds}
    for path in matching(
        base, [f"{folder}/{name}" for folder in LIBRARY_FOLDERS for name in _DRIVERS]
    ):
        links = {each.name for each in path.parent.glob("*.so*") if _is_same(each, path)}
        if os.path.realpath(path) not in named and not names & links:
            yield shown(base, path)


def _is_same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _systems(base: Path) -> list[str]:
    pairs = uevent(base / "etc/os-release")
    return " ".join(pairs.get(key, "").strip("\"'") for key in ("ID", "ID_LIKE")).split()


def _libraries(base: Path, names: Iterable[str]) -> tuple[str, ...]:
    patterns = [f"{folder}/{name}" for folder in LIBRARY_FOLDERS for name in names]
    return tuple(shown(base, path) for path in matching(base, patterns))
