# SPDX-License-Identifier: Apache-2.0
"""The label_image command: arguments -> run -> report. The only module that prints or exits."""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from delegate import list_devices
from delegate.guard.children.channel import stdout_kept_apart
from delegate.inspect import start_early
from label_image import console, flags, report
from label_image.console import log_error
from label_image.many_pictures import ManyPictures
from label_image.one_picture import OnePicture
from label_image.prepare import LABELS_NAME, prepare
from label_image.settings import Settings
from label_image.video.live import Live
from label_image.wrong_kernels import write_programs
from tflite_opencl.cli.flags import prepare_environment
from tflite_opencl.cli.messages import printable, version_lines
from tflite_opencl.cli.scheduler import require_distributed
from tflite_opencl.console import bars, interrupts
from tflite_opencl.console.errors import UsageError
from tflite_opencl.console.exit_codes import NO_DEVICE, SUCCESS, USAGE
from tflite_opencl.console.start import OutputError
from tflite_opencl.models.fetch import OFFICIAL, fetch

_WIDEST = 140  # columns, which all facts of a profile need
log = logging.getLogger("label_image")


def main(arguments: Sequence[str] | None = None) -> int:
    prepare_environment()
    try:
        settings = flags.parse(sys.argv[1:] if arguments is None else arguments)
    except UsageError as error:
        hint = "label_image --help shows the flags"
        console.write(sys.stderr, f"ERROR: {printable(str(error))} ({hint})")
        return USAGE
    if settings.help or settings.help_all:
        console.write(sys.stdout, flags.usage(settings.help_all))
        return SUCCESS

    bars.be_quiet(settings.quiet)
    with contextlib.ExitStack() as stack:
        out = sys.stdout
        if settings.is_on_stdout:
            out = stack.enter_context(stdout_kept_apart())
        stack.enter_context(console.logging_to(sys.stdout, sys.stderr, settings.level))
        try:
            return _command(settings, out)
        except OutputError:  # stdout and stderr cannot be written
            raise
        except Exception as error:
            interrupts.check()  # code interrupted by Ctrl-C may raise errors of its own
            return log_error(error, settings.verbose)


def _command(settings: Settings, out: TextIO) -> int:
    if settings.version:
        console.write(out, "\n".join(version_lines("label_image")))
        return SUCCESS
    if settings.list_devices:
        console.write(out, report.devices_text(list_devices(), _width(out)))
        return SUCCESS
    for warning in settings.warnings:
        log.warning("%s", warning)
    if settings.fetch is not None:
        _fetch(settings.fetch)
        return SUCCESS
    if settings.scheduler:
        require_distributed()
        # An optional dependency that takes half a second to import.
        from label_image.cluster.spread_pictures import SpreadPictures

        prepared = prepare(settings)
        return SpreadPictures(prepared, out, _width(sys.stderr), settings.scheduler).run()
    if settings.use_gpu:
        start_early()
    prepared, width = prepare(settings), _width(sys.stderr)
    if settings.video:
        return Live(prepared, out, width, settings.video).run()
    kind = ManyPictures if settings.is_for_several else OnePicture
    code = kind(prepared, out, width).run()
    if code == NO_DEVICE and settings.fault is not None:
        with bars.waiting("looking for the wrong kernels"):
            lines = write_programs(prepared, settings.fault)
        for line in lines:
            log.warning("%s", line)
    return code


def _fetch(name: str) -> None:
    for each in dict.fromkeys((name, LABELS_NAME) if name in OFFICIAL else (name,)):
        with bars.progress(f"fetching {each}") as progress:
            path = fetch(each, progress)
        log.info("%s is in %s", each, path)


def _width(stream: TextIO) -> int:
    return min(shutil.get_terminal_size().columns, _WIDEST) if stream.isatty() else 80
