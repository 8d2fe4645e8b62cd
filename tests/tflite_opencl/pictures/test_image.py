# SPDX-License-Identifier: Apache-2.0
"""Pictures that Pillow decodes, and files that are refused."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.pictures import (
    RLE_ROWS,
    Loader,
    Pixels,
    bgr,
    bmp,
    encoded,
    over_black,
    png,
    png_chunk,
    random_pixels,
    rle_bmp,
)
from tflite_opencl.pictures.decode import MAX_PIXELS, PictureError
from tflite_opencl.pictures.image import load_picture


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "TGA", "GIF"])
def test_gray_gives_equal_channels(load: Loader, kind: str) -> None:
    gray = random_pixels(5, 7)
    expected = np.repeat(gray[..., None], 3, axis=2)
    np.testing.assert_array_equal(load(encoded(Image.fromarray(gray), kind)), expected)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM", "TGA", "WEBP"])
def test_rgb_is_unchanged(load: Loader, kind: str) -> None:
    rgb = random_pixels(5, 7, 3)
    options = {"lossless": True} if kind == "WEBP" else {}
    np.testing.assert_array_equal(load(encoded(Image.fromarray(rgb), kind, **options)), rgb)


def test_one_bit_picture(load: Loader) -> None:
    bits = random_pixels(5, 7) % 2 * np.uint8(255)
    expected = np.repeat(bits[..., None], 3, axis=2)
    data = encoded(Image.fromarray(bits).convert("1"), "PNG")
    np.testing.assert_array_equal(load(data), expected)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "TGA"])
def test_alpha_is_dropped_onto_black(load: Loader, kind: str) -> None:
    rgba = random_pixels(9, 11, 4)
    np.testing.assert_array_equal(load(encoded(Image.fromarray(rgba), kind)), over_black(rgba))


def test_gray_with_alpha(load: Loader) -> None:
    la = random_pixels(9, 11, 2)
    expected = over_black(la[..., [0, 0, 0, 1]])
    np.testing.assert_array_equal(load(encoded(Image.fromarray(la), "PNG")), expected)


def test_palette_with_transparent_entries(load: Loader) -> None:
    palette, alpha = random_pixels(4, 3), bytes([255, 0, 128, 255])
    indices = random_pixels(5, 6) % 4
    image = Image.fromarray(indices).convert("P")
    image.putdata(indices.flatten().tolist())
    image.putpalette(palette.tobytes())
    rgba = np.concatenate([palette, np.frombuffer(alpha, np.uint8)[:, None]], axis=1)[indices]
    np.testing.assert_array_equal(load(encoded(image, "PNG")), palette[indices])
    data = encoded(image, "PNG", transparency=alpha)
    np.testing.assert_array_equal(load(data), over_black(rgba))


def test_rgb_with_one_transparent_colour(load: Loader) -> None:
    rgb = np.array([[[10, 20, 30], [10, 20, 31]]], np.uint8)
    data = encoded(Image.fromarray(rgb), "PNG", transparency=(10, 20, 30))
    assert load(data).tolist() == [[[0, 0, 0], [10, 20, 31]]]


@pytest.mark.parametrize(("colour_type", "channels"), [(0, 1), (2, 3)], ids=["gray", "rgb"])
def test_16_bit_png_keeps_the_high_byte(load: Loader, colour_type: int, channels: int) -> None:
    high = random_pixels(3, 5, channels)
    low = random_pixels(3, 5, channels, seed=2)
    rows = b"".join(b"\0" + np.stack(pair, 2).tobytes() for pair in zip(high, low, strict=True))
    expected = np.broadcast_to(high, (3, 5, 3))
    np.testing.assert_array_equal(load(png(5, 3, 16, colour_type, rows)), expected)


def test_16_bit_gray_in_other_formats(load: Loader) -> None:
    gray = np.array([[0, 255, 256, 0x1234, 0xFFFF]], np.uint16)
    tiff = encoded(Image.fromarray(gray), "TIFF")
    pgm = b"P5 5 1 65535\n" + gray.astype(">u2").tobytes()
    for data in (tiff, pgm):
        assert load(data)[0, :, 1].tolist() == [0, 0, 1, 0x12, 255]


def test_32_bit_pixels_are_refused(refuse: Callable[[bytes], str]) -> None:
    tiff = encoded(Image.fromarray(np.ones((2, 2), np.float32)), "TIFF")
    assert "32-bit pixels" in refuse(tiff)


def test_cmyk_becomes_rgb(load: Loader) -> None:
    cmyk = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    red, green, blue = load(encoded(cmyk, "JPEG", quality=95))[8, 8].tolist()
    assert red > 230
    assert green < 25
    assert blue < 25


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "MPO", "TIFF", "PNG"])
def test_first_of_several_frames_is_used_with_warning(
    load: Loader, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue")]
    lossless = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **lossless)
    red, green, blue = load(data)[0, 0].tolist()
    assert red > 250
    assert max(green, blue) < 5
    assert caplog.messages == ["the picture has several frames: the first one is taken"]
    caplog.clear()
    load(encoded(frames[0], kind))
    assert caplog.messages == []


# EXIF orientation -> transformation of stored rows and columns
UPRIGHT: dict[int, Callable[[Pixels], Pixels]] = {
    1: lambda stored: stored,
    2: lambda stored: stored[:, ::-1],
    3: lambda stored: stored[::-1, ::-1],
    4: lambda stored: stored[::-1],
    5: lambda stored: stored.transpose(1, 0, 2),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: stored[::-1, ::-1].transpose(1, 0, 2),
    8: lambda stored: np.rot90(stored, 1),
}


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_exif_orientation(load: Loader, kind: str, orientation: int) -> None:
    image = Image.fromarray(random_pixels(16, 24, 3))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {}
    stored = load(encoded(image, kind, **options))
    turned = load(encoded(image, kind, exif=exif, **options))
    np.testing.assert_array_equal(turned, UPRIGHT[orientation](stored))


def test_exif_orientation_of_16_bit_gray(load: Loader) -> None:
    exif = struct.pack(">2sHIHHHIHHI", b"MM", 42, 8, 1, 0x0112, 3, 1, 6, 0, 0)
    rows = b"\0\x11\x00\x22\x00\0\x33\x00\x44\x00"
    upright = load(png(2, 2, 16, 0, rows, png_chunk(b"eXIf", exif)))
    assert upright[..., 0].tolist() == [[0x33, 0x11], [0x44, 0x22]]


def test_damaged_exif_does_not_lose_the_picture(
    load: Loader, caplog: pytest.LogCaptureFixture
) -> None:
    rows = b"\0\x11\x22"
    with caplog.at_level(logging.WARNING, "tflite_opencl"):
        pixels = load(png(2, 1, 8, 0, rows, png_chunk(b"eXIf", b"nonsense")))
    assert pixels[..., 0].tolist() == [[0x11, 0x22]]
    assert "EXIF" in caplog.text


# Bad files

WHOLE_FILES = {
    "bmp-1": bmp(random_pixels(4, 9) % 2, 1, palette=random_pixels(2, 3)),
    "bmp-8": bmp(random_pixels(4, 9), 8, palette=random_pixels(256, 3)),
    "bmp-24": bmp(bgr(random_pixels(9, 6, 3)), 24, header_size=124),
    "bmp-32": bmp(bgr(random_pixels(6, 9, 4)), 32),
    "bmp-16": bmp(random_pixels(6, 10), 16),
    "bmp-rle": rle_bmp(RLE_ROWS[:-3]),
    "png": encoded(Image.fromarray(random_pixels(20, 30, 3)), "PNG"),
    "jpeg": encoded(Image.fromarray(random_pixels(20, 30, 3)), "JPEG"),
    "jpeg-progressive": encoded(
        Image.fromarray(random_pixels(20, 30, 3)), "JPEG", progressive=True
    ),
    "webp": encoded(Image.fromarray(random_pixels(20, 30, 3)), "WEBP"),
    "tiff": encoded(Image.fromarray(random_pixels(20, 30, 3)), "TIFF"),
}


@pytest.mark.parametrize("kind", WHOLE_FILES)
def test_truncated_files_are_refused(
    load: Loader, refuse: Callable[[bytes], str], kind: str
) -> None:
    data = WHOLE_FILES[kind]
    load(data)
    # The last 4 bytes of a PNG are the checksum of IEND.
    needed = len(data) - (4 if kind == "png" else 0)
    for size in {*range(0, needed, max(1, needed // 100)), *range(needed - 12, needed)}:
        refuse(data[:size])


@pytest.mark.parametrize("kind", WHOLE_FILES)
@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=4))
def test_damaged_files_are_decoded_or_one_error(
    load: Loader, kind: str, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(WHOLE_FILES[kind])
    for position, bit in flips:
        data[position % len(data)] ^= 1 << bit
    try:
        outcome: Pixels | PictureError = load(bytes(data))
    except PictureError as error:
        outcome = error
    if isinstance(outcome, PictureError):
        assert len(str(outcome).splitlines()) == 1
    else:
        assert outcome.dtype == np.uint8
        assert outcome.shape[2:] == (3,)


def test_png_with_wrong_checksum_is_refused(refuse: Callable[[bytes], str]) -> None:
    data = bytearray(WHOLE_FILES["png"])
    data[-14] ^= 1  # in the checksum of IDAT
    refuse(bytes(data))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a picture"),
        (b"BM", "not a picture"),
        (b"not a picture\n", "not a picture"),
        (b"\xa5" * 999, "not a picture"),
        (b"BM" + bytes(100), "Unsupported BMP header"),
        (png(0, 5, 8, 0, b""), "not a picture"),
        (b"P5 5 0 255\n", "not a picture"),
    ],
    ids=["empty", "two bytes", "text", "no known format", "BMP of zeros", "no width", "no height"],
)
def test_other_file_is_refused(refuse: Callable[[bytes], str], data: bytes, text: str) -> None:
    assert text in refuse(data)


SIDE_OVER_THE_LIMIT = int(MAX_PIXELS**0.5) + 1


@pytest.mark.parametrize("side", [20000, SIDE_OVER_THE_LIMIT, 65000])
@pytest.mark.parametrize("kind", ["bmp", "bmp-rle", "png", "gif", "ico"])
def test_decompression_bombs_are_refused(
    refuse: Callable[[bytes], str], kind: str, side: int
) -> None:
    small_bmp = bytearray(WHOLE_FILES["bmp-rle" if kind == "bmp-rle" else "bmp-24"])
    small_bmp[18:26] = struct.pack("<ii", side, side)
    small_gif = encoded(Image.new("L", (2, 2)), "GIF")
    bomb_png = png(side, side, 8, 0, b"\0" * 100)
    icon_entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(bomb_png), 22)
    data = {
        "bmp": bytes(small_bmp),
        "bmp-rle": bytes(small_bmp),
        "png": bomb_png,
        "gif": small_gif[:6] + struct.pack("<HH", side, side) + small_gif[10:],
        "ico": struct.pack("<HHH", 0, 1, 1) + icon_entry + bomb_png,
    }[kind]
    assert refuse(data).endswith(": make it smaller first")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_picture(tmp_path / "none.bmp")


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match="Is a directory"):
        load_picture(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.bmp"
    path.write_bytes(WHOLE_FILES["bmp-24"])
    path.chmod(0)
    with pytest.raises(PictureError, match="Permission denied"):
        load_picture(path)
