# SPDX-License-Identifier: Apache-2.0
"""Pictures, against files made byte by byte, label_image's own decoder and TFLite's resize."""

import io
import logging
import os
import platform
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from label_image.image import MAX_PIXELS, PictureError, is_picture, load_picture, to_input
from label_image.labels import format_row, top_results
from tests.support.model import one_op_model, t
from tflite_opencl.common.runtime import find_runtime

SHARED = Path(__file__).resolve().parents[3] / "shared"
Pixels = NDArray[np.uint8]
Loader = Callable[[bytes], Pixels]


def random_pixels(*shape: int, seed: int = 1) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    def load_bytes(data: bytes) -> Pixels:
        path = tmp_path / "picture"
        path.write_bytes(data)
        return load_picture(path)

    return load_bytes


@pytest.fixture
def refuse(load: Loader) -> Callable[[bytes], str]:
    """Return the text of the error a file gives, which must be one line that names the file."""

    def text_of_error(data: bytes) -> str:
        with pytest.raises(PictureError) as caught:
            load(data)
        text = str(caught.value)
        assert text.startswith("cannot read picture ")
        assert len(text.splitlines()) == 1
        return text

    return text_of_error


def shared(name: str) -> Path:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no ../shared/{name}")
    return path


# BMP: the encoder and label_image's decoder, both written from the format alone


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
    """Return a BMP of numbers (h, w): palette indices or packed pixels of that many bits."""
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
    """Pack (h, w, 3 or 4) into BMP's blue-lowest numbers."""
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


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_bmp_gray_palette(load: Loader, bits: int) -> None:
    levels = 1 << bits
    palette = np.repeat(np.linspace(0, 255, levels).astype(np.uint8)[:, None], 3, axis=1)
    indices = np.arange(6 * 50).reshape(6, 50) % levels
    np.testing.assert_array_equal(load(bmp(indices, bits, palette=palette)), palette[indices])


def test_bmp_palette_of_black_and_white_in_8_bits(load: Loader) -> None:
    palette = np.array([[0, 0, 0], [255, 255, 255]], np.uint8)
    indices = random_pixels(4, 9) % 2
    data = bmp(indices, 8, palette=palette)
    np.testing.assert_array_equal(load(data), palette[indices])


def test_bmp_palette_of_the_darkest_16_grays_in_4_bits(load: Loader) -> None:
    palette = np.repeat(np.arange(16, dtype=np.uint8)[:, None], 3, axis=1)
    indices = random_pixels(4, 9) % 16
    np.testing.assert_array_equal(load(bmp(indices, 4, palette=palette)), palette[indices])


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


def over_black(rgba: Pixels) -> Pixels:
    colour, alpha = rgba[..., :3].astype(np.float64), rgba[..., 3:].astype(np.float64)
    return np.floor(colour * alpha / 255 + 0.5).astype(np.uint8)


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
RLE_ROWS = bytes([3, 1, 0, 0, 0, 3, 2, 1, 0, 0, 0, 1])


def rle_bmp(rows: bytes) -> bytes:
    palette = np.array([[0, 0, 0], [250, 20, 30], [40, 240, 60]] + [[9, 9, 9]] * 253, np.uint8)
    plain = bmp(np.zeros((2, 3), int), 8, palette=palette, compression=1)
    return plain[: 54 + 1024] + rows


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


# Other formats


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


def test_first_frame_of_an_animation(load: Loader) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "lime", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert load(data)[0, 0].tolist() == [255, 0, 0]


