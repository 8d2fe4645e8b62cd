# SPDX-License-Identifier: Apache-2.0
"""RFFT2D, and what makes floats of its results."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo
from delegate.inspect import Node
from tests.support.cases import GROUPS, RUN, Strategy, changed, forced, retyped
from tests.support.compare import assert_within
from tests.support.factories import drawn, exact, refused
from tests.support.model import chain_model, const, op, t

Arrays = list[NDArray[np.generic]]


def transform(shape: tuple[int, ...], *lengths: int) -> Node:
    out = (*shape[:-2], lengths[0], lengths[1] // 2 + 1)
    return op("RFFT2D", [t(shape), const(np.array(lengths, np.int32))], [t(out, "complex64")])


def of_sums(node: Node, given: Arrays) -> list[NDArray[np.float64]]:
    """Return four roundings of the root of the sum of squares that a frequency is made of.

    Each of log2(n) steps rounds at random; together they are off by about 0.6 * sqrt(log2(n)).
    """
    height, width = (int(length) for length in node.inputs[1].data)  # type: ignore[union-attr]
    (x,) = (np.asarray(values, np.float64)[..., :height, :width] for values in given)
    sizes = np.sqrt((x**2).sum((-2, -1), keepdims=True))
    steps = np.log2(height * width)
    return [np.broadcast_to(4 * 2.0**-24 * np.sqrt(steps) * sizes + 1e-37, node.outputs[0].shape)]


def assert_transformed(node: Node, device: DeviceInfo, strategy: Strategy, seed: int = 0) -> None:
    with forced(strategy):
        assert_within(chain_model([node]), device, partial(of_sums, node), seed)
    RUN["RFFT2D"] += 1


test_transforms = exact(
    {
        "sound": transform((96, 1, 512), 1, 512),
        "padded": transform((3, 1, 400), 1, 512),
        "cut": transform((2, 5, 40), 4, 32),
        "least": transform((3, 1, 2), 1, 2),
        "pair": transform((5, 2, 1), 2, 4),
        "picture": transform((2, 3, 16, 32), 16, 32),
        "tall": transform((1, 200, 7), 256, 2),
        "no_batch": transform((7, 64), 8, 64),
        "longest": transform((1, 1, 4096), 1, 4096),
        "highest": transform((1, 2048, 3), 2048, 4),
    },
    GROUPS,
    assert_transformed,
)


@st.composite
def transforms(draw: st.DrawFn) -> Node:
    height, width = 2 ** draw(st.integers(0, 5)), 2 ** draw(st.integers(1, 7))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    inner = draw(st.integers(1, 40)), draw(st.integers(1, 140))
    return transform((*batch, *inner), height, width)


test_drawn_transforms = drawn(transforms(), GROUPS, assert_transformed)


def part(name: str, *shape: int) -> Node:
    return op(name, [t(shape, "complex64")], [t(shape)])


test_parts = exact({name: part(name, 3, 700) for name in ("REAL", "IMAG")}, GROUPS)
ODD = np.float32([0, -0.0, 1, -3, 4, 1e-30, 1e-19, 1e19, 3e38, -3e38, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_sizes(device: DeviceInfo, strategy: Strategy) -> None:
    """Of all magnitudes, where squares would be infinite or 0: within three last places."""
    rng = np.random.default_rng(0)
    both = rng.standard_normal((2, 5000)) * 10 ** rng.uniform(-30, 30, (2, 5000))
    odd = np.concatenate([np.stack(np.meshgrid(ODD, ODD)).reshape(2, -1), both], axis=1)
    values = np.empty(odd.shape[1], np.complex64)
    values.real, values.imag = odd

    def places(given: Arrays) -> list[NDArray[np.float64]]:
        sizes = np.nan_to_num(np.abs(values.astype(np.complex128)), nan=0, posinf=0)
        return [3 * np.spacing(np.minimum(sizes, 3.4e38).astype(np.float32)).astype(np.float64)]

    model = chain_model([part("COMPLEX_ABS", *values.shape)])
    with forced(strategy):
        assert_within(model, device, places, inputs=[[values]])
    RUN["COMPLEX_ABS"] += 1


NODE = transform((2, 4, 32), 4, 32)
test_refusal = refused(
    {
        "computed": (changed(NODE, 1, data=None), "lengths are not constant"),
        "one_length": (
            changed(NODE, 1, data=np.array([4], np.int32), shape=(1,)),
            "1 lengths of 2x4x32: two of int32 are needed",
        ),
        "not_a_power": (
            changed(NODE, 1, data=np.array([4, 24], np.int32)),
            "lengths 4x24: powers of two, and 2 or more columns",
        ),
        "one_column": (
            changed(NODE, 1, data=np.array([4, 1], np.int32)),
            "lengths 4x1: powers of two, and 2 or more columns",
        ),
        "long": (
            changed(NODE, 1, data=np.array([4, 8192], np.int32)),
            "lengths 4x8192: at most 2048x4096",
        ),
        "output": (changed(NODE, -1, shape=(2, 4, 16)), "output 2x4x16: the inputs give 2x4x17"),
        "float64": (
            retyped(NODE, "float64", [0]),
            "float64 in, complex64 out: only float32 to complex64",
        ),
        "doubles": (
            retyped(part("REAL", 3), "complex128", [0]),
            "complex128 in, float32 out: only complex64 to float32",
        ),
        "shape": (changed(part("IMAG", 3), -1, shape=(1, 3)), "3 -> 1x3: the shape must stay"),
    }
)

NODES = {"RFFT2D": NODE} | {name: part(name, 4, 9) for name in ("COMPLEX_ABS", "REAL", "IMAG")}
