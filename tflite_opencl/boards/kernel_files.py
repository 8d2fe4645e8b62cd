# SPDX-License-Identifier: Apache-2.0
"""What a kernel has for a machine's hardware: GPUs on the PCI bus, modules and firmware.

Reads files of sysfs, /proc/cmdline, /lib/modules and /lib/firmware, which need no rights.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tflite_opencl.boards.files import text_of, uevent

# PCI vendor -> the hardware, and its kernel drivers.
_PCI = {
    "0x1002": ("AMD GPU", ("amdgpu", "radeon")),
    "0x8086": ("Intel GPU", ("xe", "i915")),
    "0x10de": ("NVIDIA GPU", ("nvidia", "nouveau")),
}
_DISPLAY = "0x03"  # PCI class
# A device tree node's `compatible` -> firmware without which its driver gives no device, each as
# alternatives. Source: the kernel's drivers/gpu/drm/{msm/adreno,panthor}.
_FIRMWARE = (
    (r"arm,mali-valhall-csf$", ("arm/mali/arch*/mali_csffw.bin*",)),
    (r"qcom,adreno-[67]\d\d\.", ("qcom/a*_sqe.fw*",)),
    (r"qcom,adreno-5\d\d\.", ("qcom/a5*_pm4.fw*",)),
)
_FIRMWARE_FOLDERS = ("lib/firmware", "usr/lib/firmware", "lib/firmware/updates")
_MODULE_FOLDERS = ("lib/modules", "usr/lib/modules")
_RULES = ("etc/modprobe.d", "run/modprobe.d", "usr/lib/modprobe.d", "lib/modprobe.d")


@dataclass(frozen=True, slots=True)
class KernelModule:
    """A kernel driver that hardware without a bound driver needs."""

    name: str
    state: str  # loaded, built in, there, missing; "" = the kernel's files do not tell
    blocked_by: str  # the file that keeps it from being loaded, or ""


def module_of(base: Path, kernel: str | None, name: str) -> KernelModule:
    """Return what is known about a kernel driver.

    `kernel`: the running release, by which its modules are found.
    """
    return KernelModule(name, _state(base, kernel, name), _blocked_by(base, name))


def _state(base: Path, kernel: str | None, name: str) -> str:
    if os.path.isdir(base / "sys/module" / name):
        return "loaded"
    states = {"modules.builtin": "built in", "modules.dep": "there"}
    is_known = False
    for folder in (base / each / (kernel or "unknown") for each in _MODULE_FOLDERS):
        for file, state in states.items():
            content = text_of(folder / file)
            is_known |= content is not None
            if re.search(rf"^(?:\S*/)?{_either(name)}\.ko\b", content or "", re.MULTILINE):
                return state
    return "missing" if is_known else ""


def _blocked_by(base: Path, name: str) -> str:
    """Return the file that blocks a module: a rule of modprobe, or the kernel's command line."""
    rule = re.compile(
        rf"^\s*(?:blacklist\s+{_either(name)}\s*$|install\s+{_either(name)}\s+\S*/(?:false|true)\b)",
        re.MULTILINE,
    )
    for folder in _RULES:
        for path in sorted((base / folder).glob("*.conf")):
            if rule.search(text_of(path) or ""):
                return f"/{folder}/{path.name}"
    for word in (text_of(base / "proc/cmdline") or "").split():
        key, _, names = word.partition("=")
        if key in ("module_blacklist", "modprobe.blacklist") and name in names.split(","):
            return f"{word} in /proc/cmdline"
    return ""


def _either(name: str) -> str:
    """Return a pattern for a module's name, whose files may have - for _."""
    return re.sub("[-_]", "[-_]", re.escape(name))


def missing_firmware(base: Path, compatible: Iterable[str], node: Path) -> tuple[str, ...]:
    """Return the files of linux-firmware that a node's driver needs and does not find.

    `node`: its folder in the device tree, where a zap-shader names a file of its own.
    """
    wanted = [
        patterns
        for pattern, patterns in _FIRMWARE
        if any(re.match(pattern, each) for each in compatible)
    ]
    for path in sorted(node.glob("zap-shader/firmware-name")):
        if name := (text_of(path) or "").strip("\0"):
            wanted.append((f"{name}*",))
    folders = [base / each for each in _FIRMWARE_FOLDERS]
    if not any(os.path.isdir(each) for each in folders):
        return ()  # the firmware may be in an initramfs or in the kernel
    return tuple(
        patterns[0].rstrip("*")
        for patterns in wanted
        if not any(any(folder.glob(each)) for folder in folders for each in patterns)
    )


def pci_gpus(base: Path) -> Iterator[tuple[str, str, str, tuple[str, ...], str | None]]:
    """Yield a PCI bus's GPUs: address, vendor:device, hardware, its drivers, the bound one."""
    for folder in sorted((base / "sys/bus/pci/devices").glob("*")):
        vendor = text_of(folder / "vendor") or ""
        if vendor not in _PCI or not (text_of(folder / "class") or "").startswith(_DISPLAY):
            continue
        what, drivers = _PCI[vendor]
        values = uevent(folder / "uevent")
        identity = values.get("PCI_ID") or f"{vendor[2:]}:{(text_of(folder / 'device') or '')[2:]}"
        yield folder.name, f"pci {identity.lower()}", what, drivers, values.get("DRIVER")
