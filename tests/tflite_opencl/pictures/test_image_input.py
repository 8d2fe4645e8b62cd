# SPDX-License-Identifier: Apache-2.0
"""A picture as a model's input tensor, against TFLite's own resize."""

from __future__ import annotations

import platform
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.model import one_op_model, t
from tests.support.pictures import Pixels, random_pixels, shared
from tflite_opencl.harness.labels import format_row, top_results
from tflite_opencl.interpreters.runtime import find_runtime
from tflite_opencl.pictures.decode import PictureError
from tflite_opencl.pictures.image import load_picture, to_input
from tflite_opencl.pictures.layout import PictureLayout, is_picture, layout_of, why_no_picture


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
    height, width = target or (2 * source[0], 2 * source[1])  # twice the size is a special case
    expected = tflite_resize(picture, height, width)
    np.testing.assert_array_equal(resized(picture, height, width), expected)
    gray = np.repeat(picture[..., :1], 3, axis=2)
    np.testing.assert_array_equal(resized(gray, height, width, 1), expected[..., :1])


def test_values_of_label_images_unit_test() -> None:
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


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16"])
def test_normalised_values_are_quantised(dtype: str) -> None:
    picture, limits = random_pixels(13, 11, 3), np.iinfo(dtype)
    real = to_input(picture, (1, 7, 5, 3), "float32", 103.94, 57.3)
    wanted = np.clip(np.rint(real / np.float32(0.0187)) - 14, limits.min, limits.max)
    result = to_input(picture, (1, 7, 5, 3), dtype, 103.94, 57.3, 0.0187, -14)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
def test_input_has_shape_and_type_of_tensor(dtype: type) -> None:
    shape = np.array([1, 5, 7, 3], np.int32)  # as the interpreter returns it
    result = to_input(random_pixels(8, 9, 3), tuple(shape), dtype)
    assert result.shape == (1, 5, 7, 3)
    assert result.dtype == dtype
    assert result.flags.c_contiguous


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32"])
@pytest.mark.parametrize(
    ("shape", "like", "axes"),
    [
        ((1, 3, 5, 7), (1, 5, 7, 3), (0, 3, 1, 2)),
        ((3, 5, 7), (1, 5, 7, 3), (0, 3, 1, 2)),
        ((5, 7, 3), (1, 5, 7, 3), (0, 1, 2, 3)),
        ((1, 1, 5, 7), (1, 5, 7, 1), (0, 3, 1, 2)),
        ((5, 7, 1), (1, 5, 7, 1), (0, 1, 2, 3)),
        ((1, 5, 7), (1, 5, 7, 1), (0, 1, 2, 3)),
        ((5, 7), (1, 5, 7, 1), (0, 1, 2, 3)),
    ],
)
def test_other_layouts_have_equal_values(
    shape: tuple[int, ...], like: tuple[int, ...], axes: tuple[int, ...], dtype: str
) -> None:
    picture = np.random.default_rng(5).integers(0, 256, (11, 9, 3)).astype(np.uint8)
    got = to_input(picture, shape, dtype)
    assert (got.shape, got.dtype) == (shape, np.dtype(dtype))
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(
        got, to_input(picture, like, dtype).transpose(axes).reshape(shape)
    )


@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 640),
        (1, 640),
        (640,),
        (1, 5, 7, 2),
        (2, 5, 5, 7),
        (5, 7, 4),
        (0, 5, 7, 3),
        (5, 7, 9),
        (1, 3, 5, 1, 1),
    ],
)
def test_inputs_that_are_no_pictures(shape: tuple[int, ...]) -> None:
    assert layout_of(shape) is None


def test_first_of_four_dimensions_is_batch() -> None:
    assert layout_of((4, 5, 7, 3)) == PictureLayout(5, 7, 3, batch=4)
    assert layout_of((2, 3, 5, 7)) == PictureLayout(5, 7, 3, is_planar=True, batch=2)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "float32"])
