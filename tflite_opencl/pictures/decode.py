# SPDX-License-Identifier: Apache-2.0
"""Decodes pictures to RGB pixels within a memory limit; defines which files are pictures."""

from __future__ import annotations

import importlib
import re
import struct
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, features

from tflite_opencl.console.errors import OneLineError

MOST_BYTES = 1 << 29  # for decoding one picture; one child process per core does so
MAX_PIXELS = 1024**3 // 4 // 3  # Pillow's own limit: some formats reveal their size late
_RESULT = 4  # bytes per pixel: the three returned, and temporary conversions
# Bytes per pixel that a format's decoder uses besides Pillow's own four, as measured.
_OF_DECODER = {"AVIF": 6, "HEIF": 6, "JPEG2000": 16, "JXL": 12, "WEBP": 12}
_OF_MODE = {"1": 1, "L": 1, "P": 1, "LA": 4, "I;16": 2}  # all other modes use four bytes per pixel
_PROGRESSIVE = 6  # libjpeg keeps all coefficients of a progressive file, at full size
_REDUCTIONS = (1, 2, 4, 8)  # libjpeg's scaled decoding
_BAND_PIXELS = 1 << 20
_ORIENTATION = 0x0112  # EXIF's tag
# By bits per pixel: Pillow's mode of an uncompressed BMP, and its raw mode.
_BMP_MODES = {
    1: ("P", "P;1"), 2: ("P", "P;2"), 4: ("P", "P;4"), 8: ("P", "P"), 24: ("RGB", "BGR"),
    32: ("RGBA", "BGRA"),
}  # fmt: skip

Pixels = NDArray[np.uint8]


class PictureError(OneLineError):
    """The picture cannot be used; the text is one line that says why."""


def decode(file: BinaryIO, notes: list[str], has_alpha: bool = False) -> Pixels:
    """Return the pixels, upright, transparency over black; `notes` receives remarks for the user.

    `has_alpha`: keep colours unblended, and return alpha as a fourth channel: 255 is opaque.
    Shapes: (h, w, 3), or with alpha (h, w, 4)
    Raises: PictureError, or one of the many types that Pillow's decoders raise on damaged files.
    """
    pixels = _decode_uncompressed_bmp(file, has_alpha)
    return _decode_with_pillow(file, notes, has_alpha) if pixels is None else pixels


def _decode_uncompressed_bmp(file: BinaryIO, has_alpha: bool) -> Pixels | None:
    """Return a BMP's pixels, or None if Pillow must decode it: other formats, packed pixels.

    Not left to Pillow, which drops the fourth byte and misreads some gray palettes.
    """
    header = file.read(54)
    if len(header) < 54 or header[:2] != b"BM":
        return None
    offset, header_size, width, height = struct.unpack_from("<IIii", header, 10)
    bits, compression = struct.unpack_from("<HI", header, 28)
    if header_size < 40 or compression != 0 or bits not in _BMP_MODES:
        return None
    if bits <= 8 and offset == 14 + header_size:
        return None  # some writers omit the palette's size: Pillow handles them
    if width < 1 or height == 0:
        raise PictureError(f"damaged BMP: its size is {width} x {height} pixels")
    if width * abs(height) * (bits / 8 + _RESULT) > MOST_BYTES:
        raise _too_large(width, abs(height))
    if offset < 14 + header_size:
        raise PictureError(f"damaged BMP: its pixels begin at byte {offset}, inside its header")

    row_bytes = (width * bits + 31) // 32 * 4
    size_bytes = row_bytes * abs(height)
    file.seek(offset)
    data = file.read(size_bytes)
    if len(data) < size_bytes:
        raise PictureError(f"truncated BMP: {len(data)} of {size_bytes} bytes of pixels")
    mode, packed = _BMP_MODES[bits]
    # The fourth byte is undefined here: most writers leave it 0, some store alpha. Like stb_image
    # and ffmpeg, treat it as alpha unless it is 0 everywhere.
    if bits == 32 and not np.frombuffer(data, np.uint8)[3::4].any():
        mode, packed = "RGB", "BGRX"
    order = -1 if height > 0 else 1
    image = Image.frombytes(mode, (width, abs(height)), data, "raw", packed, row_bytes, order)
    del data  # the pixels exist twice
    if bits <= 8:
        file.seek(14 + header_size)
        palette = file.read(min(4 << bits, offset - 14 - header_size))
        image.putpalette(palette.ljust(4 * 256, b"\0"), "BGRX")
    return _in_bands(image, has_alpha)


def _decode_with_pillow(file: BinaryIO, notes: list[str], has_alpha: bool) -> Pixels:
    file.seek(0)
    reader = missing_reader_of(file.read(16))
    if reader is not None:
        needs = "needs a reader that is not installed"
        raise PictureError(f"{reader.format} {needs} ({reader.install})")
    file.seek(0)
    with _limit_of_pixels(is_jpeg=file.read(3) == b"\xff\xd8\xff"):
        file.seek(0)
        Image.open(file).verify()  # checks a PNG's checksums and end; nothing for other formats
        file.seek(0)
        image: Image.Image = Image.open(file)
        _fit(image, notes)
        return decode_image(image, notes, has_alpha)


def decode_image(image: Image.Image, notes: list[str], has_alpha: bool = False) -> Pixels:
    """Return an opened picture's pixels as `decode` does."""
    image.load()
    pixels = _upright(_in_bands(image, has_alpha), image, notes)
    with suppress(Exception):  # data after a good first frame may be damaged
        if getattr(image, "is_animated", False):
            notes.append("the picture has several frames: the first one is taken")
    return pixels


