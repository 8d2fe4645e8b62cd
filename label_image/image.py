# SPDX-License-Identifier: Apache-2.0
"""Pictures: file -> RGB pixels -> a model's input tensor, bit-equal to TFLite's label_image.

Deliberately not here: cropping, aspect ratio, anti-aliasing. label_image has none of them.
"""

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image, UnidentifiedImageError

from label_image.decode import decode
from label_image.picture_file import PictureError, library_lines, open_picture

log = logging.getLogger("label_image")


def load_picture(path: str | os.PathLike[str], may_wait: bool = False) -> NDArray[np.uint8]:
    """Return a picture's pixels: its first frame, upright, as RGB, transparency over black.

    A picture that would take too much memory is decoded smaller, where its format can be.
    `may_wait`: take what comes through a pipe, too; "-" is stdin then.
    Shapes: (h, w, 3), for a gray picture too.
    Raises:
        FileNotFoundError: there is no such file.
        PictureError: not a picture, truncated, damaged, unreadable, too large, or a pipe.
    """
    notes: list[str] = []
    lines: list[str] = []
    try:
        with open_picture(path, may_wait) as file, library_lines() as lines:
            pixels = decode(file, notes)
    except FileNotFoundError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds on damaged files
        reason = "; ".join([_reason(error), *lines])
        raise PictureError(f"cannot read picture {os.fspath(path)}: {reason}") from error
    for text in [*notes, *lines]:
        log.warning("%s", text)
    return pixels


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
    values = _resize(picture, shape[1], shape[2], is_gray=shape[3] == 1)[np.newaxis]
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


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not a picture, or its beginning is damaged"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(text.split())


def _resize(
    picture: NDArray[np.uint8], out_h: int, out_w: int, is_gray: bool
) -> NDArray[np.float32]:
    """Resize bilinearly, bit-equal to TFLite's optimized float32 kernel; corners not aligned.

    `is_gray`: return the luminance.
    Its special case of twice the size needs no code: 8-bit pixels are exact there either way.
    Shapes: (h, w, 3) -> (out_h, out_w, 3 or 1)
    Source: tflite/kernels/internal/optimized/resize_bilinear.h
    """
    h, w = picture.shape[:2]

    def gather(y: NDArray[np.int32], x: NDArray[np.int32]) -> NDArray[np.float32]:
        pixels = picture[y[:, np.newaxis], x]
        if is_gray:
            pixels = np.asarray(Image.fromarray(pixels).convert("L"))[..., np.newaxis]
        return pixels.astype(np.float32)

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