def test_fourth_channel_is_alpha(dtype: str) -> None:
    assert layout_of((1, 5, 7, 4)) == PictureLayout(5, 7, 4)
    picture = np.random.default_rng(5).integers(0, 256, (11, 9, 4)).astype(np.uint8)
    result = to_input(picture, (1, 5, 7, 4), dtype)
    assert np.array_equal(result[..., :3], to_input(picture[..., :3].copy(), (1, 5, 7, 3), dtype))
    as_gray = np.repeat(picture[..., 3:], 3, axis=2)
    assert np.array_equal(result[..., 3], to_input(as_gray, (1, 5, 7, 3), dtype)[..., 0])
    opaque = to_input(picture[..., :3].copy(), (1, 5, 7, 4), dtype)
    assert np.array_equal(opaque[..., :3], result[..., :3])
    assert (opaque[..., 3] == {"uint8": 255, "int8": 127, "float32": 1}[dtype]).all()
    planar = to_input(picture, (1, 4, 9, 12), dtype)
    assert np.array_equal(planar, to_input(picture, (1, 9, 12, 4), dtype).transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("shape", "dtype", "why"),
    [
        ((1, 5, 7, 9), "uint8", "it has 9 channels, and pictures have 1, 3 or 4"),
        ((1, 640), "float32", "it has no height and width"),
        ((1, 5, 7, 3), "int16", "int16 is no type of pictures without a scale"),
        ((1, 5, 7, 3), "int32", "int32 is no type of pictures"),
        ((1, 5, 7, 3), "uint8", ""),
    ],
)
def test_refused_input_has_reason(shape: tuple[int, ...], dtype: str, why: str) -> None:
    assert why_no_picture(shape, dtype) == why


def test_ambiguous_layout_is_nhwc() -> None:
    assert layout_of((1, 3, 8, 3)) == PictureLayout(3, 8, 3)


def test_one_channel_is_luminance() -> None:
    picture = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [200, 100, 50]]], np.uint8)
    luminance = to_input(picture, (1, 1, 4, 1), np.uint8)
    assert luminance.ravel().tolist() == [76, 150, 29, 124]


@pytest.mark.parametrize(
    ("shape", "dtype", "std", "text"),
    [
        ((1, 8, 8, 5), np.uint8, 1, "input 1x8x8x5 is no picture"),
        ((2, 8, 8, 3), np.uint8, 1, "input 2x8x8x3"),
        ((1, 8, 0, 3), np.uint8, 1, "input 1x8x0x3"),
        ((1, -1, 8, 3), np.uint8, 1, "input 1x-1x8x3"),
        ((1, 490), np.int8, 1, "input 1x490"),
        ((), np.int8, 1, "is no picture"),
        ((1, 8, 8, 3), np.int16, 1, "input type int16"),
        ((1, 8, 8, 3), np.float32, 0, "standard deviation is 0"),
    ],
)
def test_models_without_picture_input(
    shape: tuple[int, ...], dtype: type, std: float, text: str
) -> None:
    with pytest.raises(PictureError, match=text):
        to_input(random_pixels(4, 4, 3), shape, dtype, std=std)


@pytest.mark.parametrize(
    ("scale", "zero_point", "ends"),
    [(1 / 32768, 0, [-32768, 32767]), (0.25, 3, [-1, 7]), (1e-9, 0, [-32768, 32767])],
    ids=["unit", "coarse", "beyond-the-range"],
)
def test_int16_inputs_are_normalised_and_quantised(
    scale: float, zero_point: int, ends: list[int]
) -> None:
    picture = np.array([[[0, 63, 255]]], np.uint8)
    tensor = to_input(picture, (1, 1, 1, 3), np.int16, scale=scale, zero_point=zero_point)
    assert tensor.dtype == np.int16
    expected = np.rint((picture.astype(np.float64) - 127.5) / 127.5 / scale) + zero_point
    assert np.abs(tensor - expected.clip(-32768, 32767)).max() <= 1
    assert tensor.reshape(-1)[::2].tolist() == ends


def test_is_picture_agrees_with_to_input() -> None:
    for shape in ((1, 2, 2, 3), (1, 2, 2, 1), (1, 2, 2, 2), (2, 2, 2, 3), (1, 0, 2, 3), (2, 3), ()):
        for dtype in ("uint8", "int8", "int16", "int32", "float32", "bool"):
            for scale in (0.0, 0.5):
                try:
                    of_one = (1, *shape[1:]) if len(shape) == 4 else shape
                    to_input(random_pixels(4, 4, 3), of_one, dtype, scale=scale)
                except PictureError:
                    assert not is_picture(shape, dtype, scale)
                else:
                    assert is_picture(shape, dtype, scale)


def test_resize_of_large_picture_needs_little_memory() -> None:
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
