# SPDX-License-Identifier: Apache-2.0
"""Pictures: file -> RGB pixels -> a model's input tensor, bit-equal to TFLite's label_image.

Deliberately not here: cropping, aspect ratio, anti-aliasing. label_image has none of them.
"""

import logging
import os
import struct
import warnings
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from tflite_opencl.common.errors import OneLineError

log = logging.getLogger("label_image")

# What counts as a picture in a folder; a file named by itself may end as it likes.
ENDINGS = (
    ".apng", ".avif", ".bmp", ".dib", ".gif", ".j2k", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg",
    ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".qoi", ".tga", ".tif", ".tiff", ".webp",
)  # fmt: skip

# Pillow's own limit, a quarter of a GiB as RGB, for the BMPs decoded here as well.
MAX_PIXELS = 1024**3 // 4 // 3
TOO_MANY_PIXELS = f"it has more than {MAX_PIXELS} pixels: make it smaller first"


class PictureError(OneLineError):
    """This picture cannot be used; the text is one line that says why."""


def load_picture(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Return a picture's pixels: its first frame, upright, as RGB, transparency over black.

    Shapes: (h, w, 3), for a gray picture too.
    Raises:
        FileNotFoundError: there is no such file.
        PictureError: not a picture, truncated, damaged, unreadable, or more than MAX_PIXELS.
    """
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Pillow refuses at twice its limit, and only warns at the limit.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            pixels = _decode_uncompressed_bmp(file)
            return _decode_with_pillow(file) if pixels is None else pixels
    except FileNotFoundError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        raise PictureError(f"cannot read picture {os.fspath(path)}: {_reason(error)}") from error


def to_input(
    picture: NDArray[np.uint8],
    shape: Sequence[int],
    dtype: DTypeLike,
    mean: float = 127.5,
    std: float = 127.5,
    scale: float = 0.0,
    zero_point: int = 0,
) -> NDArray[Any]:
    """Resize RGB pixels to a model's input tensor.

    `mean` and `std` apply to float32 and int16. An int16 tensor, which label_image does not know,
    gets what a float one would, in its own `scale` and `zero_point`; 8-bit ones ignore theirs.

    Shapes: (h, w, 3) -> (1, H, W, C); C is 3, or 1 for luminance (Rec. 601).
    Raises: PictureError: the tensor is not a picture of that kind, or `std` is 0.
    Source: tflite/examples/label_image/bitmap_helpers_impl.h
    """
    if not _is_picture_shape(shape):
        raise PictureError(
            f"the model's input {'x'.join(map(str, shape))} is no picture: "
            "only 1 x height x width x channels (1 or 3) is supported"
        )
    if shape[3] == 1:
        picture = np.asarray(Image.fromarray(picture).convert("L"))[..., np.newaxis]
    values = _resize(picture, shape[1], shape[2])[np.newaxis]
    # NOTE: label_image ignores the tensor's scale and zero point, and truncates toward zero.
    dtype = np.dtype(dtype)
    if dtype == np.uint8:
        return values.astype(np.uint8)
    if dtype == np.int8:
        values -= np.float32(128)
        return values.astype(np.int8)
    if dtype == np.float32 or (dtype == np.int16 and scale > 0):
        if np.float32(std) == 0:
            raise PictureError("the input's standard deviation is 0, and pixels are divided by it")
        values -= np.float32(mean)
        values /= np.float32(std)
        if dtype == np.float32:
            return values
        np.rint(values / np.float32(scale), out=values)
        values += np.float32(zero_point)
        return values.clip(-(2**15), 2**15 - 1).astype(np.int16)
    raise PictureError(
        f"the model's input type {dtype}: only uint8, int8, quantised int16 and float32 work"
    )


def is_picture(shape: Sequence[int], dtype: str, scale: float = 0.0) -> bool:
    """Whether `to_input` fills such a tensor."""
    return _is_picture_shape(shape) and (
        dtype in ("uint8", "int8", "float32") or (dtype == "int16" and scale > 0)
    )


def _is_picture_shape(shape: Sequence[int]) -> bool:
    return len(shape) == 4 and shape[0] == 1 and min(shape[1:3]) >= 1 and shape[3] in (1, 3)


def _decode_uncompressed_bmp(file: BinaryIO) -> NDArray[np.uint8] | None:
    """Return a BMP's pixels, or None for what Pillow decodes: other formats, packed pixels.

    Not left to Pillow because it drops the fourth byte and misreads some gray palettes.
    """
    header = file.read(54)
    if len(header) < 54 or header[:2] != b"BM":
        return None
    offset, header_size, width, height = struct.unpack_from("<IIii", header, 10)
    bits, compression = struct.unpack_from("<HI", header, 28)
    if header_size < 40 or compression != 0 or bits not in (1, 2, 4, 8, 24, 32):
        return None
    if bits <= 8 and offset == 14 + header_size:
        return None  # some writers forget the palette's size here: Pillow knows them
    if width < 1 or height == 0:
        raise PictureError(f"damaged BMP: its size is {width} x {height} pixels")
    if width * abs(height) > MAX_PIXELS:
        raise PictureError(TOO_MANY_PIXELS)
    if offset < 14 + header_size:
        raise PictureError(f"damaged BMP: its pixels begin at byte {offset}, inside its header")

    row_bytes = (width * bits + 31) // 32 * 4
    size_bytes = row_bytes * abs(height)
    file.seek(offset)
    data = file.read(size_bytes)
    if len(data) < size_bytes:
        raise PictureError(f"truncated BMP: {len(data)} of {size_bytes} bytes of pixels")
    rows = np.frombuffer(data, np.uint8).reshape(abs(height), row_bytes)
    if height > 0:
        rows = rows[::-1]

    if bits <= 8:
        file.seek(14 + header_size)
        palette = file.read(min(4 << bits, offset - 14 - header_size))
        shifts = np.array(range(8 - bits, -1, -bits), np.uint8)
        indices = (rows[..., np.newaxis] >> shifts) & np.uint8((1 << bits) - 1)
        indices = indices.reshape(abs(height), -1)[:, :width]
        pixels = np.frombuffer(palette.ljust(4 * 256, b"\0"), np.uint8).reshape(256, 4)[indices]
    else:
        pixels = rows[:, : width * bits // 8].reshape(abs(height), width, bits // 8)
    # The fourth byte is undefined here: most writers leave it 0, some store alpha. Like stb_image
    # and ffmpeg, take it as alpha unless it is 0 everywhere.
    if bits == 32 and pixels[..., 3].any():
        return _over_black(Image.fromarray(np.ascontiguousarray(pixels[..., [2, 1, 0, 3]])))
    return np.ascontiguousarray(pixels[..., 2::-1])


def _decode_with_pillow(file: BinaryIO) -> NDArray[np.uint8]:
    file.seek(0)
    Image.open(file).verify()  # a PNG's checksums and end; nothing for other formats
    file.seek(0)
    image: Image.Image = Image.open(file)
    image.load()
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # damaged EXIF data raises many kinds
        log.warning("the picture's EXIF data is damaged, its orientation may be lost: %s", error)

    # Pillow clips these to 8 bits instead of scaling them; its RGB decoders take the high byte too.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        gray = (np.asarray(image) >> 8).astype(np.uint8)
        return np.repeat(gray[..., np.newaxis], 3, axis=2)
    if image.mode in ("I", "F"):
        raise PictureError("32-bit pixels have no known range: convert it to 8 or 16 bits")
    if image.has_transparency_data:
        return _over_black(image.convert("RGBA"))
    return np.asarray(image.convert("RGB"))


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not a picture, or its beginning is damaged"
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return TOO_MANY_PIXELS
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())


def _over_black(image: Image.Image) -> NDArray[np.uint8]:
    # Over black, blending is the multiplication by alpha of Pillow's mode RGBa.
    return np.ascontiguousarray(np.asarray(image.convert("RGBa"))[..., :3])


def _resize(picture: NDArray[np.uint8], out_h: int, out_w: int) -> NDArray[np.float32]:
    """Resize bilinearly, bit-equal to TFLite's optimized float32 kernel; corners not aligned.

    Its special case of twice the size needs no code: 8-bit pixels are exact there either way.
    Shapes: (h, w, c) -> (out_h, out_w, c)
    Source: tflite/kernels/internal/optimized/resize_bilinear.h
    """
    h, w = picture.shape[:2]

    def gather(y: NDArray[np.int32], x: NDArray[np.int32]) -> NDArray[np.float32]:
        return picture[y[:, np.newaxis], x].astype(np.float32)

    y0, y1, dy = _source_positions(h, out_h)
    x0, x1, dx = _source_positions(w, out_w)
    dy, dx = dy[:, np.newaxis, np.newaxis], dx[:, np.newaxis]
    one = np.float32(1)
    # NOTE: the order of these sums and products decides the last bit.
    out: NDArray[np.float32] = gather(y0, x0) * ((one - dy) * (one - dx))
    out += gather(y0, x1) * ((one - dy) * dx)
    out += gather(y1, x0) * (dy * (one - dx))
    out += gather(y1, x1) * (dy * dx)
    return out


def _source_positions(
    size: int, out_size: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
    """Return, per output position, its two source positions and how far it is past the first."""
    position = np.arange(out_size, dtype=np.float32) * (np.float32(size) / np.float32(out_size))
    first = np.floor(position).astype(np.int32)
    second = np.minimum(np.ceil(position).astype(np.int32), size - 1)
    return first, second, position - first.astype(np.float32)
