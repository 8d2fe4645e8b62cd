# SPDX-License-Identifier: Apache-2.0
"""Converts a file to RGB pixels and to an input tensor, bit-exact with TFLite's label_image.

Deliberately without cropping, aspect ratio and anti-aliasing: label_image has none of them.
"""

import contextlib
import io
import logging
import mimetypes
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray
from PIL import Image, UnidentifiedImageError

from tflite_opencl.pictures.decode import PictureError, decode, decode_image
from tflite_opencl.pictures.layout import layout_of

log = logging.getLogger("tflite_opencl")

Picture = str | os.PathLike[str] | bytes | Image.Image | NDArray[np.uint8]
_CHANNELS = ((), (1,), (3,), (4,))
STDIN = "-"
_MOST_BYTES = 1 << 28  # of a picture read from a pipe
_MOST_LINES = 3  # of libraries' output


def load_picture(
    path: str | os.PathLike[str], may_wait: bool = False, has_alpha: bool = False
) -> NDArray[np.uint8]:
    """Return a picture's pixels: its first frame, upright, as RGB, transparency over black.

    A picture that would use too much memory is decoded at a reduced size, if its format allows.
    `may_wait`: also read from pipes; "-" is stdin then. `has_alpha`: as RGBA.
    Shapes: (h, w, 3), for a gray picture too; (h, w, 4) with alpha.
    Raises: FileNotFoundError: there is no such file. PictureError: not a picture, truncated,
        damaged, unreadable, too large, or a pipe.
    """

    def read(notes: list[str]) -> NDArray[np.uint8]:
        with open_picture(path, may_wait) as file:
            return decode(file, notes, has_alpha)

    return _read(read, f"picture {os.fspath(path)}")


def pixels_of(picture: Picture, has_alpha: bool = False) -> NDArray[np.uint8]:
    """Return a picture's pixels as `load_picture` does, given its path, its file's bytes, etc.

    Shapes: arrays (h, w), (h, w, 1), (h, w, 3) and (h, w, 4), of uint8 -> (h, w, 3), or (h, w, 4)
    Raises: as `load_picture`.
    """
    if isinstance(picture, (str, os.PathLike)):
        return load_picture(picture, has_alpha=has_alpha)
    if isinstance(picture, bytes):
        content = io.BytesIO(picture)
        return _read(
            lambda notes: decode(content, notes, has_alpha), f"the picture of {len(picture)} bytes"
        )
    if isinstance(picture, Image.Image):
        image = picture
        return _read(lambda notes: decode_image(image, notes, has_alpha), "the picture")
    if not isinstance(picture, np.ndarray):
        raise PictureError(f"a {type(picture).__name__} is no picture")
    shape = picture.shape
    if picture.dtype != np.uint8 or len(shape) not in (2, 3) or shape[2:] not in _CHANNELS:
        raise PictureError(f"an array {shape} of {picture.dtype} is no picture: (h, w, 3) of uint8")
    if not picture.size:
        raise PictureError(f"an array {shape} has no pixels")
    if shape[2:] == (4 if has_alpha else 3,):
        return picture
    image = Image.fromarray(picture[..., 0] if shape[2:] == (1,) else picture)
    return pixels_of(image, has_alpha)


def _read(read: Callable[[list[str]], NDArray[np.uint8]], name: str) -> NDArray[np.uint8]:
    """Return what `read` returns; log a warning for each note that it appends to its argument."""
    notes: list[str] = []
    lines: list[str] = []
    try:
        with library_lines() as lines:
            pixels = read(notes)
    except FileNotFoundError:
        raise
    except Exception as error:  # Pillow's decoders raise many types on damaged files
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        if isinstance(error, UnidentifiedImageError):
            reason = "not a picture, or its beginning is damaged"
            if (mimetypes.guess_type(name)[0] or "").startswith("video/"):
                reason += "; a film is classified by label_image --video FILE"
        told = "; ".join([" ".join(reason.split()), *lines])
        raise PictureError(f"cannot read {name}: {told}") from error
    for text in [*notes, *lines]:
        log.warning("%s", text)
    return pixels


