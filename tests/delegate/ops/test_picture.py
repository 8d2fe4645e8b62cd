# SPDX-License-Identifier: Apache-2.0
"""picture: what it refuses, and each element against what the CPU makes of a picture."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, Model
from delegate.inspect import Graph, Node
from tests.support.cases import GROUPS, Strategy, changed, forced
from tests.support.compare import assert_same
from tests.support.factories import drawn, exact, refused
from tests.support.guards import guarded
from tests.support.model import graph_of, op, t
from tflite_opencl.pictures.image import to_input

DTYPES = ("uint8", "int8", "float32")


@dataclass(frozen=True)
class Picture:
    """A picture's size, and what becomes of it."""

    size: tuple[int, int] = (7, 9)
    out: tuple[int, int] = (4, 5)
    dtype: str = "uint8"
    mean: tuple[float, ...] = (127.5,)
    std: tuple[float, ...] = (127.5,)
    scale: float = 0.0
    zero_point: int = 0

    def node(self) -> Node:
        levels = {"mean": self.mean, "std": self.std}
        options: dict[str, Any] = {
            name: tuple(np.broadcast_to(of, 3).tolist()) for name, of in levels.items()
        }
        options |= {"scale": self.scale, "zero_point": self.zero_point}
        made = t((1, *self.out, 3), self.dtype)
        return op("picture", [t((1, *self.size, 3), "uint8")], [made], options)

    def graph(self) -> Graph:
        return graph_of([self.node()])

    def wanted(self, pixels: NDArray[np.uint8]) -> NDArray[Any]:
        stored = self.scale, self.zero_point
        return to_input(pixels, (1, *self.out, 3), self.dtype, self.mean, self.std, *stored)


CASES = {
    "smaller": Picture(),
    "larger": Picture((3, 5), (8, 11), "int8"),
    "same": Picture((6, 4), (6, 4), "float32"),
    "one_pixel": Picture((1, 1), (5, 3), "float32", (0.0,), (255.0,)),
    "to_one_pixel": Picture((9, 31), (1, 1), "int8"),
    "halves": Picture((10, 34), (5, 17)),
    "twice": Picture((5, 17), (10, 34), "float32", (127.0,), (128.0,)),
    "a_row": Picture((1, 200), (1, 133)),
    "a_column": Picture((200, 1), (133, 1), "int8"),
    "channels": Picture((40, 57), (23, 33), "float32", (123.68, 116.78, 104.0), (58.4, 57.1, 1.0)),
    "frame": Picture((72, 128), (64, 65), "float32", (-3.3,), (-0.7, 3e-6, 9e5)),
    "stored_int8": Picture((40, 57), (23, 33), "int8", (123.7,), (58.4,), 0.0187, -14),
    "stored_uint8": Picture(dtype="uint8", mean=(0.0,), std=(255.0,), scale=1 / 128, zero_point=9),
    "stored_int16": Picture((9, 9), (7, 5), "int16", scale=1 / 32768),
    "stored_to_the_ends": Picture((9, 9), (17, 5), "int8", std=(1.0,), scale=0.01, zero_point=3),
    "stored_halves": Picture((4, 6), (4, 6), "uint8", (0.0,), (1.0,), 2.0, 0),
}  # fmt: skip
NODES = {f"picture-{dtype}": Picture(dtype=dtype).node() for dtype in DTYPES}
NODES |= {
    f"picture-{dtype}-stored": Picture(dtype=dtype, scale=0.01).node()
    for dtype in ("uint8", "int8", "int16")
}


