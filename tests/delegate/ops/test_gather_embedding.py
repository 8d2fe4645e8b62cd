# SPDX-License-Identifier: Apache-2.0
"""EMBEDDING_LOOKUP: what it refuses, rows that move, and rows of int8, int4 and int2 as floats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo
from delegate.inspect import Blocks, Node, Tensor
from delegate.target import Rules, Target
from tests.support.cases import (
    GROUPS,
    Strategy,
    assert_exact_strategy,
    changed,
    quantization,
    refusal,
)
from tests.support.compare import RUNTIME
from tests.support.factories import exact, refused
from tests.support.model import chain_model, const, op, t
from tests.support.moves import assert_moved, like, numbers
from tests.support.refusals import unquantised
from tflite_opencl.models.build import stored_as

# tflite-runtime has no int4 or int2 tables, and gives zeros for a scale a row.
IS_NEWER = RUNTIME.name != "tflite-runtime"


def moved(shape: tuple[int, ...], places: list[int], dtype: str = "int8") -> Node:
    result = like((len(places), *shape[1:]), dtype)
    return op("EMBEDDING_LOOKUP", [numbers(places), like(shape, dtype)], [result])


def table(shape: tuple[int, ...], scales: Any = 0.25, stored: str = "int8") -> Tensor:
    rng = np.random.default_rng(0)
    made = const(rng.integers(-128, 127, shape, endpoint=True).astype(np.int8), scales)
    return stored_as(made, stored)


def floats(of: Tensor, places: Tensor) -> Node:
    result = t((*places.shape, *of.shape[1:]))
    return op("EMBEDDING_LOOKUP", [places, of], [result], {}, 3 if of.dtype == "int8" else 4)


SCALES = list(np.geomspace(1e-3, 10, 9))
TABLES = {"one_scale": table((9, 5)), "of_two_dimensions": table((9, 2, 3))} | (
    {
        "scale_a_row": table((9, 33), SCALES),
        "int4": table((9, 4), 0.1, stored="int4"),
        "int4_scale_a_row": table((9, 66), SCALES, stored="int4"),
        "int2": table((9, 4), 0.1, stored="int2"),
        "int2_scale_a_row": table((9, 68), SCALES, stored="int2"),
    }
    if IS_NEWER
    else {}
)
NODES = {"embedding_lookup": moved((7, 16), [6, 0, 3, 3])} | {
    f"embedding_{name}": floats(each, numbers([8, 0, 3])) for name, each in TABLES.items()
}
NODE = NODES["embedding_one_scale"]

test_exact = exact(
    {
        "int8": moved((7, 16), [6, 0, 3, 3]),
        "floats": moved((3, 5, 2), [2, 2], "float32"),
        "uint8": moved((4, 1), [1], "uint8"),
    },
    GROUPS,
    assert_moved,
)


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", TABLES)
def test_computed_indices(device: DeviceInfo, name: str, strategy: Strategy) -> None:
    places = t((6,), "int32")
    scores = t((6, 9), "int8", 0.1)
    found = op("ARG_MAX", [scores, numbers(1)], [places], {"output_type": "int32"}, 2)
    model = chain_model([found, floats(TABLES[name], places)])
    assert_exact_strategy(model, device, replace(strategy, alternative=""))


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
def test_known_indices(device: DeviceInfo, strategy: Strategy) -> None:
    """As of places in a text: what is looked up is added to what a model reads."""
    found = floats(TABLES["one_scale"], numbers([8, 0, 3, 3]))
    x, total = t((4, 5)), t((4, 5))
    added = op("ADD", [x, found.outputs[0]], [total], {"fused_activation_function": "NONE"})
    assert_exact_strategy(chain_model([found, added]), device, replace(strategy, alternative=""))


@pytest.mark.parametrize("name", TABLES)
def test_indices_that_a_run_brings(device: DeviceInfo, name: str) -> None:
    node = floats(TABLES[name], numbers([8, 0, 3, 3]))
    model = chain_model([changed(node, 0, data=None)])
    given = [[np.array(rows, np.int32)] for rows in ([8, 0, 3, 3], [1, 2, 7, 8])]
    assert_exact_strategy(model, device, GROUPS[0], inputs=given)


test_refusal = refused(
    {
        "too_large": (
            changed(NODE, 0, data=np.array([9, 0, 0], np.int32)),
            "an index is 9: outside of 9 elements",
        ),
        "matrix_of_indices": (
            changed(NODE, 0, shape=(1, 3)),
            "int32 1x3 of 9x5: one dimension of int32 and a table of two or more are needed",
        ),
        "computed_table": (changed(NODE, 1, data=None), "weights are not constant"),
        "zero_point": (
            changed(NODE, 1, quantization=quantization(0.25, 1)),
            "int8 weights with zero point 1: it must be 0",
        ),
        "uint8_to_floats": (
            changed(NODE, 1, dtype="uint8"),
            "a table of uint8, float32 out: no such kernel",
        ),
        "int4_in_blocks": (
            changed(
                floats(table((9, 4), stored="int4"), numbers([1])),
                1,
                quantization=None,
                blocks=Blocks(np.ones((9, 2), np.float16), 2),
            ),
            "weights in blocks: only of FULLY_CONNECTED",
        ),
        "int4_without_scales": unquantised(
            floats(table((9, 4), stored="int4"), numbers([1])), 1, "weights"
        ),
        "int2_rows_that_share_bytes": (
            floats(table((9, 6), stored="int2"), numbers([1])),
            "int2 rows of 6: TFLite misplaces rows that share bytes",
        ),
        "odd_int4": (
            floats(table((9, 5), stored="int4"), numbers([1])),
            "int4 rows of 5: TFLite misplaces rows that share bytes",
        ),
        "output": (changed(NODE, -1, shape=(3, 6)), "output 3x6: the inputs give 3x5"),
    }
)


def test_a_runtime_that_gives_zeros() -> None:
    older = Target(rules=Rules(embedding_scales_a_row=False))
    node = floats(table((9, 5), SCALES), numbers([1]))
    assert refusal(node, older) == "a scale a row: this TFLite returns zeros"