def to_input(
    picture: NDArray[np.uint8],
    shape: Sequence[int],
    dtype: DTypeLike,
    mean: float | Sequence[float] = 127.5,
    std: float | Sequence[float] = 127.5,
    scale: float = 0.0,
    zero_point: int = 0,
) -> NDArray[Any]:
    """Resize RGB pixels to a model's input tensor.

    `mean` and `std`, one or one per channel, apply to floats, and to tensors with a `scale`: int16,
    which label_image does not support, and 8-bit get the float value, quantised by
    `scale` and `zero_point`. An 8-bit tensor of scale 0 gets the pixels unchanged, as in
    label_image; `stored_by` of pixel_encoding.py selects between them.

    Shapes: (h, w, 3) or (h, w, 4) -> (1, H, W, C), or any other that `layout_of` supports; C is 3,
        4 with alpha, or 1 for luminance (Rec. 601).
    Raises: PictureError: the tensor is not a picture of that kind, `std` is 0, or their number
        is not the tensor's number of channels.
    Source: tflite/examples/label_image/bitmap_helpers_impl.h
    """
    layout = layout_of(shape)
    if layout is None or layout.batch != 1:
        raise PictureError(
            f"the model's input {'x'.join(map(str, shape))} is no picture: only one picture's "
            "height x width is supported, with 1, 3 or 4 channels before or after it or without any"
        )
    values = _resize(picture, layout.height, layout.width, layout.channels)
    dtype = np.dtype(dtype)
    is_stored = scale > 0 and dtype in (np.uint8, np.int8, np.int16)
    if dtype in (np.float16, np.float32) or is_stored:
        middle, spread = np.asarray(mean, np.float32), np.asarray(std, np.float32)
        if (spread == 0).any():
            raise PictureError("the input's standard deviation is 0, and pixels are divided by it")
        if {middle.size, spread.size} - {1, layout.channels}:
            raise PictureError(
                f"{middle.size} means and {spread.size} standard deviations for "
                f"{layout.channels} channels"
            )
        values -= middle
        values /= spread
        if is_stored:
            limits = np.iinfo(dtype)
            np.rint(values / np.float32(scale), out=values)
            values += np.float32(zero_point)
            values.clip(limits.min, limits.max, out=values)
    # NOTE: label_image ignores an 8-bit tensor's scale and zero point, and truncates toward zero.
    elif dtype == np.int8:
        values -= np.float32(128)
    elif dtype != np.uint8:
        raise PictureError(
            f"the model's input type {dtype}: only uint8, int8, quantised int16 and floats work"
        )
    if layout.is_planar:
        values = values.transpose(2, 0, 1)
    return np.ascontiguousarray(values.astype(dtype, copy=False)).reshape(shape)


def _resize(picture: NDArray[np.uint8], out_h: int, out_w: int, made: int) -> NDArray[np.float32]:
    """Resize bilinearly, bit-exact with TFLite's optimized float32 kernel; corners not aligned.

    Its special case of factor two needs no code: 8-bit pixels are exact there either way.
    Shapes: (h, w, 3 or 4) -> (out_h, out_w, `made`): 1 for luminance, 3, or 4 with alpha, which is
        255 where the picture has none
    Source: tflite/kernels/internal/optimized/resize_bilinear.h
    """
    height, width = picture.shape[:2]
    y0, y1, dy = _source_positions(height, out_h)
    x0, x1, dx = _source_positions(width, out_w)
    channels, is_gray = min(made, picture.shape[2]), made == 1
    right, down, one = np.repeat(dx, channels), dy[:, np.newaxis], np.float32(1)
    out = np.zeros((out_h, channels * out_w), np.float32)
    part = np.empty_like(out)
    # A flat index is several times faster than two indices.
    flat = picture[..., : max(3, made)].reshape(height * width, -1)
    # NOTE: the order of these operations determines the last bit.
    for y, vertical in ((y0, one - down), (y1, down)):
        for x, horizontal in ((x0, one - right), (x1, right)):
            pixels = np.take(flat, y[:, np.newaxis] * width + x, axis=0)
            if is_gray:
                pixels = np.asarray(Image.fromarray(pixels).convert("L"))
            np.multiply(vertical, horizontal, out=part)
            part *= pixels.reshape(part.shape)
            out += part
    found = out.reshape(out_h, out_w, channels)
    if channels == made:
        return found
    return np.concatenate([found, np.full((out_h, out_w, 1), 255, np.float32)], axis=2)


def _source_positions(
    size: int, out_size: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
    """Return, per output position, its two source positions and its distance from the first."""
    position = np.arange(out_size, dtype=np.float32) * (np.float32(size) / np.float32(out_size))
    first = np.floor(position).astype(np.intp)
    second = np.minimum(np.ceil(position).astype(np.intp), size - 1)
    return first, second, position - first.astype(np.float32)


def open_picture(path: str | os.PathLike[str], may_wait: bool) -> BinaryIO:
    """Open a picture; of a pipe or a device, return everything read from it.

    `may_wait`: this is the only picture, so blocking is acceptable.
    Raises: PictureError: a pipe or a device without `may_wait`; or it exceeds the limit.
    """
    if may_wait and path == STDIN:
        return _all_of(sys.stdin.buffer)
    # NOTE: without O_NONBLOCK, opening a pipe blocks until it has a writer.
    file = open(path, "rb", opener=None if may_wait else _opened_at_once)  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    with file:
        if not may_wait:
            raise PictureError("it is a pipe or a device: only a single --image may be one")
        return _all_of(file)


def is_file(path: str) -> bool:
    """Whether a path is not a pipe, socket or device; True if it does not exist."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True


@contextlib.contextmanager
def kept_file(path: str) -> Iterator[str]:
    """Yield an unlinked file with the content of a pipe, readable by other processes.

    Raises: PictureError: as open_picture.
    """
    with os.fdopen(os.memfd_create("picture"), "wb", buffering=0) as file:
        with open_picture(path, may_wait=True) as source:
            shutil.copyfileobj(source, file)
        yield f"/proc/{os.getpid()}/fd/{file.fileno()}"


@contextlib.contextmanager
def library_lines() -> Iterator[list[str]]:
    """Keep output of C libraries such as libtiff off the terminal's stderr.

    Yields a list that holds its first lines at the end.
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
