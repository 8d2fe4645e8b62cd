# SPDX-License-Identifier: Apache-2.0
"""Recipes of constants: equal recipes must pack equal bytes."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import ops
from delegate.errors import Unsupported
from delegate.inspect import Node
from delegate.launch import Constant
from delegate.run.recipe import recipe_of
from tests.support.cases import EVERY_STRATEGY
from tests.support.convolution import Convolution

LARGE = np.arange(1 << 15, dtype=np.int32)


@dataclass(frozen=True)
class Pair:
    """A record with a packing method."""

    number: object
    values: NDArray[Any]

    def pack(self) -> NDArray[Any]:
        """Return an array made from both."""
        return np.repeat(self.values, int(bool(self.number)))


@dataclass
class Changing:
    """A mutable record, which may change before it is packed."""

    number: int = 0


def pack_of(*read: object) -> Callable[[], object]:
    return lambda: read


EQUAL: list[tuple[object, object]] = [
    (3, 3),
    ((1, "a", None), (1, "a", None)),
    (np.arange(5), np.arange(5)),
    (LARGE, LARGE[:]),
    (Pair(1, LARGE), Pair(1, LARGE)),
    (Pair(1, LARGE).pack, Pair(1, LARGE).pack),
    (math.nan, math.nan),
    ({"a": 1}, {"a": 1}),
    (functools.partial(pack_of, 1), functools.partial(pack_of, 1)),
]
OTHER: list[tuple[object, object]] = [
    (3, 4),
    (1, True),
    (0.0, -0.0),
    (np.float32(0), np.float32(-0.0)),
    (np.arange(5), np.arange(5, dtype=np.int32)),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (LARGE, LARGE.copy()),
    (LARGE[:-1], LARGE[1:]),
    (LARGE, LARGE[::-1][::-1].reshape(2, -1)),
    (Pair(1, LARGE), Pair(2, LARGE)),
    (Pair(1, LARGE).pack, Pair(0, LARGE).pack),
    (np.uint8, np.int8),
]


@pytest.mark.parametrize(("one", "other"), EQUAL)
def test_recipes_with_equal_inputs_are_equal(one: object, other: object) -> None:
    recipe = recipe_of(pack_of(one))
    assert recipe == recipe_of(pack_of(other)) is not None
    assert hash(recipe) == hash(recipe_of(pack_of(other)))


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_recipes_with_other_inputs_differ(one: object, other: object) -> None:
    recipes = [recipe_of(pack_of(one)), recipe_of(pack_of(other))]
    assert None not in recipes
    assert recipes[0] != recipes[1]


def test_recipes_with_other_code_differ() -> None:
    assert recipe_of(lambda: LARGE) != recipe_of(lambda: LARGE + 1)


@pytest.mark.parametrize("value", [[1], Changing(), object(), np.sum, {1}])
def test_mutable_inputs_have_no_recipe(value: object) -> None:
    assert recipe_of(pack_of(value)) is None


def test_recipe_keeps_array_alive() -> None:
    values = LARGE.copy()
    place = values.__array_interface__["data"][0]
    recipe = recipe_of(pack_of(values))
    del values
    others = [LARGE.copy() for _ in range(20)]
    assert place not in [other.__array_interface__["data"][0] for other in others]
    assert recipe is not None


def constants(node: Node) -> list[tuple[str, str, Constant]]:
    """Return a node's constants on all targets, with their strategy and field."""
    results = []
    for strategy in EVERY_STRATEGY:
        try:
            alternatives = ops.lower(node, strategy.target)
        except Unsupported:
            continue
        for each in alternatives:
            for launch in each.launches:
                for field, value in launch.params.items():
                    if isinstance(value, Constant):
                        results.append((f"{strategy}: {each.name}", field, value))
    return results


LAYERS = [
    Convolution(dtype=dtype, per_channel=dtype == "int8", **parts)
    for dtype in ("uint8", "int8", "int16", "float32")
    for parts in (
        {"size": (9, 8, 16), "out_c": 64},
        {"size": (9, 8, 16), "out_c": 64, "kernel": (1, 1)},
        {"size": (9, 8, 64), "depth_multiplier": 1},
        {"size": (9, 8, 3), "out_c": 24, "stride": (2, 2)},
        {"size": (9, 8, 16), "out_c": 16, "dilation": (2, 2), "kernel": (3, 2)},
    )
]


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_recipes_are_shared_between_shapes(layer: Convolution) -> None:
    height, width, channels = layer.size
    larger = replace(layer, size=(2 * height + 1, width + 5, channels), batch=2).node()
    first = layer.node()
    # One file contains the constants of both.
    second = replace(larger, inputs=(larger.inputs[0], *first.inputs[1:]))
    known = {}
    for strategy, field, constant in constants(first):
        recipe = recipe_of(constant.pack)
        assert recipe is not None, (strategy, field)
        known[recipe] = constant.pack().tobytes()
    shared = {"weights": 0, "channels": 0}
    for strategy, field, constant in constants(second):
        recipe = recipe_of(constant.pack)
        assert recipe is not None, (strategy, field)
        if recipe in known:
            assert constant.pack().tobytes() == known[recipe], (strategy, field)
            shared[field] = shared.get(field, 0) + 1
    assert shared["weights"] > 0
    assert shared["channels"] > 0 or layer.dtype == "float32"
