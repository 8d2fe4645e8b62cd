# SPDX-License-Identifier: Apache-2.0
"""Diagnoses why a machine's GPU is not usable and what to do next, from collected facts only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from delegate import DeviceInfo
from delegate.inspect import PlatformInfo
from tflite_opencl.boards.board import Board
from tflite_opencl.boards.steps import NextStep, enable, file_step, install_command, node_steps

# PCs' kernel drivers -> their names in RUSTICL_ENABLE. Source: Mesa's docs/rusticl.rst
_OF_PCS = {
    **{"amdgpu": "radeonsi", "radeon": "radeonsi", "i915": "iris", "xe": "iris"},
    **{"nouveau": "nouveau", "asahi": "asahi"},
}
_NO_ETNAVIV = "no release of Mesa has OpenCL on etnaviv (its merge request 18986 is not merged)"


@dataclass(frozen=True, slots=True)
class Family:
    """Boards supported by one driver."""

    name: str
    kernel_drivers: tuple[str, ...]  # () = none needed
    rusticl: str | None  # its name in RUSTICL_ENABLE
    words: tuple[str, ...]  # one of them is in its platform's or device's name
    node: str  # what the device tree must contain, for people
    expect: str  # MobileNet V1 1.0 224, uint8, and when the CPU is faster
    mesa: str = ""  # the first Mesa whose rusticl supports it


# "predicted": from compiler listings and data sheets, as explained in docs/boards/compilers.md.
FAMILIES = (
    Family("vivante", ("etnaviv", "galcore"), "etnaviv", ("vivante",), "a vivante,gc node",
           "not known; a launch alone takes 0.2 ms, and there are 30; an NPU with Mesa's "
           "libteflon.so takes 7 to 8 ms"),
    Family("msm", ("msm",), "freedreno", ("qualcomm", "freedreno", "fd6", "adreno"),
           "a qcom,adreno node",
           "6 ms on an Adreno 630 and 2 ms on a 740, predicted and not measured", "24.3"),
    Family("panfrost", ("panfrost", "panthor"), "panfrost", ("panfrost", "mali"),
           "an arm,mali-* node",
           "7 ms on a Mali-G610 and 48 ms on a G52, predicted and not measured; beside a G52 "
           "four large CPU cores are the better choice", "22.3"),
    Family("v3d", ("v3d",), "v3d", ("v3d", "broadcom"), "a brcm,*-v3d node",
           "120 ms on a Raspberry Pi 4, predicted and not measured; the CPU is faster: take the "
           "GPU only to leave the CPU to other work", "24.2"),
    Family("llvmpipe", (), "llvmpipe", ("llvmpipe",), "",
           "27 to 47 ms on two x86 cores; it is a test of rusticl, and the CPU itself is faster"),
    Family("pocl", (), None, ("portable computing language",), "",
           "0.8 to 1.7 ms on two x86 cores with VNNI, 0.16 to 0.34 of XNNPACK's time; measure "
           "other CPUs by tflite-opencl compare"),
)  # fmt: skip


def family(name: str) -> Family:
    """Return a family by its name."""
    return next(each for each in FAMILIES if each.name == name)


def devices_of(of: Family, devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Return a family's devices."""
    return [info for info in devices if any(info.matches(words) for words in of.words)]