def assert_as_the_cpu(case: Picture, device: DeviceInfo, strategy: Strategy, seed: int = 0) -> None:
    """Assert equal bits, of noise and of the brightest picture, and nothing written beside."""
    with forced(strategy), guarded() as written:
        model = Model(case.graph(), device.index, tune="off")
        noise = np.random.default_rng(seed).integers(0, 256, (*case.size, 3)).astype(np.uint8)
        for pixels in (noise, np.full_like(noise, 255)):
            (got,) = model.run(pixels[np.newaxis])
            assert_same(got, case.wanted(pixels), f"{case}")
            assert got.tobytes() == case.wanted(pixels).tobytes()  # zeros' signs
        model.close()
    assert written == []


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    sides = st.integers(1, 70)
    both = st.tuples(sides, sides)
    dtype = draw(st.sampled_from(DTYPES))
    numbers = st.sampled_from((1.0, 58.4, 127.5, 255.0, 0.017, -2.0, 127.0, 3.3))
    levels = st.one_of(st.tuples(numbers), st.tuples(numbers, numbers, numbers))
    made = Picture(draw(both), draw(both), dtype, draw(levels), draw(levels))
    if not draw(st.booleans()):
        return made
    scale, zero_point = draw(st.sampled_from((0.0187, 1 / 127, 2.0, 1e-4))), draw(st.integers(0, 9))
    dtype = draw(st.sampled_from(("uint8", "int8", "int16")))
    return replace(made, dtype=dtype, scale=scale, zero_point=zero_point)


test_exact = pytest.mark.device(exact(CASES, GROUPS, assert_as_the_cpu))
test_drawn = pytest.mark.device(drawn(pictures(), GROUPS, assert_as_the_cpu))

NODE = Picture(dtype="float32").node()
WRONG_LEVEL = "mean, std and scale: from 2^-20 to 2^20; a mean may be 0"
test_refusals = refused(
    {
        "gray": (
            changed(NODE, -1, shape=(1, 4, 5, 1)),
            "1x4x5x1: one picture, NHWC, of 3 channels",
        ),
        "planar": (
            changed(NODE, -1, shape=(1, 3, 4, 5)),
            "1x3x4x5: one picture, NHWC, of 3 channels",
        ),
        "two": (changed(NODE, 0, shape=(2, 7, 9, 3)), "2x7x9x3: one picture, NHWC, of 3 channels"),
        "rank": (changed(NODE, -1, shape=(4, 5, 3)), "4x5x3: one picture, NHWC, of 3 channels"),
        "int16": (
            changed(NODE, -1, dtype="int16"),
            "uint8 in, int16 out: uint8, and uint8, int8, float32",
        ),
        "floats_in": (
            changed(NODE, 0, dtype="float32"),
            "float32 in, float32 out: uint8, and uint8, int8, float32",
        ),
        "empty": (
            changed(NODE, 0, shape=(1, 0, 9, 3)),
            "1x0x9x3 -> 1x4x5x3: from 1 to 2^20 pixels",
        ),
        "long": (
            changed(NODE, 0, shape=(1, 2**20 + 1, 1, 3)),
            "1x1048577x1x3 -> 1x4x5x3: from 1 to 2^20 pixels",
        ),
        "large": (
            changed(NODE, 0, shape=(1, 2**15, 2**15, 3)),
            "1x32768x32768x3 -> 1x4x5x3: 2^31 bytes or more",
        ),
        "no_mean": (replace(NODE, options={}), "mean is None: 3 numbers are needed"),
        "one_std": (changed(NODE, options={"std": (1.0,)}), "std is (1.0,): 3 numbers are needed"),
        "std_0": (changed(NODE, options={"std": (1.0, 0.0, 1.0)}), WRONG_LEVEL),
        "far_scale": (
            changed(NODE, -1, {"scale": 1e-9, "zero_point": 0}, dtype="int8"),
            WRONG_LEVEL,
        ),
        "stored_floats": (
            changed(NODE, options={"scale": 0.5, "zero_point": 0}),
            "uint8 in, float32 out: uint8, and uint8, int8, int16, stored by a scale",
        ),
        "far_mean": (changed(NODE, options={"mean": (1.0, 1e7, 1.0)}), WRONG_LEVEL),
        "nan": (changed(NODE, options={"mean": (1.0, 1.0, float("nan"))}), WRONG_LEVEL),
        "inputs": (replace(NODE, inputs=()), "0 inputs: 1 expected"),
    }
)
