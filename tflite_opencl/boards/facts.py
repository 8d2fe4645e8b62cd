# SPDX-License-Identifier: Apache-2.0
"""Collects all facts about this machine and its drivers, and formats them for people."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from delegate import DeviceInfo
from delegate.inspect import Icd, PlatformInfo, icd_loader, icd_loader_reads, list_icds
from tflite_opencl.boards import drivers, loaders
from tflite_opencl.boards.advice import Situation, expectation, library_steps
from tflite_opencl.boards.board import DELEGATES, ICD_FOLDER, Board
from tflite_opencl.boards.drivers import LoadedIcd, SurveyedDevice
from tflite_opencl.boards.loaders import why_dropped
from tflite_opencl.boards.steps import NextStep, one_command
from tflite_opencl.console import bars

Choose = Callable[[Sequence[DeviceInfo]], Sequence[DeviceInfo]]
Rows = Sequence[tuple[str, str]]  # a name and its value, for people
_HAS = (
    ("has_int64", "64-bit integers"),
    ("has_fp64", "doubles"),
    ("has_fp16", "halves"),
    ("has_images", "images"),
)
_ENVIRONMENT = (
    *("RUSTICL_ENABLE", "RUSTICL_FEATURES", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"),
    *("OPENCL_VENDOR_PATH", "POCL_AFFINITY"),
)


@dataclass(frozen=True, slots=True)
class Info:
    """Everything that `info` shows."""

    board: Board
    environment: dict[str, str]  # variables that drivers read
    loader: str | None  # the ICD loader that pyopencl uses
    other_loaders: dict[str, LoadedIcd]  # the path of another loader -> what it would find
    icds: dict[str, LoadedIcd]  # an ICD file's path -> what its driver reports
    platforms: LoadedIcd
    devices: tuple[SurveyedDevice, ...]
    no_devices: str | None  # why there are none
    next_steps: tuple[str, ...]
    command: str = ""  # the one to type first
    bare: dict[str, LoadedIcd] = field(default_factory=dict)  # of libraries without an ICD file


def facts_here(board: Board, choose: Choose) -> Info:
    """Return all facts of this machine; `choose`: selects devices to query, which takes seconds.

    Raises: what `choose` raises.
    """
    # The loader's variables may select other files than the board's, which may be unreadable.
    entries = {icd.path: icd for icd in list_icds()}
    for file in board.icds:
        entries.setdefault(file.path, Icd(file.path, file.library))
    with bars.parts() as tell:
        tell(0.0, "asking the drivers")
        icds = {path: drivers.ask_icd(icd) for path, icd in entries.items()}
        platforms = drivers.ask_all()
        others, bare = loaders.other_loaders(board), loaders.bare_libraries(board)
        found, why_none = drivers.ask_devices()
        surveyed = []
        asked = choose(found)
        for number, info in enumerate(asked, 1):
            tell(number / (len(asked) + 1), f"asking {info.name}")
            surveyed.append(drivers.ask_device(info))
    libraries = {path: icd.library for path, icd in entries.items()}
    steps = loaders.userland_steps()
    steps += library_steps(libraries, {path: loaded.failure for path, loaded in icds.items()})
    steps += loaders.hidden_steps(others, bare, platforms, bool(board.drivers()))
    working = [each.info for each in surveyed if each.failure is None]
    enabled = os.environ.get("RUSTICL_ENABLE", "")
    steps += Situation(board, platforms.platforms, working, enabled).next_steps(
        [f"{each.info.name}: {each.failure}" for each in surveyed if each.failure]
    )
    if not found and (vendors := os.environ.get("OCL_ICD_VENDORS")):
        there = "" if os.path.exists(vendors) else ", which is not there"
        text = f"OCL_ICD_VENDORS names {vendors}{there}: unset it, and look again"
        steps = [NextStep(text, "unset OCL_ICD_VENDORS; tflite-opencl info"), *steps]
    environment = {name: _value_of(name) for name in _ENVIRONMENT if name in os.environ}
    return Info(
        board, environment, icd_loader(), others, icds, platforms, tuple(surveyed), why_none,
        tuple(step.text for step in steps),
        one_command(steps, any(info.type == "gpu" for info in working)), bare,
    )  # fmt: skip


def _value_of(variable: str) -> str:
    """Return an environment variable's value, and whether the loader reads it."""
    is_loaders = variable.startswith(("OCL_ICD_", "OPENCL_VENDOR_"))
    unread = (
        " (this loader does not read it)" if is_loaders and not icd_loader_reads(variable) else ""
    )
    return os.environ[variable] + unread


def sections(info: Info) -> list[tuple[str, Rows]]:
    """Return all facts as text: titles, and names with their values."""
    board = info.board
    chip = board.chip or ", ".join(board.compatible)
    of_board = {"model": board.model, "chip": chip, "kernel": board.kernel}
    others = [(path, DELEGATES.get(Path(path).name, "a delegate")) for path in board.delegates]
    steps = [(f"{number}.", step) for number, step in enumerate(info.next_steps, 1)]
    return [
        ("Board", [(name, fact or "unknown") for name, fact in of_board.items()]),
        ("GPUs and NPUs", _rows_of_hardware(board)),
        ("OpenCL drivers", _rows_of_drivers(info)),
        *((f"Device {d.info.index}: {d.info.name}", _rows_of_device(d)) for d in info.devices),
        *([] if info.devices else [("Devices", [("none", info.no_devices or "")])]),
        *([("Other delegates", others)] if others else []),
        ("What to do next", steps or [("", "nothing was found to do")]),
    ]


