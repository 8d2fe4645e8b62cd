# SPDX-License-Identifier: Apache-2.0
"""BMP files, made byte by byte, against label_image's own decoder."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from tests.support.pictures import (
    RLE_ROWS,
    Loader,
    Pixels,
    bgr,
    bmp,
    encoded,
    label_image_decode,
    over_black,
    random_pixels,
    rle_bmp,
    shared,
)
from tflite_opencl.pictures.image import load_picture


@pytest.mark.parametrize("header_size", [40, 52, 56, 108, 124])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 17])
def test_bmp_24_bit_is_decoded_as_label_image_does(
    load: Loader, width: int, header_size: int
) -> None:
    pixels = random_pixels(7, width, 3)
    data = bmp(bgr(pixels), 24, header_size=header_size)
    np.testing.assert_array_equal(label_image_decode(data), pixels)
    np.testing.assert_array_equal(load(data), pixels)


@pytest.mark.parametrize("name", ["grace_hopper_517x606.bmp", "imagenet/019_bird.bmp"])
def test_real_bmp_is_decoded_as_label_image_does(name: str) -> None:
    path = shared(f"images/{name}")
    np.testing.assert_array_equal(load_picture(path), label_image_decode(path.read_bytes()))


@pytest.mark.parametrize("top_down", [False, True], ids=["bottom-up", "top-down"])
@pytest.mark.parametrize("width", [1, 7, 8, 9, 31, 32, 33])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_bmp_palette(load: Loader, bits: int, width: int, top_down: bool) -> None:
    palette = random_pixels(1 << bits, 3)
    indices = random_pixels(5, width) & np.uint8((1 << bits) - 1)
    data = bmp(indices, bits, palette=palette, top_down=top_down)
    np.testing.assert_array_equal(load(data), palette[indices])


@pytest.mark.parametrize("bits", [24, 32])
def test_bmp_top_down(load: Loader, bits: int) -> None:
    pixels = random_pixels(5, 3, 3)
    np.testing.assert_array_equal(load(bmp(bgr(pixels), bits, top_down=True)), pixels)


def grays(levels: int) -> Pixels:
    return np.repeat(np.linspace(0, 255, levels).astype(np.uint8)[:, None], 3, axis=1)


@pytest.mark.parametrize(
    ("bits", "palette"),
    [
        *((bits, grays(1 << bits)) for bits in (1, 2, 4, 8)),
        (8, grays(2)),
        (4, np.repeat(np.arange(16, dtype=np.uint8)[:, None], 3, axis=1)),
    ],
    ids=["1", "2", "4", "8", "black and white", "dark"],
)
def test_bmp_gray_palette(load: Loader, bits: int, palette: Pixels) -> None:
    indices = np.arange(6 * 50).reshape(6, 50) % len(palette)
    np.testing.assert_array_equal(load(bmp(indices, bits, palette=palette)), palette[indices])


def test_bmp_index_beyond_the_palette_is_black(load: Loader) -> None:
    palette = np.full((3, 3), 200, np.uint8)
    data = bmp(np.array([[0, 2, 3, 255]]), 8, palette=palette)
    assert load(data)[0, :, 0].tolist() == [200, 200, 0, 0]


def test_bmp_whose_offset_forgets_the_palette(load: Loader) -> None:
    palette = random_pixels(256, 3)
    indices = random_pixels(5, 6)
    data = bytearray(bmp(indices, 8, palette=palette))
    data[10:14] = struct.pack("<I", 54)
    np.testing.assert_array_equal(load(bytes(data)), palette[indices])


def test_bmp_with_a_gap_before_its_pixels(load: Loader) -> None:
    pixels = random_pixels(3, 5, 3)
    np.testing.assert_array_equal(load(bmp(bgr(pixels), 24, gap=b"\x55" * 21)), pixels)


def test_bmp_32_bit_alpha_is_dropped_onto_black(load: Loader) -> None:
    every = np.stack(np.meshgrid(np.arange(256), np.arange(256)), axis=2).astype(np.uint8)
    rgba = np.concatenate([every[..., :1], 255 - every[..., :1], every], axis=2)
    np.testing.assert_array_equal(load(bmp(bgr(rgba), 32)), over_black(rgba))


@pytest.mark.parametrize("alpha", [0, 255], ids=["unused", "opaque"])
def test_bmp_32_bit_without_transparency_keeps_its_colours(load: Loader, alpha: int) -> None:
    rgba = random_pixels(4, 5, 4)
    rgba[..., 3] = alpha
    np.testing.assert_array_equal(load(bmp(bgr(rgba), 32)), rgba[..., :3])


def test_bmp_written_by_pillow_with_alpha(load: Loader) -> None:
    rgba = random_pixels(6, 5, 4)
    np.testing.assert_array_equal(load(encoded(Image.fromarray(rgba), "BMP")), over_black(rgba))


def test_bmp_bitfields(load: Loader) -> None:
    five_six_five = np.array([[0xF800, 0x07E0, 0x001F, 0xFFFF]])
    data = bmp(five_six_five, 16, compression=3, masks=(0xF800, 0x07E0, 0x001F))
    assert load(data)[0].tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]

    rgba = random_pixels(4, 5, 4)
    masks = (0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    data = bmp(bgr(rgba), 32, header_size=108, compression=3, masks=masks)
    np.testing.assert_array_equal(load(data), over_black(rgba))


def test_bmp_16_bit(load: Loader) -> None:
    assert load(bmp(np.array([[0x7C00, 0x03E0, 0x001F]]), 16))[0].tolist() == [
        [255, 0, 0],
        [0, 255, 0],
        [0, 0, 255],
    ]


# 1 1 1, end of line, then 2 1 0 and a padding byte, end of picture
def test_bmp_rle(load: Loader) -> None:
    assert load(rle_bmp(RLE_ROWS)).tolist() == [
        [[40, 240, 60], [250, 20, 30], [0, 0, 0]],
        [[250, 20, 30], [250, 20, 30], [250, 20, 30]],
    ]


def test_bmp_of_os2(load: Loader) -> None:
    pixels = random_pixels(2, 4, 3)
    core = struct.pack("<IHHHH", 12, 4, 2, 1, 24)
    data = b"BM" + struct.pack("<IHHI", 50, 0, 0, 26) + core + pixels[::-1, :, ::-1].tobytes()
    np.testing.assert_array_equal(load(data), pixels)


@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        (18, "<i", 0),
        (18, "<i", -3),
        (18, "<i", 2**31 - 1),
        (22, "<i", 0),
        (22, "<i", 2**31 - 1),
        (22, "<i", -(2**31)),
        (10, "<I", 20),
        (10, "<I", 2**32 - 1),
        (14, "<I", 2**32 - 1),
        (14, "<I", 39),
        (28, "<H", 0),
        (28, "<H", 5),
        (28, "<H", 64),
        (30, "<I", 9),
    ],
    ids=lambda value: str(value).lstrip("<"),
)
def test_bmp_header_fields_out_of_range(
    refuse: Callable[[bytes], str], at: int, layout: str, value: int
) -> None:
    data = bytearray(bmp(bgr(random_pixels(5, 4, 3)), 24))
    struct.pack_into(layout, data, at, value)
    refuse(bytes(data))
