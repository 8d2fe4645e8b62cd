# SPDX-License-Identifier: Apache-2.0
"""Weights parted for 16-bit sums: the parts add up to them, and no sum overflows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate.ops._numbers.int8_pairs import SplitWeights, most_extras, part

Weights = NDArray[np.int16]


def _drawn(shape: tuple[int, ...], spread: float, seed: int = 0) -> Weights:
    values = np.random.default_rng(seed).standard_normal(shape) * spread
    weights: Weights = np.clip(np.rint(values), -255, 255).astype(np.int16)
    return weights


def _block_of_extras(parted: SplitWeights) -> NDArray[Any]:
    return np.searchsorted(parted.first, np.arange(len(parted.step)), "right") - 1


def _assert_parted(weights: Weights, parted: SplitWeights, rows: int = 1) -> None:
    blocks, steps, lanes, _ = weights.shape
    row_steps = steps // rows
    together = parted.grouped.astype(np.int64)
    np.add.at(together, (_block_of_extras(parted), parted.step), parted.extra.astype(np.int64))
    assert (together == weights).all()
    assert parted.first.tolist() == sorted(parted.first)
    assert (parted.first[0], parted.first[-1]) == (0, len(parted.step))
    assert ((parted.step >= 0) & (parted.step < steps)).all()
    for block in range(blocks):
        size = int(parted.group[block])
        for row in parted.grouped[block].reshape(rows, row_steps, lanes * 2, 2):
            for start in range(0, row_steps, size):
                _assert_fits(row[start : start + size])
    for extra in parted.extra:
        _assert_fits(extra.reshape(1, -1, 2))
    most = most_extras(weights)
    assert most is None or len(parted.step) <= most


def _assert_fits(pairs: NDArray[np.int8]) -> None:
    """What each pair's lane adds up, with all inputs 255 where the weights have one sign."""
    wide = pairs.astype(np.int64)
    for sign in (1, -1):
        sums = 255 * np.maximum(sign * wide, 0).sum((0, 2))
        assert sums.max() <= 2**15 - 1


@pytest.mark.parametrize("shape", [(1, 1, 8, 4), (2, 9, 16, 4), (3, 33, 16, 4), (2, 64, 32, 4)])
@pytest.mark.parametrize("spread", [0, 1, 12, 40, 200, 10_000])
def test_parts_add_up_and_fit(shape: tuple[int, int, int, int], spread: float) -> None:
    weights = _drawn(shape, spread)
    _assert_parted(weights, part(weights))


@pytest.mark.parametrize("value", [-255, -128, 127, 128, 255])
def test_the_largest_weights_take_several_extra_steps(value: int) -> None:
    weights = np.full((2, 5, 8, 4), value, np.int16)
    parted = part(weights)
    _assert_parted(weights, parted)
    # Two of a pair, each int8 and both at most 127.
    rounds = -(-2 * abs(value) // 127) - 1
    assert len(parted.step) == 2 * 5 * rounds
    assert parted.group.tolist() == [1, 1]


def test_small_weights_need_no_extra_steps_and_few_sums() -> None:
    parted = part(np.ones((1, 64, 16, 4), np.int16))
    assert parted.group.tolist() == [16]
    assert len(parted.step) == 0


def test_a_single_large_weight_takes_one_extra_step_in_its_block() -> None:
    weights = np.ones((3, 64, 16, 4), np.int16)
    weights[1, 17, 3, 2] = -200
    parted = part(weights)
    _assert_parted(weights, parted)
    assert (parted.step.tolist(), parted.first.tolist()) == ([17], [0, 0, 1, 1])


def test_blocks_take_groups_of_their_own() -> None:
    weights = np.concatenate([_drawn((1, 64, 16, 4), 1), _drawn((1, 64, 16, 4), 25, 1)])
    parted = part(weights)
    _assert_parted(weights, parted)
    assert parted.group[0] > parted.group[1]


def test_weights_that_mostly_do_not_fit_are_left_to_others() -> None:
    assert most_extras(_drawn((2, 64, 16, 4), 10)) is not None
    assert most_extras(_drawn((2, 64, 16, 4), 150)) is None


def test_no_group_is_of_two_rows() -> None:
    # Three steps add up to no more than 127, four do.
    weights = np.full((1, 12, 16, 4), 21, np.int16)
    assert part(weights).group.tolist() == [2]
    parted = part(weights, 4)
    assert parted.group.tolist() == [4]
    assert len(parted.step) == 0
    _assert_parted(weights, parted, 4)


@given(
    blocks=st.integers(1, 3),
    rows=st.integers(1, 4),
    row_steps=st.integers(1, 20),
    spread=st.floats(0, 120),
    seed=st.integers(0, 2**16),
)
def test_drawn_weights(blocks: int, rows: int, row_steps: int, spread: float, seed: int) -> None:
    weights = _drawn((blocks, rows * row_steps, 16, 4), spread, seed)
    _assert_parted(weights, part(weights, rows), rows)
