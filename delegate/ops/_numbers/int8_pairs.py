# SPDX-License-Identifier: Apache-2.0
"""Weights for products that are added in 16 bits: parted so that no such sum overflows.

x86's VPMADDUBSW multiplies uint8 inputs by int8 weights and adds pairs of products in 16 bits. If
the positive weights of such a sum add up to at most 127, and so do the negative ones without their
sign, it cannot overflow, whatever the inputs are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LIMIT = 127  # 255 * 127 < 2^15, and the most an int8 holds
_GROUPS = (1, 2, 4, 8, 16)  # steps whose products are added in 16 bits
# The numbers below are heuristics: no measurement of theirs is kept. `part` weighs the time of a
# block by them, in units of an ordinary step.
_GROUP_COST = 0.5  # to widen a group's 16-bit sums to 32 bits and add them
_EXTRA_COST = 1.5  # an extra step: it is found by a table, and its sums are widened, too
# A block may have so large a part of its steps as extra ones: a quarter. More extra steps let
# groups be wider, but their memory is reserved before the weights are packed.
_MANY = 4
# If more than an eighth of all steps, and 8 more, are extra ones even in groups of one step, then
# weights of 16 bits take less time, and these are not offered.
_TOO_MANY, _FEW = 8, 8

Int16s = NDArray[np.int16]
Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SplitWeights:
    """Weights as a sum: what is added in groups of steps, and extra steps for the rest."""

    grouped: NDArray[np.int8]  # (blocks, steps, lanes, 4)
    group: Int64s  # (blocks,): steps a group
    first: Int64s  # (blocks + 1,): where each block's extra steps begin
    step: Int64s  # (extras,): the step that an extra one adds to
    extra: NDArray[np.int8]  # (extras, lanes, 4)


def most_extras(weights: Int16s) -> int | None:
    """Return how many extra steps `part` makes at most; None where that is too many to pay.

    Shapes:
        weights (blocks, steps, lanes, 4), from -255 to 255
    """
    sums = _sums(_pairs(weights))
    if _needed(sums).sum() > weights.shape[0] * weights.shape[1] / _TOO_MANY + _FEW:
        return None
    return int(_limits(sums).sum())


def _needed(sums: tuple[Int16s, Int16s]) -> Int64s:
    """Return how many extra steps each block cannot do without."""
    needed: Int64s = _extras(np.maximum(*sums) - np.int16(_LIMIT)).max(2).sum(1, dtype=np.int64)
    return needed


def _limits(sums: tuple[Int16s, Int16s]) -> Int64s:
    """Return how many extra steps each block may have: what it needs, or a part of its steps."""
    limits: Int64s = np.maximum(_needed(sums), sums[0].shape[1] // _MANY)
    return limits


def part(weights: Int16s, rows: int = 1) -> SplitWeights:
    """Return weights (blocks, steps, lanes, 4) parted at the least cost.

    The steps are of so many rows, and no group is of two.
    """
    blocks, steps = weights.shape[:2]
    row_steps = steps // rows
    pairs = _pairs(weights)
    sums = _sums(pairs)
    limits = _limits(sums)
    least_cost = np.full(blocks, np.inf)
    group = np.ones(blocks, np.int64)
    rests: dict[int, _Rest] = {}
    for size in _GROUPS:
        if size >= 2 * row_steps:
            break
        # Where each group starts, and where the next one does.
        starts = np.arange(0, steps, row_steps)[:, None] + np.arange(0, row_steps, size)
        starts = np.append(starts.ravel(), steps)
        over = _over(sums, starts)
        # More than about one pair a group that does not fit costs more than wide groups save.
        is_few = over.sum((1, 2)) <= 1.5 * over.shape[1]
        if size > 1:
            over &= is_few[:, None, None]
        rests[size] = rest = _rest(pairs, over, starts)
        extras = rest.extras(blocks, steps)
        cost = steps + _GROUP_COST * over.shape[1] + _EXTRA_COST * extras
        better = (cost < least_cost) & ((is_few & (extras <= limits)) | (size == 1))
        group[better], least_cost[better] = size, cost[better]
        if not is_few.any():
            break
    grouped = pairs.copy()
    places, values = [], []
    for size, rest in rests.items():
        chosen = group[rest.block] == size
        block, step, lane = (of[chosen] for of in (rest.block, rest.step, rest.lane))
        grouped[block, step, lane] -= rest.values[chosen]
        places.append(np.stack([block * steps + step, lane]))
        values.append(rest.values[chosen])
    keys, lanes = np.concatenate(places, 1)
    keys, index = np.unique(keys, return_inverse=True)
    left = np.zeros((len(keys), *pairs.shape[2:]), np.int16)
    left[index.ravel(), lanes] = np.concatenate(values)
    all_keys, extra = _in_rounds(keys, left)
    return SplitWeights(
        grouped.astype(np.int8).reshape(weights.shape),
        group,
        np.searchsorted(all_keys, np.arange(blocks + 1) * steps),
        all_keys % steps,
        extra.reshape(-1, *weights.shape[2:]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Rest:
    """The pairs of weights that groups of one size leave something of."""

    block: Int64s
    step: Int64s
    lane: Int64s
    values: Int16s  # (pairs, 2)

    def extras(self, blocks: int, steps: int) -> Int64s:
        """Return how many extra steps each block needs for it."""
        needed = np.zeros(blocks * steps, np.int64)
        rounds = _extras(np.maximum(*_sums(self.values)))
        np.maximum.at(needed, self.block * steps + self.step, rounds)
        a_block: Int64s = needed.reshape(blocks, steps).sum(1)
        return a_block


def _pairs(weights: Int16s) -> Int16s:
    """(blocks, steps, lanes, 4) -> (blocks, steps, 2 * lanes, 2), the pairs whose products add."""
    return weights.reshape(*weights.shape[:2], -1, 2)


def _sums(pairs: Int16s) -> tuple[Int16s, Int16s]:
    """Return pairs' sums of positive numbers, and of negative ones less their sign."""
    first, second = pairs[..., 0], pairs[..., 1]
    zero = np.int16(0)
    positive = np.maximum(first, zero) + np.maximum(second, zero)
    return positive, positive - first - second


