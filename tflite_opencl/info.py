# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl info`: what this machine is, whether it can run, and what to do next."""

from __future__ import annotations

import argparse
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from rich.console import Console

from delegate.inspect import lift_bans, list_bans
from tflite_opencl.common.boards.advice import next_steps
from tflite_opencl.common.boards.bans import ban_entry, bans_text
from tflite_opencl.common.boards.board import Board, read_board
from tflite_opencl.common.boards.drivers import LoadedIcd, meant
from tflite_opencl.common.boards.facts import Info, facts_here
from tflite_opencl.common.boards.own_profile import write_profile
from tflite_opencl.common.boards.sections import sections
from tflite_opencl.common.errors import CommandError, require_writable
from tflite_opencl.common.exit_codes import USAGE
from tflite_opencl.common.flags import add_flag, as_json, shown
from tflite_opencl.common.tables import pairs

HELP = "what this board is, what its OpenCL drivers say and do, and what to do next"
EXAMPLES = (
    ("tflite-opencl info", "for people"),
    ("tflite-opencl info --device 0 --write_profile board.toml",
     "keep the limits of device 0, for --device_profile on another machine"),
    ("tflite-opencl info --bans", "which kernels are left out, as child processes died of them"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's flags."""
    add_flag(parser, "json")
    parser.add_argument(
        "--root",
        metavar="DIR",
        default="/",
        help="read the files of a recorded machine below DIR; its drivers cannot be asked",
    )
    add_flag(parser, "device", more="; only this one is asked, which takes some seconds")
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
        facts = {"bans": [*map(ban_entry, bans)]}
        return shown(options, bans_text(bans, width), json=lambda: as_json(facts))
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
    return shown(options, text_of(info, width), json=lambda: as_json(asdict(info)))


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