def expectation(device: DeviceInfo) -> str | None:
    """Return the expected MobileNet V1 times on such a device; None: unknown family."""
    return next((of.expect for of in FAMILIES if devices_of(of, [device])), None)


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known about a machine: from its files, and from its drivers."""

    board: Board
    platforms: Sequence[PlatformInfo] = ()
    devices: Sequence[DeviceInfo] = ()
    rusticl_enable: str = ""

    def obstacle(self, of: Family) -> str | None:
        """Return the first missing prerequisite for a family's device; None: nothing is missing."""
        if devices_of(of, self.devices):
            return None
        return _hardware_obstacle(of, self.board) or self._driver_obstacle(of)

    def _driver_obstacle(self, of: Family) -> str:
        icds = self.board.icds
        # pyopencl's wheels contain a loader, so the system needs none.
        if not icds:
            drivers = ", ".join(sorted(self.board.drivers()))
            driver = f"the kernel driver is there ({drivers}), but " if of.kernel_drivers else ""
            return f"{driver}no OpenCL driver (no .icd file) is installed"
        if all(icd.is_found is False for icd in icds):
            return f"{icds[0].path} names {icds[0].library}, which is not there"
        if not self.platforms:
            return "no OpenCL platform was found, though there are .icd files"
        names = [platform.name for platform in self.platforms]
        if "rusticl" not in names or of.rusticl is None:
            return f"no platform has such a device; there are {', '.join(names)}"
        enabled = {word.split(":")[0] for word in self.rusticl_enable.split(",")}
        if of.rusticl not in enabled and not enabled & {*of.kernel_drivers}:
            return f"platform rusticl shows it only with RUSTICL_ENABLE={of.rusticl}"
        if of.name == "vivante":
            return f"platform rusticl has no etnaviv device: {_NO_ETNAVIV}"
        older = f", or is older than {of.mesa} (Debian 13 has 25.0)" if of.mesa else ""
        return f"platform rusticl has no {of.rusticl} device: this Mesa was built without it{older}"

    def next_steps(self, failures: Sequence[str] = ()) -> list[NextStep]:
        """Return what to do, most useful first.

        `failures`: of devices, each with its name.
        """
        board, steps = self.board, list[NextStep]()
        for node in board.nodes:
            steps += node_steps(node, board)
        steps += [file_step(each) for each in board.files if not each.may_open]
        for of in FAMILIES:
            missing = board.drivers() & {*of.kernel_drivers} and self.obstacle(of)
            steps += self._driver_steps(of, missing) if missing else []
        steps += self._steps_of_pcs()
        if not board.icds and not self.devices:
            install = (
                "install an OpenCL driver: on Debian mesa-opencl-icd, or pocl-opencl-icd (CPU)"
            )
            steps.append(NextStep(install, install_command(board.systems)))
        steps += [
            NextStep(f"leave out the device that fails, or mend its driver: {e}") for e in failures
        ]
        steps += [
            NextStep(
                f"the same model through {path}: label_image --external_delegate_path={path}",
                f"label_image --external_delegate_path={path} --image picture.jpg",
            )
            for path in board.delegates
        ]
        for first in self.devices[:1]:
            command = f"label_image --use_gpu --device {first.index} --image picture.jpg"
            steps.append(NextStep(f"run: {command}", command))
        return list(dict.fromkeys(steps))

    def _driver_steps(self, of: Family, missing: str) -> list[NextStep]:
        if of.name == "vivante":
            steps = []
            if any("NPU" in node.what for node in self.board.nodes) and not self.board.delegates:
                steps.append(
                    NextStep(
                        "for the NPU install Mesa's libteflon.so (built with -Dteflon=true) and "
                        "use label_image --external_delegate_path"
                    )
                )
            use = "the vendor's kernel driver galcore with its OpenCL library instead of etnaviv"
            how = f"{use}: {_NO_ETNAVIV}"
            if "galcore" in self.board.drivers():
                how = f"galcore's own OpenCL library: {missing}"
            return [*steps, NextStep(f"for OpenCL use {how}")]
        if not self.board.icds:
            return [self._install(of.rusticl)]
        if "RUSTICL_ENABLE=" in missing and of.rusticl:
            return [enable(of.rusticl)]
        return [NextStep(f"{of.name}: {missing}")]

    def _install(self, driver: str | None) -> NextStep:
        install = "install rusticl (Debian: mesa-opencl-icd)"
        command = install_command(self.board.systems)
        return NextStep(f"{install} and set RUSTICL_ENABLE={driver}", command)

    def _steps_of_pcs(self) -> list[NextStep]:
        """Return how rusticl shows the GPU of a PC, if no platform does."""
        wanted = {_OF_PCS[each] for each in self.board.drivers() if each in _OF_PCS}
        enabled = {word.split(":")[0] for word in self.rusticl_enable.split(",")}
        if not wanted or any(info.type == "gpu" for info in self.devices):
            return []
        if not self.board.icds:
            return [self._install(min(wanted))]
        is_here = any(platform.name == "rusticl" for platform in self.platforms)
        return [enable(each) for each in sorted(wanted - enabled) if is_here]


def _hardware_obstacle(of: Family, board: Board) -> str | None:
    if not of.kernel_drivers:
        return None
    nodes = [node for node in board.nodes if {*node.drivers} & {*of.kernel_drivers}]
    working = board.drivers() & {*of.kernel_drivers}
    if not nodes and not working:
        return f"{of.node} is not in the device tree"
    if not working:
        enabled = [node for node in nodes if node.is_enabled]
        if not enabled:
            return f"{nodes[0].path} is disabled in the device tree"
        names = " or ".join(of.kernel_drivers)
        return f"no kernel driver is bound to {enabled[0].path} ({names})"
    wanted = "/dev/galcore" if "galcore" in working else "/dev/dri/renderD"
    for each in board.files:
        if not each.may_open and each.path.startswith(wanted):
            return f"{each.path} is not permitted to this user ({each.mode})"
    return None


def library_steps(
    libraries: Mapping[str, str], failures: Mapping[str, str | None]
) -> list[NextStep]:
    """Return instructions about OpenCL libraries that crash the process that loads them.

    Both are by .icd file: the library, and how the child that loaded it alone died.
    """
    return [
        NextStep(
            f"remove {path}, or mend {libraries[path]}: asked alone, {failure}",
            f"sudo mv {path} {path}.off",
        )
        for path, failure in failures.items()
        if failure is not None
    ]