# EXIF orientation -> how the stored rows and columns turn upright
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
    with caplog.at_level(logging.WARNING, "label_image"):
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
    # The last 4 bytes of a PNG are the checksum of its empty end.
    needed = len(data) - (4 if kind == "png" else 0)
    for size in {*range(0, needed, max(1, needed // 100)), *range(needed - 12, needed)}:
        refuse(data[:size])


@pytest.mark.parametrize("kind", WHOLE_FILES)
@given(flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 7)), min_size=1, max_size=4))
def test_damaged_files_give_pixels_or_one_clear_error(
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


def test_a_png_with_a_wrong_checksum_is_refused(refuse: Callable[[bytes], str]) -> None:
    data = bytearray(WHOLE_FILES["png"])
    data[-14] ^= 1  # in the checksum of its pixels
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
def test_what_is_no_picture_is_refused(
    refuse: Callable[[bytes], str], data: bytes, text: str
) -> None:
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
    assert f"more than {MAX_PIXELS} pixels" in refuse(data)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_picture(tmp_path / "none.bmp")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PictureError, match="Is a directory"):
        load_picture(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "secret.bmp"
    path.write_bytes(WHOLE_FILES["bmp-24"])
    path.chmod(0)
    with pytest.raises(PictureError, match="Permission denied"):
        load_picture(path)


# Resize


@pytest.fixture(scope="module")
def tflite_resize() -> Callable[[Pixels, int, int], NDArray[np.float32]]:
    """TFLite's optimized RESIZE_BILINEAR, as label_image runs it: float32, no XNNPACK."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("a compiler may fuse this kernel's multiply and add outside x86-64")
    model = one_op_model(
        "RESIZE_BILINEAR",
        [t((1, 2, 2, 3)), t((2,), "int32")],
        [t((1, 2, 2, 3))],
        {"align_corners": False, "half_pixel_centers": False},
    )
    interpreter = find_runtime().interpreter(model, threads=1, cpu_kernels="builtin")
    picture_index, size_index = (item["index"] for item in interpreter.get_input_details())
    output_index = interpreter.get_output_details()[0]["index"]

    def resize(picture: Pixels, height: int, width: int) -> NDArray[np.float32]:
        interpreter.resize_tensor_input(picture_index, (1, *picture.shape))
        interpreter.allocate_tensors()
        interpreter.set_tensor(picture_index, picture[np.newaxis].astype(np.float32))
        interpreter.set_tensor(size_index, np.array([height, width], np.int32))
        interpreter.invoke()
        result: NDArray[np.float32] = interpreter.get_tensor(output_index)
        return result

    return resize


def resized(picture: Pixels, height: int, width: int, channels: int = 3) -> NDArray[np.float32]:
    return to_input(picture, (1, height, width, channels), np.float32, mean=0, std=1)


@pytest.mark.parametrize(
    ("height", "width"),
    [
        (214, 214),
        (224, 224),
        (128, 128),
        (160, 160),
        (299, 299),
        (192, 256),
        (700, 900),
        (606, 517),
        (1212, 1034),
        (1212, 517),
        (1, 1),
    ],
    ids=lambda size: str(size),
)
def test_resize_equals_tflite_bit_for_bit(
    tflite_resize: Callable[[Pixels, int, int], NDArray[np.float32]], height: int, width: int
) -> None:
    picture = random_pixels(606, 517, 3)
    expected = tflite_resize(picture, height, width)
    np.testing.assert_array_equal(resized(picture, height, width), expected)


@given(
    source=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    target=st.tuples(st.integers(1, 60), st.integers(1, 60)) | st.none(),
    seed=st.integers(0, 99),
)
def test_any_resize_equals_tflite_bit_for_bit(
    tflite_resize: Callable[[Pixels, int, int], NDArray[np.float32]],
    source: tuple[int, int],
    target: tuple[int, int] | None,
    seed: int,
) -> None:
    picture = random_pixels(*source, 3, seed=seed)
    height, width = target or (2 * source[0], 2 * source[1])  # twice the size is a case of its own
    expected = tflite_resize(picture, height, width)
    np.testing.assert_array_equal(resized(picture, height, width), expected)
    gray = np.repeat(picture[..., :1], 3, axis=2)
    np.testing.assert_array_equal(resized(gray, height, width, 1), expected[..., :1])


def test_values_of_label_images_own_unit_test() -> None:
    picture = load_picture(shared("images/grace_hopper_517x606.bmp"))
    assert picture.shape == (606, 517, 3)
    values = to_input(picture, (1, 214, 214, 3), np.uint8)
    assert (values.flat[0], values.flat[-1]) == (0x15, 0x11)


def test_8_bit_inputs_are_truncated_toward_zero() -> None:
    # Twice the width: 0, half of 0 and 255, 255, then the last pixel again.
    picture = np.repeat(np.array([[[0], [255]], [[0], [255]]], np.uint8), 3, axis=2)
    float_row = to_input(picture, (1, 4, 4, 1), np.float32, 0, 1)[0, 0, :, 0]
    assert float_row.tolist() == [0, 127.5, 255, 255]
    assert to_input(picture, (1, 4, 4, 1), np.uint8)[0, 0, :, 0].tolist() == [0, 127, 255, 255]
    assert to_input(picture, (1, 4, 4, 1), np.int8)[0, 0, :, 0].tolist() == [-128, 0, 127, 127]


def test_float_inputs_are_normalised_in_float32() -> None:
    picture = random_pixels(13, 11, 3)
    values = resized(picture, 7, 5)
    expected = (values - np.float32(103.94)) / np.float32(57.3)
    result = to_input(picture, (1, 7, 5, 3), "float32", 103.94, 57.3)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, expected)
    default = to_input(picture, (1, 7, 5, 3), np.float32)
    np.testing.assert_array_equal(default, (values - np.float32(127.5)) / np.float32(127.5))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
def test_the_input_has_the_tensors_shape_and_type(dtype: type) -> None:
    shape = np.array([1, 5, 7, 3], np.int32)  # as the interpreter gives it
    result = to_input(random_pixels(8, 9, 3), tuple(shape), dtype)
    assert result.shape == (1, 5, 7, 3)
    assert result.dtype == dtype
    assert result.flags.c_contiguous


def test_one_channel_is_luminance() -> None:
    picture = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [200, 100, 50]]], np.uint8)
    luminance = to_input(picture, (1, 1, 4, 1), np.uint8)
    assert luminance.ravel().tolist() == [76, 150, 29, 124]


@pytest.mark.parametrize(
    ("shape", "dtype", "std", "text"),
    [
        ((1, 8, 8, 4), np.uint8, 1, "input 1x8x8x4 is no picture"),
        ((2, 8, 8, 3), np.uint8, 1, "input 2x8x8x3"),
        ((1, 8, 0, 3), np.uint8, 1, "input 1x8x0x3"),
        ((1, -1, 8, 3), np.uint8, 1, "input 1x-1x8x3"),
        ((1, 490), np.int8, 1, "input 1x490"),
        ((), np.int8, 1, "is no picture"),
        ((1, 8, 8, 3), np.int16, 1, "input type int16"),
        ((1, 8, 8, 3), np.float32, 0, "standard deviation is 0"),
    ],
)
def test_models_that_take_no_picture(
    shape: tuple[int, ...], dtype: type, std: float, text: str
) -> None:
    with pytest.raises(PictureError, match=text):
        to_input(random_pixels(4, 4, 3), shape, dtype, std=std)


@pytest.mark.parametrize(
    ("scale", "zero_point", "ends"),
    [(1 / 32768, 0, [-32768, 32767]), (0.25, 3, [-1, 7]), (1e-9, 0, [-32768, 32767])],
    ids=["unit", "coarse", "beyond-the-range"],
)
def test_int16_inputs_hold_normalised_pixels_in_their_own_scale(
    scale: float, zero_point: int, ends: list[int]
) -> None:
    picture = np.array([[[0, 63, 255]]], np.uint8)
    tensor = to_input(picture, (1, 1, 1, 3), np.int16, scale=scale, zero_point=zero_point)
    assert tensor.dtype == np.int16
    expected = np.rint((picture.astype(np.float64) - 127.5) / 127.5 / scale) + zero_point
    assert np.abs(tensor - expected.clip(-32768, 32767)).max() <= 1
    assert tensor.reshape(-1)[::2].tolist() == ends


def test_is_picture_says_what_to_input_takes() -> None:
    for shape in ((1, 2, 2, 3), (1, 2, 2, 1), (1, 2, 2, 2), (2, 2, 2, 3), (1, 0, 2, 3), (2, 3), ()):
        for dtype in ("uint8", "int8", "int16", "int32", "float32", "bool"):
            for scale in (0.0, 0.5):
                try:
                    to_input(random_pixels(4, 4, 3), shape, dtype, scale=scale)
                except PictureError:
                    assert not is_picture(shape, dtype, scale)
                else:
                    assert is_picture(shape, dtype, scale)


def test_a_large_picture_takes_little_memory_to_resize() -> None:
    picture = np.zeros((3000, 4000, 3), np.uint8)
    tracemalloc.start()
    try:
        to_input(picture, (1, 224, 224, 3), np.uint8)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6 * 224 * 224 * 3 * 4


@pytest.mark.model
def test_mobilenet_v1_prints_label_images_rows() -> None:
    model = str(shared("models/mobilenet_v1_1.0_224_quant.tflite"))
    interpreter = find_runtime().interpreter(model, threads=2, cpu_kernels="builtin")
    interpreter.allocate_tensors()
    [tensor] = interpreter.get_input_details()
    picture = load_picture(shared("images/grace_hopper_517x606.bmp"))
    interpreter.set_tensor(tensor["index"], to_input(picture, tensor["shape"], tensor["dtype"]))
    interpreter.invoke()
    output = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    results = top_results(output, tensor["dtype"], 5)
    assert "|".join(format_row(row, []) for row in results) == (
        "0.776471: 653|0.105882: 907|0.0117647: 458|0.00784314: 835|0.00784314: 668"
    )
