# SPDX-License-Identifier: Apache-2.0
"""The picture layout of a tensor, derived from its shape, and why a tensor has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_ALPHA = 8  # minimum side of a planar picture with alpha, exclusive


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """The layout of pictures in a tensor."""

    height: int
    width: int
    channels: int  # 1, 3, or 4 with alpha
    is_planar: bool = False  # channels first: PyTorch's order
    has_channels: bool = True  # the shape has a channel axis
    batch: int = 1  # pictures


def layout_of(shape: Sequence[int]) -> PictureLayout | None:
    """Return the picture layout of a tensor with this shape; None: it has none.

    Shapes: (1, H, W, C) as in label_image, (1, C, H, W), (H, W, C), (C, H, W) for three
        channels, (1, H, W) and (H, W); of several matches the first, with four channels
        last. A first dimension of four means four pictures, also with four channels.
    """
    has_batch = len(shape) == 4 and shape[0] >= 1
    batch = shape[0] if has_batch else 1
    sizes = tuple(shape[1:]) if has_batch else tuple(shape)
    if len(sizes) == 3 and sizes[2] in (1, 3) and min(sizes[:2]) >= (1 if has_batch else 2):
        return PictureLayout(sizes[0], sizes[1], sizes[2], batch=batch)
    if len(sizes) == 3 and sizes[0] in (1, 3) and min(sizes[1:]) > 1:
        has_channels = has_batch or sizes[0] == 3
        return PictureLayout(sizes[1], sizes[2], sizes[0], True, has_channels, batch)
    if has_batch and sizes[2] == 4 and min(sizes) >= 1:
        return PictureLayout(sizes[0], sizes[1], 4, batch=batch)
    if has_batch and sizes[0] == 4 and min(sizes[1:]) > _ALPHA:
        return PictureLayout(sizes[1], sizes[2], 4, True, batch=batch)
    if len(sizes) == 2 and min(sizes) > 1:
        return PictureLayout(sizes[0], sizes[1], 1, has_channels=False)
    return None


def takes_alpha(shape: Sequence[int]) -> bool:
    """Whether a tensor of this shape holds pictures with alpha."""
    layout = layout_of(shape)
    return layout is not None and layout.channels == 4


def why_no_picture(shape: Sequence[int], dtype: str, scale: float = 0.0) -> str:
    """Return why a tensor takes no picture; "": it takes one, if given."""
    if is_picture(shape, dtype, scale):
        return ""
    if layout_of(shape) is not None:
        return f"{dtype} is no type of pictures" + " without a scale" * (dtype == "int16")
    if len(shape) == 4:
        return f"it has {shape[3]} channels, and pictures have 1, 3 or 4"
    return "it has no height and width"


def is_picture(shape: Sequence[int], dtype: str, scale: float = 0.0, is_asked: bool = True) -> bool:
    """Whether `to_input` supports such a tensor.

    `is_asked`: the user gave a picture; otherwise a shape without channels is no picture.
    """
    layout = layout_of(shape)
    return (
        layout is not None
        and (is_asked or layout.has_channels)
        and (dtype in ("uint8", "int8", "float16", "float32") or (dtype == "int16" and scale > 0))
    )
