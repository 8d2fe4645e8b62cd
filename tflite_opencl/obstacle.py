# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl obstacle FAMILY`: one line saying why a board family cannot run here."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict

from tflite_opencl.boards import drivers
from tflite_opencl.boards.advice import FAMILIES, Situation, devices_of, family
from tflite_opencl.boards.board import read_board
from tflite_opencl.cli.flags import add_flag
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.console import bars
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import NOT_SO

HELP = "the first thing that is missing to run on a family of boards; exit code 1 if anything is"
EXAMPLES = (("tflite-opencl obstacle panfrost", "in a script: does this board lack anything?"),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    parser.add_argument("family", choices=[each.name for each in FAMILIES])
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Return the device that would be used.

    Raises: CommandError: a prerequisite is missing; its text goes to stdout.
    """
    of = family(options.family)
    with bars.waiting("asking the drivers"):
        platforms, (devices, _) = drivers.ask_all(), drivers.ask_devices()
    enabled = os.environ.get("RUSTICL_ENABLE", "")
    missing = Situation(read_board(), platforms.platforms, devices, enabled).obstacle(of)
    info = None if missing else devices_of(of, devices)[0]
    text = f"{of.name}: {missing}"
    if info is not None:
        device = f"{info.name} ({info.platform}, {info.driver})"
        text = f"{of.name}: device {info.index}, {device}"
    facts = {"family": of.name, "obstacle": missing, "device": info and asdict(info)}
    text = shown(options, text, json=lambda: as_json(facts))
    if missing:
        raise CommandError(text, NOT_SO)
    return text
