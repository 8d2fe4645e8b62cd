# SPDX-License-Identifier: Apache-2.0
"""Which files are pictures, and which readers Pillow may lack for them."""

from __future__ import annotations

import importlib
import re
import warnings
from dataclasses import dataclass
from functools import cache

from PIL import features

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