def _rows_of_hardware(board: Board) -> list[tuple[str, str]]:
    rows = []
    for node in board.nodes:
        state = f"driver {node.driver}" if node.driver else "no driver is bound"
        if not node.is_enabled:
            state = "disabled in the device tree"
        for module in node.modules:
            state += f"; module {module.name}: {module.state}" if module.state else ""
        rows.append((node.path, f"{node.what} ({node.compatible[0]}): {state}"))
    for device in board.drm:
        of = f" of {device.compatible[0]}" if device.compatible else ""
        rows.append((device.name, f"driver {device.driver or 'unknown'}{of}"))
    rows += [(name, "the vendor's kernel module is loaded") for name in board.modules]
    may = {True: "this user may open it", False: "NOT permitted to this user"}
    for each in board.files:
        group = f", group {each.group}" if each.group else ""
        rows.append((each.path, f"{may[each.may_open]} ({each.mode}{group})"))
    return rows or [("none", "neither in a device tree, nor in /sys/class/drm, nor in /dev")]


def _rows_of_drivers(info: Info) -> list[tuple[str, str]]:
    board = info.board
    none = "none of the system's; pyopencl's wheels bring one"
    rows = [
        ("loader", path) for path in ([info.loader] if info.loader else board.loaders or [none])
    ]
    for path, seen in info.other_loaders.items():
        names = ", ".join(each.name for each in seen.platforms) or "no platform"
        rows.append(("other loader", f"{path}, which finds {seen.failure or names}"))
    for path in board.bare:
        seen = info.bare.get(path, LoadedIcd((), None))
        told = "\n".join(map(_platform_text, seen.platforms)) or seen.failure
        rows.append((path, f"no .icd file names it\n{told or why_dropped(path)[2:]}".strip()))
    rows += info.environment.items()
    for icd in board.icds:
        gone = ", which is not there" if icd.is_found is False else ""
        said = [f"{icd.library}{gone}"]
        if (loaded := info.icds.get(icd.path)) is not None:
            said += map(_platform_text, loaded.platforms)
            if loaded.failure or not loaded.platforms:
                why = loaded.failure or f"it gives no platform{why_dropped(icd.library)}"
                said.append(f"asked alone, {why}")
        rows.append((icd.path, "\n".join(said)))
    for path in info.icds.keys() - {icd.path for icd in board.icds}:
        loaded = info.icds[path]
        left_out = f"left out: {loaded.left_out}" if loaded.left_out else ""
        said = [*map(_platform_text, loaded.platforms), loaded.failure or left_out]
        if not any(said):
            said = [f"{loaded.library}: it gives no platform{why_dropped(loaded.library)}"]
        rows.append((path, "\n".join(said).strip()))
    if not board.icds:
        rows.append((f"/{ICD_FOLDER}", "no .icd file: no driver is installed"))
    together = "\n".join(map(_platform_text, info.platforms.platforms))
    rows.append(("all together", info.platforms.failure or together or "no platform"))
    return rows


def _platform_text(platform: PlatformInfo) -> str:
    devices = ", ".join(platform.devices) or "no devices"
    if platform.name == "rusticl" and not platform.devices:
        enabled = os.environ.get("RUSTICL_ENABLE")
        devices += (
            f"; RUSTICL_ENABLE={enabled} names no driver of this Mesa, or no hardware of it"
            if enabled
            else "; it shows them only with RUSTICL_ENABLE=<driver>"
        )
    # PoCL's version string continues with its build options.
    return f"{platform.name} ({platform.version.split('  ')[0]}): {devices}"


def _rows_of_device(device: SurveyedDevice) -> list[tuple[str, str]]:
    info, limits, rates = device.info, device.limits, device.rates
    rows = [
        ("platform", f"{info.platform}, driver {info.driver}, {info.version}"),
        ("self-test", device.failure or "passed"),
    ]
    if limits is not None:
        has = ", ".join(word for name, word in _HAS if getattr(limits, name))
        rows += [
            ("type", f"{info.type}, {limits.compute_units} units at {limits.clock_mhz} MHz, "
             f"{limits.address_bits}-bit addresses, {limits.profile}, {limits.opencl_c}"),
            ("work-group", f"at most {limits.max_work_group_size} items "
             f"({' x '.join(map(str, limits.max_work_item_sizes))})"),
            ("memory", f"{_size(limits.global_mem_bytes)}, one buffer at most "
             f"{_size(limits.max_alloc_bytes)}; local {_size(limits.local_mem_bytes)}"
             f"{' (in global memory)' if limits.is_local_mem_global else ''}; arguments "
             f"{limits.max_argument_bytes} bytes; sub-buffers at {limits.sub_buffer_align_bytes}"),
            ("vectors", f"int{limits.int_vector_width}, float{limits.float_vector_width} "
             "natively"),
            ("has", has or "neither 64-bit integers, doubles, halves nor images"),
            ("proven", ", ".join(device.isa) or "nothing beyond OpenCL C 1.2"),
            ("extensions", " ".join(limits.extensions)),
        ]  # fmt: skip
    if rates is not None:
        rows += [
            ("launch", f"{rates.launch_us:.1f} us until its end"),
            ("copies", f"{rates.upload_gb_s:.2f} GB/s up, {rates.download_gb_s:.2f} GB/s down"),
            ("multiply-adds", f"{rates.int8_giga_mads:.1f} G/s of bytes, "
             f"{rates.float_giga_mads:.1f} G/s of floats"),
        ]  # fmt: skip
    if (expected := expectation(info)) is not None:
        rows.append(("MobileNet V1", expected))
    return rows


def _size(size_bytes: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << shift:
            return f"{size_bytes / (1 << shift):.4g} {unit}"
    return f"{size_bytes} bytes"