def _extras(sums: Int16s) -> Int16s:
    """Return how many steps hold pairs with these sums; none for 0 or less."""
    rounds: Int16s = np.maximum(-(-sums // np.int16(_LIMIT)), np.int16(0))
    return rounds


def _over(sums: tuple[Int16s, Int16s], starts: Int64s) -> NDArray[np.bool_]:
    """Return which groups add up to too much: (blocks, groups, lanes)."""
    largest = np.maximum(*(np.add.reduceat(each, starts[:-1], 1) for each in sums))
    over: NDArray[np.bool_] = largest > _LIMIT
    return over


def _rest(pairs: Int16s, over: NDArray[np.bool_], starts: Int64s) -> _Rest:
    block, group, lane = np.nonzero(over)
    size = int(np.diff(starts).max())
    step = starts[group][:, None] + np.arange(size)
    is_inside = step < starts[group + 1][:, None]
    values = pairs[block[:, None], np.where(is_inside, step, 0), lane[:, None]]
    values[~is_inside] = 0
    left = values - _fitted(values.reshape(len(values), 2 * size)).reshape(values.shape)
    row, place = np.nonzero(left.any(2))
    return _Rest(block[row], step[row, place], lane[row], left[row, place])


def _fitted(values: Int16s) -> Int16s:
    """Return rows of numbers, the largest of each made smaller until the row's sums fit."""
    fitted = np.clip(values, -_LIMIT, _LIMIT)
    for sign in (np.int16(1), np.int16(-1)):
        rows = np.arange(len(fitted))
        while rows.size:
            sizes = np.maximum(sign * fitted[rows], np.int16(0))
            excess = sizes.sum(1, dtype=np.int16) - np.int16(_LIMIT)
            over = excess > 0
            rows, sizes, excess = rows[over], sizes[over], excess[over]
            largest = sizes.argmax(1)
            most = sizes[np.arange(len(rows)), largest]
            fitted[rows, largest] -= sign * np.minimum(most, excess)
    return fitted


def _in_rounds(keys: Int64s, left: Int16s) -> tuple[Int64s, NDArray[np.int8]]:
    """Return `left` as sums of int8 pairs that fit, several for a key where one is not enough.

    Shapes:
        (n,), (n, lanes, 2) -> (extras,) in order, (extras, lanes, 2)
    """
    all_keys, parts = [keys[:0]], [left[:0].astype(np.int8)]
    while len(keys):
        positive, negative = np.clip(left, 0, _LIMIT), np.clip(-left, 0, _LIMIT)
        for sizes in (positive, negative):
            np.minimum(sizes[..., 1], _LIMIT - sizes[..., 0], out=sizes[..., 1])
        taken = positive - negative
        all_keys.append(keys)
        parts.append(taken.astype(np.int8))
        left = left - taken
        more = left.any((1, 2))
        keys, left = keys[more], left[more]
    together = np.concatenate(all_keys)
    order = np.argsort(together, kind="stable")
    return together[order], np.concatenate(parts)[order]
