# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl info`: describes this machine, whether OpenCL works, and what to do next."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from delegate.inspect import (
    Ban,
    DeviceLimits,
    device_profile_text,
    lift_bans,
    list_bans,
    profile_of,
)
from tflite_opencl.boards.advice import Situation
from tflite_opencl.boards.board import Board, read_board
from tflite_opencl.boards.drivers import LoadedIcd, SurveyedDevice, meant
from tflite_opencl.boards.facts import Info, facts_here, sections
from tflite_opencl.boards.steps import one_command
from tflite_opencl.cli.flag_values import OutputPath
from tflite_opencl.cli.flags import add_flag
from tflite_opencl.cli.messages import printable
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.console.errors import CommandError, write
from tflite_opencl.console.exit_codes import USAGE
from tflite_opencl.console.tables import columns, pairs, render, terminal_width

HELP = "what this board is, what its OpenCL drivers say and do, and what to do next"
EXAMPLES = (
    ("tflite-opencl info", "for people"),
    ("tflite-opencl info --device 0 --write_profile board.toml",
     "keep the limits of device 0, for --device_profile on another machine"),
    ("tflite-opencl info --bans", "which kernels are left out, as child processes died of them"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's flags."""
    add = parser.add_argument
    add_flag(parser, "json")
    add("--root", metavar="DIR", default="/",
        help="read the files of a recorded machine below DIR; its drivers cannot be asked",
    )  # fmt: skip
    add_flag(parser, "device", more="; only this one is asked, which takes some seconds")
    add("--bans", action="store_true",
        help="list the kernels that child processes died of, which starts leave out for a week",
    )  # fmt: skip
    add("--lift_bans", action="store_true", help="let the next starts try those kernels again")
    add("--write_profile", type=OutputPath, metavar="FILE.toml",
        help="write the limits of the first device that works, else of the first that tells its "
        "limits, for --device_profile elsewhere",
    )  # fmt: skip


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises: CommandError: the root is no folder, no device matches, or the profile cannot
        be written.
    """
    width = terminal_width()
    if options.lift_bans:
        count = lift_bans()
        lifted = "1 ban is lifted" if count == 1 else f"{count} bans are lifted"
        return f"{lifted}: the next starts try again"
    if options.bans:
        bans = list_bans()
        facts = {"bans": [*map(_entry, bans)]}
        return shown(options, bans_text(bans, width), json=lambda: as_json(facts))
    if not os.path.isdir(options.root):
        raise CommandError(f"--root {options.root}: there is no such folder")
    asks_profile = options.write_profile is not None
    if asks_profile and not options.write_profile.endswith(".toml"):
        raise CommandError(
            f"--write_profile {options.write_profile}: its name must end in .toml", USAGE
        )
    is_here = Path(options.root).resolve() == Path("/")
    if asks_profile and not is_here:
        raise CommandError("--write_profile needs a device: it does nothing with --root", USAGE)
    board = read_board(options.root)
    info = facts_here(board, partial(meant, options.device)) if is_here else _of_files(board)
    if asks_profile:
        written = _write_profile(options.write_profile, info.devices)
        info = replace(info, next_steps=(written, *info.next_steps))
    return shown(options, text_of(info, width), json=lambda: as_json(asdict(info)))


def _of_files(board: Board) -> Info:
    unasked = LoadedIcd((), "not asked: these are another machine's files")
    steps = Situation(board).next_steps()
    texts, command = tuple(step.text for step in steps), one_command(steps, has_gpu=False)
    return Info(board, {}, None, {}, {}, unasked, (), unasked.failure, texts, command)


def text_of(info: Info, width: int) -> str:
    """Return all facts as text."""
    parts = ((title, pairs(rows, width)) for title, rows in sections(info))
    text = render(width, *(each for part in parts for each in part))
    # Not wrapped, so that it can be copied.
    return f"{text}\nType this\n  {info.command}" if info.command else text


def _write_profile(path: str, devices: Sequence[SurveyedDevice]) -> str:
    """Write the limits of the first working device, or else of the first that reports any.

    Returns: a hint on how to use the file.
    Raises: CommandError: no device reports its limits, or the file cannot be written.
    """
    telling = [each for each in devices if each.limits is not None]
    chosen = min(telling, key=lambda each: each.failure is not None, default=None)
    if chosen is None or chosen.limits is None:
        raise CommandError("--write_profile: no device here tells its limits")
    profile = profile_of(chosen.info, chosen.limits, frozenset(chosen.isa), Path(path).stem)
    said = f"{chosen.info.name}, {chosen.info.driver}, by clGetDeviceInfo"
    asked = {field.name for field in fields(DeviceLimits)}
    sources = {each.name: said for each in fields(profile) if each.name in asked}
    sources["registers"] = "kept by a small kernel, by clGetKernelWorkGroupInfo"
    sources["isa"] = (
        "proven by self-tests"
        if chosen.failure is None
        else f"nothing is proven: {printable(chosen.failure)}"
    )
    write(path, device_profile_text(profile, sources))
    return f"elsewhere, keep this device's limits: label_image --device_profile {path}"


def bans_text(bans: Sequence[Ban], width: int) -> str:
    """Return a table of bans."""
    if not bans:
        return "nothing is left out: no child process died of a kernel"
    rows = []
    for ban in bans:
        where = "" if ban.holds else ", and in another environment alone"
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(ban.until))
        rows.append((_device(ban), f"to {ban.trial.words}", ban.end, f"{until}{where}"))
    headings = ("device", "left out", "two child processes", "until")
    return render(width, columns(headings, rows, left=4))


def _entry(ban: Ban) -> dict[str, Any]:
    """Return a ban as JSON; times are seconds since 1970."""
    known = {"device": _device(ban), "what": ban.trial.words, "build": ban.trial.build}
    return known | {"end": ban.end, "since": ban.since, "until": ban.until, "holds_here": ban.holds}


def _device(ban: Ban) -> str:
    platform, *more = ban.device.split("|")  # DeviceInfo.identity, and a device profile's
    return f"{more[1]} ({', '.join((platform, *more[2:]))})" if more[2:] else ban.device