def _fit(image: Image.Image, notes: list[str]) -> None:
    """Have the picture decoded at a reduced size if it would use too much memory.

    Raises: PictureError: its format does not support that.
    """
    width, height = image.size
    a_pixel = _OF_MODE.get(image.mode, 4) + _OF_DECODER.get(image.format or "", 0) + _RESULT
    kept = width * height * _PROGRESSIVE if "progressive" in image.info else 0
    for reduction in _REDUCTIONS if image.format in ("JPEG", "MPO") else (1,):
        if kept + width * height / reduction**2 * a_pixel > MOST_BYTES:
            continue
        if reduction > 1:
            if image.draft(None, (width // reduction, height // reduction)) is None:
                break
            notes.append(
                f"the picture has {width} x {height} pixels: it is decoded at 1/{reduction} of "
                "its width and height"
            )
        return
    raise _too_large(width, height)


def _too_large(width: int, height: int) -> PictureError:
    return PictureError(
        f"its {width} x {height} pixels take more than {MOST_BYTES >> 20} MiB of memory: "
        "make it smaller first"
    )


def _rows_of(image: Image.Image, has_alpha: bool) -> Callable[[int, int], Pixels]:
    """Return a function that returns a range of rows of a loaded picture as RGB.

    `has_alpha`: as RGBA, except for 16-bit gray, which has no alpha.
    """

    def rows(top: int, bottom: int) -> Image.Image:
        return image.crop((0, top, image.width, bottom))

    def gray(top: int, bottom: int) -> Pixels:
        high = (np.asarray(rows(top, bottom)) >> 8).astype(np.uint8)
        return np.repeat(high[..., np.newaxis], 3, axis=2)

    # Pillow clips these to 8 bits instead of scaling; its RGB decoders keep the high byte, too.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return gray
    if image.mode in ("I", "F"):
        raise PictureError("32-bit pixels have no known range: convert it to 8 or 16 bits")
    if has_alpha:
        return lambda top, bottom: np.asarray(rows(top, bottom).convert("RGBA"))
    if image.has_transparency_data:
        return lambda top, bottom: _over_black(rows(top, bottom).convert("RGBA"))
    return lambda top, bottom: np.asarray(rows(top, bottom).convert("RGB"))


def _over_black(image: Image.Image) -> Pixels:
    # Over black, blending equals the premultiplication of Pillow's mode RGBa.
    return np.asarray(image.convert("RGBa"))[..., :3]


def _in_bands(image: Image.Image, has_alpha: bool) -> Pixels:
    """Return all rows, converted in bands: conversions use several times their memory."""
    (width, height), rows_of = image.size, _rows_of(image, has_alpha)
    pixels = np.full((height, width, 4 if has_alpha else 3), 255, np.uint8)
    count = max(1, _BAND_PIXELS // width)
    for top in range(0, height, count):
        rows = rows_of(top, min(top + count, height))
        pixels[top : top + count, :, : rows.shape[2]] = rows
    return pixels


def _upright(pixels: Pixels, image: Image.Image, notes: list[str]) -> Pixels:
    """Return the pixels rotated according to the picture's EXIF data."""
    try:
        orientation: Any = image.getexif().get(_ORIENTATION, 1)
    except Exception as error:  # many types on damaged EXIF data
        notes.append(f"the picture's EXIF data is damaged, its orientation may be lost: {error}")
        return pixels
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels[:, ::-1] if orientation in (2, 3, 6, 7) else pixels


@contextmanager
def _limit_of_pixels(is_jpeg: bool) -> Iterator[None]:
    """Let Pillow reject more than MAX_PIXELS, except for JPEG, which `_fit` may decode smaller."""
    own = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = None if is_jpeg else MAX_PIXELS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Pillow rejects at twice its limit, and only warns at the limit.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        text = f"it has more than {MAX_PIXELS} pixels: make it smaller first"
        raise PictureError(text) from error
    finally:
        Image.MAX_IMAGE_PIXELS = own


# File name suffixes of pictures in folders; a file named explicitly may have any suffix.
_ENDINGS = (
    ".apng", ".bmp", ".dib", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png",
    ".pnm", ".ppm", ".qoi", ".tga", ".tif", ".tiff",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reader:
    """A decoder that some Pillow installations lack."""

    format: str
    endings: tuple[str, ...]
    beginning: bytes  # regular expression of the file signature
    install: str  # how to install it
    feature: str = ""  # Pillow's name for it
    module: str = ""  # the package that provides it, if Pillow never does
    register: str = ""  # that module's function which registers it with Pillow; "": importing


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
    """Whether a file in a folder counts as a picture."""
    return name.lower().endswith((*_ENDINGS, *_BY_ENDING))


def missing_reader(name: str) -> Reader | None:
    """Return the decoder for a file of this name if it is not installed."""
    reader = next((_BY_ENDING[end] for end in _BY_ENDING if name.lower().endswith(end)), None)
    return None if reader is None or _is_there(reader) else reader


def missing_reader_of(beginning: bytes) -> Reader | None:
    """Return the decoder for a file with this signature if it is not installed.

    An installed one is registered with Pillow.
    """
    for reader in _READERS:
        if re.match(reader.beginning, beginning, re.DOTALL):
            return None if _is_there(reader) else reader
    return None


@cache
def _is_there(reader: Reader) -> bool:
    if reader.feature:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older Pillows do not know the feature's name
            return bool(features.check(reader.feature))
    try:
        module = importlib.import_module(reader.module)
    except ImportError:
        return False
    if reader.register:
        getattr(module, reader.register)()
    return True
