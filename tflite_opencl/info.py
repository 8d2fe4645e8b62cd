# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl info`: what this machine is, whether it can run, and what to do next."""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from delegate.inspect import DeviceLimits, PlatformInfo, lift_bans, list_bans
from tflite_opencl.boards.advice import expectation, next_steps
from tflite_opencl.boards.bans import ban_entry, bans_text
from tflite_opencl.boards.board import Board, delegate_text, icd_folder, read_board
from tflite_opencl.boards.drivers import LoadedIcd, SurveyedDevice, meant
from tflite_opencl.boards.facts import Info, facts_here
from tflite_opencl.boards.own_profile import write_profile
from tflite_opencl.common.exit_codes import USAGE
from tflite_opencl.common.tables import pairs
from tflite_opencl.common.words import stamped
from tflite_opencl.errors import CommandError, require_writable

Rows = Sequence[tuple[str, str]]  # a name and its value, for people
HELP = "what this board is, what its OpenCL drivers say and do, and what to do next"
EXAMPLES = (
    ("tflite-opencl info", "for people"),
    ("tflite-opencl info --device 0 --write_profile board.toml",
     "keep the limits of device 0, for --device_profile on another machine"),
    ("tflite-opencl info --bans", "which kernels are left out, as child processes died of them"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's flags."""
    parser.add_argument(
        "--json", action="store_true", help="print all facts as JSON instead of for people"
    )
    parser.add_argument(
        "--root",
        metavar="DIR",
        default="/",
        help="read the files of a recorded machine below DIR; its drivers cannot be asked",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="ask only this device: its index, or words of its name; asking takes some seconds",
    )
    parser.add_argument(
        "--bans",
        action="store_true",
        help="list the kernels that child processes died of, which starts leave out for a week",
    )
    parser.add_argument(
        "--lift_bans", action="store_true", help="let the next starts try those kernels again"
    )
    parser.add_argument(
        "--write_profile",
        metavar="FILE.toml",
        help="write the limits of the first device that works, else of the first that tells its "
        "limits, for --device_profile elsewhere",
    )


def run(options: argparse.Namespace) -> str:
    """Return what to print.

    Raises:
        CommandError: the root is no folder, no device is the one meant, or the profile cannot be
            written.
    """
    width = shutil.get_terminal_size((100, 24)).columns
    if options.lift_bans:
        count = lift_bans()
        lifted = "1 ban is lifted" if count == 1 else f"{count} bans are lifted"
        return f"{lifted}: the next starts try again"
    if options.bans:
        bans = list_bans()
        if options.json:
            return json.dumps(stamped({"bans": [*map(ban_entry, bans)]}), indent=2)
        return bans_text(bans, width)
    if not Path(options.root).is_dir():
        raise CommandError(f"--root {options.root}: there is no such folder")
    asks_profile = options.write_profile is not None
    if asks_profile and not options.write_profile.endswith(".toml"):
        raise CommandError(
            f"--write_profile {options.write_profile}: its name must end in .toml", USAGE
        )
    require_writable(options.write_profile)
    is_here = Path(options.root).resolve() == Path("/")
    if asks_profile and not is_here:
        raise CommandError("--write_profile needs a device: it does nothing with --root", USAGE)
    board = read_board(options.root)
    info = facts_here(board, partial(meant, options.device)) if is_here else _of_files(board)
    if asks_profile:
        written = write_profile(options.write_profile, info.devices)
        info = replace(info, next_steps=(written, *info.next_steps))
    if options.json:
        return json.dumps(stamped(asdict(info)), indent=2)
    return text_of(info, width)


def _of_files(board: Board) -> Info:
    unasked = LoadedIcd((), "not asked: these are another machine's files")
    steps = next_steps(board, (), (), ())
    return Info(board, {}, {}, unasked, (), unasked.failure, tuple(steps))


def text_of(info: Info, width: int) -> str:
    """Return all facts for people."""
    console = Console(width=width, color_system=None, highlight=False, emoji=False, markup=False)
    with console.capture() as captured:
        for title, rows in sections(info):
            console.print(title)
            console.print(pairs(rows, width))
    lines = [line.rstrip() for line in captured.get().splitlines()]
    return "\n".join(lines)


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
