# SPDX-License-Identifier: Apache-2.0
"""Steps that make hidden hardware and drivers visible, each with a command to type if one does."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from tflite_opencl.boards.board import Board, HardwareNode
from tflite_opencl.boards.device_files import DeviceFile

# The first kernel release with a driver for the chip's NPU. Source: Mesa's docs/teflon.rst
_NPU_KERNELS = {"Amlogic A311D": (6, 7), "NXP i.MX 8M Plus": (6, 8)}
# Of a distribution or one that it derives from: how to install rusticl.
_INSTALL = {
    "debian": "sudo apt install mesa-opencl-icd",
    "alpine": "sudo apk add mesa-rusticl",
    "fedora": "sudo dnf install mesa-libOpenCL",
    "arch": "sudo pacman -S opencl-mesa",
}
_LOOK_AGAIN = "tflite-opencl info"


class NextStep(NamedTuple):
    """What to do next: for people, and as a shell command if one command does it."""

    text: str
    command: str = ""


def one_command(steps: Iterable[NextStep], has_gpu: bool) -> str:
    """Return the command to type: the first one, or the last if a GPU runs; "": there is none."""
    commands = [step.command for step in steps if step.command]
    return commands[-1 if has_gpu else 0] if commands else ""


def install_command(systems: Iterable[str]) -> str:
    """Return what installs rusticl on a distribution, or ""."""
    return next((_INSTALL[each] for each in systems if each in _INSTALL), "")


def enable(driver: str) -> NextStep:
    """Return the step that lets rusticl use a driver."""
    return NextStep(
        f"set RUSTICL_ENABLE={driver}", f"export RUSTICL_ENABLE={driver}; {_LOOK_AGAIN}"
    )


def file_step(file: DeviceFile) -> NextStep:
    """Return how this user may open a device file that is closed."""
    path, group = file.path, file.group
    if file.is_barred:
        return NextStep(
            f"let this container open {path}: its permissions allow it, but the container's device "
            "rules do not; start it with --device /dev/dri instead of a volume"
        )
    if path == "/dev/galcore" or file.mode[4:6] != "rw":
        name, owner = path.rpartition("/")[2], "render" if "renderD" in path else "video"
        kernel = re.sub(r"\d+$", "*", name) if "renderD" in path else name
        rule = f'KERNEL=="{kernel}", GROUP="{owner}", MODE="0660"'
        return NextStep(
            f"let this user open {path}: a udev rule {rule}, and the user in group {owner}",
            f"echo '{rule}' | sudo tee /etc/udev/rules.d/70-{name}.rules && sudo udevadm trigger "
            f"{path} && sudo usermod -aG {owner} $USER",
        )
    if group.isdigit():
        return NextStep(
            f"let this user open {path}: its group {group} has no name here; in a container, start "
            f"it with --group-add {group} (podman: --group-add keep-groups)"
        )
    if file.is_member:
        return NextStep(
            f"let this user open {path}: log in again, as this session is older than the "
            f"membership of group {group}",
            f"sg {group} -c '{_LOOK_AGAIN}'",
        )
    named = group or "render or video"
    command = f"sudo usermod -aG {group} $USER && newgrp {group}" if group else ""
    return NextStep(
        f"let this user open {path}: add the user to group {named}, and log in again", command
    )


def node_steps(node: HardwareNode, board: Board) -> Iterator[NextStep]:
    """Yield how hardware without a driver gets one."""
    what = f"{node.path} ({node.what})"
    if not node.is_enabled:
        yield NextStep(f'enable {what} in the device tree: status = "okay"')
        return
    is_shown = any({*node.compatible} & {*device.compatible} for device in board.drm)
    if node.firmware and not is_shown:
        files = " and ".join(node.firmware)
        yield NextStep(f"install the firmware {files} (of linux-firmware) for {what}, and restart")
    if board.drivers() & {*node.drivers}:
        return
    least = _NPU_KERNELS.get(board.chip or "")
    major, minor, *_ = *map(int, re.findall(r"\d+", board.kernel or "")), 0, 0
    is_old = least is not None and (major, minor) < least
    if least and is_old and node.drivers[0] == "etnaviv" and "NPU" in node.what:
        yield NextStep(f"use a kernel from {least[0]}.{least[1]} on: {what} needs it")
        return
    yield _module_step(node, what)


def _module_step(node: HardwareNode, what: str) -> NextStep:
    found = {each.state: each for each in reversed(node.modules)}
    for module in node.modules:
        if module.blocked_by:
            return NextStep(
                f"let the kernel load {module.name} for {what}: {module.blocked_by} blocks it",
                f"sudo modprobe {module.name}" if module.state == "there" else "",
            )
    names = " or ".join(node.drivers)
    if "there" in found:
        name = found["there"].name
        command = f"sudo modprobe {name} && {_LOOK_AGAIN}"
        return NextStep(f"load the kernel driver {name} for {what}", command)
    for state in ("loaded", "built in"):
        if state in found:
            name = found[state].name
            waits = ", which waits for another device's driver" if node.waits else ""
            return NextStep(
                f"read sudo dmesg for {name}: it is {state}, and did not take {what}{waits}",
                f"sudo dmesg | grep -i -e {name} -e firmware -e deferred",
            )
    if {*found} == {"missing"}:
        return NextStep(
            f"use a kernel with {names}: this one has no such module, and {what} needs it"
        )
    return NextStep(f"load the kernel driver {names} for {what}")


def register(library: str, gives: Collection[str]) -> NextStep:
    """Return how loaders find a driver's library that gives these platforms."""
    name = library.rpartition("/")[2].partition(".")[0].removeprefix("lib")
    return NextStep(
        f"register {library}, which gives {', '.join(gives)}: no .icd file names it",
        f"echo {library} | sudo install -Dm644 /dev/stdin /etc/OpenCL/vendors/{name}.icd && "
        f"{_LOOK_AGAIN}",
    )


def preload(library: str, gives: Collection[str], why: str) -> NextStep:
    """Return how a library that gives these platforms is used in place of pyopencl's loader."""
    command = f"export LD_PRELOAD={library}; {_LOOK_AGAIN}"
    return NextStep(f"set LD_PRELOAD={library}, which gives {', '.join(gives)}, {why}", command)
