# SPDX-License-Identifier: Apache-2.0
"""All facts of a machine and its drivers as titles and rows, for people."""

from __future__ import annotations

import os
from collections.abc import Sequence

from delegate.inspect import DeviceLimits, PlatformInfo
from tflite_opencl.common.boards.advice import expectation
from tflite_opencl.common.boards.board import Board, delegate_text, icd_folder
from tflite_opencl.common.boards.drivers import SurveyedDevice
from tflite_opencl.common.boards.facts import Info

Rows = Sequence[tuple[str, str]]  # a name and its value, for people


def sections(info: Info) -> list[tuple[str, Rows]]:
    """Return all facts for people: titles, and names with their values."""
    board = info.board
    sections = [
        ("Board", _rows_of_board(board)),
        ("GPUs and NPUs", _rows_of_hardware(board)),
        ("OpenCL drivers", _rows_of_drivers(info)),
    ]
    sections += [
        (f"Device {each.info.index}: {each.info.name}", _rows_of_device(each))
        for each in info.devices
    ]
    if not info.devices:
        sections.append(("Devices", [("none", info.no_devices or "")]))
    if board.delegates:
        found = [(path, delegate_text(path)) for path in board.delegates]
        sections.append(("Other delegates", found))
    steps = [(f"{number}.", step) for number, step in enumerate(info.next_steps, 1)]
    return [*sections, ("What to do next", steps or [("", "nothing was found to do")])]


def _rows_of_board(board: Board) -> list[tuple[str, str]]:
    return [
        ("model", board.model or "unknown"),
        ("chip", board.chip or ", ".join(board.compatible) or "unknown"),
        ("kernel", board.kernel or "unknown"),
    ]


def _rows_of_hardware(board: Board) -> list[tuple[str, str]]:
    rows = []
    for node in board.nodes:
        state = f"driver {node.driver}" if node.driver else "no driver is bound"
        if not node.is_enabled:
            state = "disabled in the device tree"
        rows.append((node.path, f"{node.what} ({node.compatible[0]}): {state}"))
    for device in board.drm:
        of = f" of {device.compatible[0]}" if device.compatible else ""
        rows.append((device.name, f"driver {device.driver or 'unknown'}{of}"))
    rows += [(name, "the vendor's kernel module is loaded") for name in board.modules]
    for each in board.files:
        may = "this user may open it" if each.may_open else "NOT permitted to this user"
        rows.append((each.path, f"{may} ({each.mode})"))
    return rows or [("none", "neither in a device tree, nor in /sys/class/drm, nor in /dev")]


def _rows_of_drivers(info: Info) -> list[tuple[str, str]]:
    board = info.board
    rows = [("loader", path) for path in board.loaders]
    if not board.loaders:
        rows.append(("loader", "none of the system's; pyopencl's wheels bring one"))
    rows += list(info.environment.items())
    for icd in board.icds:
        gone = ", which is not there" if icd.is_found is False else ""
        said = [f"{icd.library}{gone}"]
        loaded = info.icds.get(icd.path)
        if loaded is not None:
            said += [_platform_text(platform) for platform in loaded.platforms]
            if loaded.failure:
                said.append(f"asked alone, {loaded.failure}")
            elif not loaded.platforms:
                said.append("asked alone, it gives no platform")
        rows.append((icd.path, "\n".join(said)))
    for path in info.icds.keys() - {icd.path for icd in board.icds}:
        loaded = info.icds[path]
        left_out = f"left out: {loaded.left_out}" if loaded.left_out else ""
        said = [*map(_platform_text, loaded.platforms), loaded.failure or left_out]
        rows.append((path, "\n".join(said).strip()))
    if not board.icds:
        rows.append((f"/{icd_folder()}", "no .icd file: no driver is installed"))
    together = [_platform_text(platform) for platform in info.platforms.platforms]
    rows.append(("all together", info.platforms.failure or "\n".join(together) or "no platform"))
    return rows


def _platform_text(platform: PlatformInfo) -> str:
    # PoCL goes on with how it was built.
    return f"{platform.name} ({platform.version.split('  ')[0]}): {_devices_text(platform)}"


def _devices_text(platform: PlatformInfo) -> str:
    if platform.devices:
        return ", ".join(platform.devices)
    why = "no devices"
    if platform.name == "rusticl" and not os.environ.get("RUSTICL_ENABLE"):
        why += "; it shows them only with RUSTICL_ENABLE=<driver>"
    elif platform.name == "rusticl":
        enabled = os.environ["RUSTICL_ENABLE"]
        why += f"; RUSTICL_ENABLE={enabled} names no driver of this Mesa, or no hardware of it"
    return why


def _rows_of_device(device: SurveyedDevice) -> list[tuple[str, str]]:
    info, limits, rates = device.info, device.limits, device.rates
    rows = [
        ("platform", f"{info.platform}, driver {info.driver}, {info.version}"),
        ("self-test", device.failure or "passed"),
    ]
    if limits is not None:
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
            ("has", ", ".join(_has(limits)) or "neither 64-bit integers, doubles, halves nor "
             "images"),
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


def _has(limits: DeviceLimits) -> list[str]:
    return [
        text
        for text, is_there in (
            ("64-bit integers", limits.has_int64),
            ("doubles", limits.has_fp64),
            ("halves", limits.has_fp16),
            ("images", limits.has_images),
        )
        if is_there
    ]


def _size(size_bytes: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << shift:
            return f"{size_bytes / (1 << shift):.4g} {unit}"
    return f"{size_bytes} bytes"
