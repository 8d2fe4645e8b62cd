# SPDX-License-Identifier: Apache-2.0
"""Encoders of pictures, byte by byte or by Pillow, and TFLite label_image's BMP decoder."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

SHARED = Path(__file__).resolve().parents[2].parent / "shared"
Pixels = NDArray[np.uint8]
Loader = Callable[[bytes], Pixels]


def random_pixels(*shape: int, seed: int = 1) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no ../shared/{name}")
    return path


def bmp(
    values: NDArray[np.generic],
    bits: int,
    *,
    palette: Pixels | None = None,
    top_down: bool = False,
    header_size: int = 40,
    compression: int = 0,
    masks: tuple[int, ...] = (),
    gap: bytes = b"",
) -> bytes:
    """Return a BMP of values (h, w): palette indices or packed pixels of `bits` bits."""
    height, width = values.shape
    rows = b""
    for row in values if top_down else values[::-1]:
        digits = "".join(f"{int(value):0{bits}b}" for value in row)
        if bits > 8:  # little endian within a pixel
            whole = [int(value).to_bytes(bits // 8, "little") for value in row]
            rows += b"".join(whole).ljust((width * bits + 31) // 32 * 4, b"\xee")
        else:
            digits = digits.ljust((width * bits + 31) // 32 * 32, "1")
            rows += int(digits, 2).to_bytes(len(digits) // 8, "big")
    colours = b"".join(bytes([b, g, r, 0]) for r, g, b in ([] if palette is None else palette))
    extra = struct.pack(f"<{len(masks)}I", *masks)
    header = struct.pack(
        "<IiiHHIIiiII",
        header_size,
        width,
        -height if top_down else height,
        1,
        bits,
        compression,
        len(rows),
        2835,
        2835,
        0,
        0,
    )
    header = (header + extra).ljust(header_size, b"\0")
    offset = 14 + len(header) + len(colours) + len(gap)
    return (
        b"BM"
        + struct.pack("<IHHI", offset + len(rows), 0, 0, offset)
        + header
        + colours
        + gap
        + rows
    )


def bgr(pixels: Pixels) -> NDArray[np.uint32]:
    """Pack RGB or RGBA pixels (h, w, 3 or 4) into BMP's integers, blue in the lowest byte."""
    wide = pixels.astype(np.uint32)
    weights = np.array([1 << 16, 1 << 8, 1, 1 << 24], np.uint32)[: pixels.shape[2]]
    return np.asarray((wide * weights).sum(axis=2), np.uint32)


def label_image_decode(data: bytes) -> Pixels:
    """Decode a 24-bit bottom-up BMP as bitmap_helpers.cc does."""
    offset, width, height = (struct.unpack_from("<i", data, at)[0] for at in (10, 18, 22))
    row_bytes = (8 * 3 * width + 31) // 32 * 4
    out = bytearray()
    for y in range(height):
        row = data[offset + (height - 1 - y) * row_bytes :][: width * 3]
        for channel in range(3):
            out += row[2 - channel :: 3]
    planes: Pixels = np.frombuffer(out, np.uint8).reshape(height, 3, width)
    return np.moveaxis(planes, 1, 2)


def over_black(rgba: Pixels) -> Pixels:
    colour, alpha = rgba[..., :3].astype(np.float64), rgba[..., 3:].astype(np.float64)
    return np.floor(colour * alpha / 255 + 0.5).astype(np.uint8)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(
    width: int, height: int, bits: int, colour_type: int, rows: bytes, extra: bytes = b""
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + extra
        + png_chunk(b"IDAT", zlib.compress(rows))
        + png_chunk(b"IEND", b"")
    )


RLE_ROWS = bytes([3, 1, 0, 0, 0, 3, 2, 1, 0, 0, 0, 1])


def rle_bmp(rows: bytes) -> bytes:
    palette = np.array([[0, 0, 0], [250, 20, 30], [40, 240, 60]] + [[9, 9, 9]] * 253, np.uint8)
    plain = bmp(np.zeros((2, 3), int), 8, palette=palette, compression=1)
    return plain[: 54 + 1024] + rows
