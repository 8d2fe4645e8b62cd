# SPDX-License-Identifier: Apache-2.0
"""Which files are pictures and what reads them; a picture's file, which may be a pipe.

And what C libraries print while they decode it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import shutil
import stat
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

from PIL import features

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


# What counts as a picture in a folder; a file named by itself may end as it likes.
_ENDINGS = (
    ".apng", ".bmp", ".dib", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png",
    ".pnm", ".ppm", ".qoi", ".tga", ".tif", ".tiff",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reader:
    """What reads a format that not every Pillow reads."""

    format: str
    endings: tuple[str, ...]
    beginning: bytes  # of such a file: a regular expression
    install: str  # what to do where it is missing
    feature: str = ""  # Pillow's name of it
    module: str = ""  # the package that brings it, where Pillow never has it
    register: str = ""  # the function of that module which makes it known to Pillow; "": importing


_READERS = (
    Reader("HEIC", (".heic", ".heif", ".hif"), rb"....ftyp(hei[cmsx]|hev[cx]|mif1|msf1)",
           "pip install pillow-heif", module="pillow_heif", register="register_heif_opener"),
    Reader("JPEG XL", (".jxl",), rb"\xff\x0a|\0\0\0\x0cJXL ",
           "pip install pillow-jxl-plugin", module="pillow_jxl"),
    Reader("AVIF", (".avif", ".avifs"), rb"....ftypavi[fs]", "pip install 'pillow>=11.3'", "avif"),
    Reader("WebP", (".webp",), rb"RIFF....WEBP", "pip install --upgrade pillow", "webp"),
    Reader("JPEG 2000", (".j2k", ".jp2"), rb"\xff\x4f\xff\x51|\0\0\0\x0cjP  ",
           "pip install --upgrade pillow", "jpg_2000"),
)  # fmt: skip
_BY_ENDING = {ending: reader for reader in _READERS for ending in reader.endings}


def is_picture_name(name: str) -> bool:
    """Whether a file in a folder is taken for a picture."""
    return name.lower().endswith((*_ENDINGS, *_BY_ENDING))


def missing_reader(name: str) -> Reader | None:
    """Return the reader that a file of this name needs and that is not installed."""
    reader = next((_BY_ENDING[end] for end in _BY_ENDING if name.lower().endswith(end)), None)
    return None if reader is None or _is_there(reader) else reader


def missing_reader_of(beginning: bytes) -> Reader | None:
    """Return the reader that a file needs which begins so, where it is not installed.

    Where it is installed, Pillow knows it from now on.
    """
    for reader in _READERS:
        if re.match(reader.beginning, beginning, re.DOTALL):
            return None if _is_there(reader) else reader
    return None


@cache
def _is_there(reader: Reader) -> bool:
    if reader.feature:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old Pillow does not know the feature's name
            return bool(features.check(reader.feature))
    try:
        module = importlib.import_module(reader.module)
    except ImportError:
        return False
    if reader.register:
        getattr(module, reader.register)()
    return True
