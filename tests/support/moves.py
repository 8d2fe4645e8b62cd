# SPDX-License-Identifier: Apache-2.0
"""What tests of ops that only move bytes share: tensors, ways to run, a node of each op."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import reject
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from delegate import DeviceInfo, Node, Tensor, ops
from delegate.tflite.library import installed_rules
from tests.support.cases import LANES_8, SIMT, Way, assert_exact_way
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.model import chain_model, const, op, t

ANY = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "bool")
# Groups of 64 work-items, of one row by row, and of one element by element.
MOVE_WAYS = (SIMT, LANES_8, replace(LANES_8, name="lanes8-plain", alternative="plain"))


def like(shape: Sequence[int], dtype: str = "uint8", zero: int = 3) -> Tensor:
    """Return a tensor, quantised if it has 8 bits."""
    return t(shape, dtype, *((0.5, zero) if dtype in ("uint8", "int8") else ()))


def numbers(values: ArrayLike, dtype: str = "int32") -> Tensor:
    """Return a constant of axes, sizes or indices."""
    return const(np.asarray(values, dtype))


def one_value(value: float, dtype: str = "uint8", zero: int = 3) -> Tensor:
    """Return a constant scalar, quantised as `like` does."""
    return replace(like((), dtype, zero), data=np.array(value).astype(dtype))


def assert_moved(node: Node, device: DeviceInfo, way: Way, seed: int = 0) -> set[str]:
    """Assert that a node gives TFLite's bytes this way; return the alternatives' names.

    A view has no other way. What an older runtime does not take is no case.
    """
    model = chain_model([node], outputs=node.outputs)
    kernels = _kernels_that_run(node, model)
    if kernels is None:
        assert RUNTIME.name == "tflite-runtime", "TFLite does not take the node"
        pytest.skip(f"{RUNTIME.name} has no {node.op} of this type")
    target = replace(way.target, rules=installed_rules())
    if not ops.lower(node, target)[0].launches:
        way = replace(way, alternative="")
    return assert_exact_way(model, device, way, seed, cpu_kernels=kernels)


def assert_moved_or_refused(node: Node, device: DeviceInfo, way: Way, seed: int) -> None:
    """The same for a drawn node: one that TFLite does not take is no case."""
    kernels = _kernels_that_run(node, chain_model([node], outputs=node.outputs))
    if kernels is None:
        reject()
    assert_moved(node, device, way, seed)


def _kernels_that_run(node: Node, model: bytes) -> str | None:
    """Return the oracle: some kernels take a model and fail when it runs."""
    for kernels in ("reference", "builtin"):
        try:
            made = interpreter(model, cpu_kernels=kernels)
            given = [np.zeros(d["shape"], d["dtype"]) for d in made.get_input_details()]
            invoke(made, given)
        except (RuntimeError, ValueError):
            continue
        return kernels
    return None


def move_nodes(dtype: str, channels: int = 8, size: int = 5) -> list[Node]:
    """Return a node of each op that moves bytes, on 1 x size x size x channels of a type."""
    shape = (1, size, size, channels)
    image = like(shape, dtype)
    axes = np.array([[0, 0], [1, 1], [1, 1], [0, 0]])

    def result(*sizes: int) -> Tensor:
        return like(sizes, dtype)

    def same(name: str, second: ArrayLike, out: Sequence[int], **options: Any) -> Node:
        version = 2 if name == "BROADCAST_TO" else 1
        return op(name, [image, numbers(second)], [result(*out)], options, version)

    half = max(1, size // 2)
    return [
        op("SQUEEZE", [image], [result(*(n for n in shape if n != 1))], {"squeeze_dims": ()}),
        same("EXPAND_DIMS", 0, (1, *shape)),
        op(
            "CONCATENATION",
            [image, t(shape, dtype, 0.25 if dtype == "uint8" else 0.5, 3)],
            [result(1, size, size, 2 * channels)],
            {"axis": -1, "fused_activation_function": "NONE"},
        ),
        op(
            "SPLIT",
            [numbers(1), image],
            [result(1, 1, size, channels) for _ in range(size)],
            {"num_splits": size},
        ),
        op(
            "SPLIT_V",
            [like((1, size, size, channels + 1), dtype), numbers([1, -1]), numbers(3)],
            [result(1, size, size, 1), result(*shape)],
            {"num_splits": 2},
        ),
        op(
            "PACK",
            [image, image],
            [result(1, 2, size, size, channels)],
            {"axis": 1, "values_count": 2},
        ),
        op(
            "UNPACK",
            [image],
            [result(1, size, channels) for _ in range(size)],
            {"axis": 2, "num": size},
        ),
        op(
            "SLICE",
            [image, numbers([0, 0, size - half, 0]), numbers([1, size, half, -1])],
            [result(1, size, half, channels)],
        ),
        op(
            "STRIDED_SLICE",
            [image, *(numbers([n] * 4) for n in (0, size, 2))],
            [result(1, -(-size // 2), -(-size // 2), -(-channels // 2))],
            {"end_mask": 8},
        ),
        op(
            "PADV2",
            [image, numbers(axes), one_value(7, dtype)],
            [result(1, size + 2, size + 2, channels)],
        ),
        op(
            "MIRROR_PAD",
            [image, numbers(axes)],
            [result(1, size + 2, size + 2, channels)],
            {"mode": "SYMMETRIC"},
        ),
        same("TRANSPOSE", [0, 3, 2, 1], (1, channels, size, size)),
        same("GATHER", [0, 0, size - 1], (1, size, 3, channels), axis=2),
        same("GATHER_ND", [[0, 0], [0, size - 1]], (2, size, channels)),
        same("TILE", [2, 1, 3, 1], (2, size, 3 * size, channels)),
        same("BROADCAST_TO", [3, size, size, channels], (3, size, size, channels)),
        op(
            "DEPTH_TO_SPACE",
            [like((1, size, size, 4 * channels), dtype)],
            [result(1, 2 * size, 2 * size, channels)],
            {"block_size": 2},
        ),
        op(
            "SPACE_TO_DEPTH",
            [like((1, 2 * size, 2 * size, channels), dtype)],
            [result(1, size, size, 4 * channels)],
            {"block_size": 2},
        ),
        op(
            "SPACE_TO_BATCH_ND",
            [image, numbers([1, 2]), numbers([[0, 0], [1, 1 + size % 2]])],
            [result(2, size, size // 2 + 1 + size % 2, channels)],
        ),
        op(
            "BATCH_TO_SPACE_ND",
            [like((4, size, size, channels), dtype), numbers([2, 2]), numbers([[0, 1], [1, 0]])],
            [result(1, 2 * size - 1, 2 * size - 1, channels)],
        ),
        same("REVERSE_V2", [1], shape),
        op(
            "ONE_HOT",
            [t((3, size), "int32"), numbers(channels), one_value(9, dtype), one_value(2, dtype)],
            [result(3, size, channels)],
            {"axis": -1},
        ),
        op("FILL", [numbers([size, channels]), one_value(5, dtype)], [result(size, channels)]),
        op("CUMSUM", [t(shape), numbers(3)], [t(shape)]),
    ]


def typed_nodes() -> list[Node]:
    """Return the nodes of ops whose kernels are built for a type each."""
    nodes = []
    for dtype in ("int32", "int64", "float32"):
        nodes.append(op("CUMSUM", [t((3, 5), dtype), numbers(1)], [t((3, 5), dtype)]))
    for index in ("int32", "int64"):
        for dtype in ("uint8", "int32", "int64"):
            values = [one_value(9, dtype), one_value(2, dtype)]
            inputs = [t((3,), index), numbers(4), *values]
            nodes.append(op("ONE_HOT", inputs, [like((3, 4), dtype)], {"axis": -1}))
        for inner in (1, 2, 4, 8, 16):
            places = replace(t((3, 1), index), limits=(np.zeros((3, 1)), np.ones((3, 1))))
            nodes.append(op("GATHER_ND", [like((2, inner)), places], [like((3, inner))]))
    return nodes


# Pictures, height, width and channels on the deep side's pixels, and the block: what tests of
# DEPTH_TO_SPACE and of SPACE_TO_DEPTH share.
BLOCKS = {
    "one_channel": (2, 3, 5, 1, 2),
    "channels": (1, 7, 5, 16, 2),
    "odd": (2, 3, 4, 5, 3),
    "block_1": (2, 3, 4, 5, 1),
    "one_pixel": (1, 1, 1, 3, 4),
    "large": (1, 33, 37, 3, 2),
}
BLOCK_TYPES = ("uint8", "int8", "int32", "int64", "float32")


def deep_and_wide(n: int, h: int, w: int, c: int, block: int, dtype: str) -> tuple[Tensor, Tensor]:
    """Return a tensor with blocks in its channels, and the same with them in its pixels."""
    return like((n, h, w, c * block * block), dtype), like((n, h * block, w * block, c), dtype)


def drawn_blocks(build: Callable[[int, int, int, int, int, str], Node]) -> st.SearchStrategy[Node]:
    """Draw a node of one of the two ops."""
    small = st.integers(1, 5)
    channels, block = st.integers(1, 9), st.integers(1, 4)
    types = st.sampled_from(BLOCK_TYPES)
    return st.builds(build, st.integers(1, 3), small, small, channels, block, types)
