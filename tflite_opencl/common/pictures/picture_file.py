# SPDX-License-Identifier: Apache-2.0
"""A picture's file, which may be a pipe; and what C libraries print while they decode it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from typing import BinaryIO

from tflite_opencl.common.errors import OneLineError

STDIN = "-"
_MOST_BYTES = 1 << 28  # of a picture that comes through a pipe
_MOST_LINES = 3


class PictureError(OneLineError):
    """This picture cannot be used; the text is one line that says why."""


def open_picture(path: str | os.PathLike[str], may_wait: bool) -> BinaryIO:
    """Open a picture; of a pipe or a device, return all that comes through it.

    `may_wait`: this is the only picture, and whoever asked for it waits for it.
    Raises: PictureError: a pipe or a device, and nobody waits; or more comes than a picture has.
    """
    if may_wait and path == STDIN:
        return _all_of(sys.stdin.buffer)
    # NOTE: without O_NONBLOCK, opening a pipe waits for whoever writes.
    file = open(path, "rb", opener=None if may_wait else _opened_at_once)  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:
        if not may_wait:
            raise PictureError("it is a pipe or a device: only a single --image may be one")
        return _all_of(file)


def is_file(path: str) -> bool:
    """Whether a path is no pipe, socket or device; True where there is nothing."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


@contextlib.contextmanager
def kept_file(path: str) -> Iterator[str]:
    """Give a file, of no folder, with all that comes through a pipe; other processes read it, too.

    Raises: PictureError: as open_picture.
    """
    with os.fdopen(os.memfd_create("picture"), "wb", buffering=0) as file:
        with open_picture(path, may_wait=True) as source:
            shutil.copyfileobj(source, file)
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"


@contextlib.contextmanager
def library_lines() -> Iterator[list[str]]:
    """Keep what C libraries such as libtiff write to stderr inside off the terminal.

    Gives a list, which holds the first lines of it at the end.
    """
    lines: list[str] = []
    caught, own = os.memfd_create("stderr"), os.dup(2)
    os.dup2(caught, 2)
    try:
        yield lines
    finally:
        os.dup2(own, 2)
        os.close(own)
        with os.fdopen(caught, "rb") as file:
            file.seek(0)
            said = file.read(1 << 16).decode(errors="replace").splitlines()
        lines += said[:_MOST_LINES]
        if len(said) > _MOST_LINES:
            lines.append(f"and {len(said) - _MOST_LINES} lines more")


def _opened_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _all_of(stream: BinaryIO) -> BinaryIO:
    data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise PictureError(f"more than {_MOST_BYTES >> 20} MiB come through the pipe")
    return io.BytesIO(data)
