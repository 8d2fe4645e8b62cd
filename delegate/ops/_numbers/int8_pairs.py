# SPDX-License-Identifier: Apache-2.0
"""Weights for products that are added in 16 bits, split so that no sum overflows.

x86's VPMADDUBSW multiplies uint8 inputs by int8 weights and adds pairs of products in 16 bits. If
the positive weights of such a sum add up to at most 127, and so do the negative ones without their
sign, it cannot overflow, whatever the inputs are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_LIMIT = 127  # 255 * 127 < 2^15, and the int8 maximum
_GROUPS = (1, 2, 4, 8, 16)  # steps whose products are added in 16 bits
# The numbers below are heuristics, with no recorded measurements. `part` estimates the time of a
# block with them, in units of an ordinary step.
_GROUP_COST = 0.5  # to widen a group's 16-bit sums to 32 bits and add them
_EXTRA_COST = 1.5  # an extra step: a table lookup, and its sums are widened, too
# At most a quarter of a block's steps may be extra ones. More would allow wider groups, but their
# memory is reserved before the weights are packed.
_MANY = 4
# If even groups of one step need more extra steps than an eighth of all steps plus 8, 16-bit
# weights are faster, and this kernel is not offered.
_TOO_MANY, _FEW = 8, 8

Int16s = NDArray[np.int16]
Int64s = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SplitWeights:
    """Weights in groups of steps that fit 16-bit sums, and extra steps for the remainder."""

    grouped: NDArray[np.int8]  # (blocks, steps, lanes, 4)
    group: Int64s  # (blocks,): steps per group
    first: Int64s  # (blocks + 1,): index of each block's first extra step
    step: Int64s  # (extras,): the step that an extra one adds to
    extra: NDArray[np.int8]  # (extras, lanes, 4)


def most_extras(weights: Int16s) -> int | None:
    """Return an upper bound of the extra steps of `part`; None if too many to be worth it.

    Shapes:
        weights (blocks, steps, lanes, 4), from -255 to 255
    """
    sums = _sums(_pairs(weights))
    if _needed(sums).sum() > weights.shape[0] * weights.shape[1] / _TOO_MANY + _FEW:
        return None
    return int(_limits(sums).sum())


def _needed(sums: tuple[Int16s, Int16s]) -> Int64s:
    """Return the minimum of extra steps of each block."""
    needed: Int64s = _extras(np.maximum(*sums) - np.int16(_LIMIT)).max(2).sum(1, dtype=np.int64)
    return needed


def _limits(sums: tuple[Int16s, Int16s]) -> Int64s:
    """Return the maximum of extra steps of each block: its minimum, or a fraction of its steps."""
    limits: Int64s = np.maximum(_needed(sums), sums[0].shape[1] // _MANY)
    return limits


def part(weights: Int16s, rows: int = 1) -> SplitWeights:
    """Return weights (blocks, steps, lanes, 4) split at the least cost.

    The steps belong to `rows` rows, and no group spans two rows.
    """
    blocks, steps = weights.shape[:2]
    row_steps = steps // rows
    pairs = _pairs(weights)
    sums = _sums(pairs)
    limits = _limits(sums)
    least_cost = np.full(blocks, np.inf)
    group = np.ones(blocks, np.int64)
    remainders: dict[int, _Remainder] = {}
    for size in _GROUPS:
        if size >= 2 * row_steps:
            break
        # First step of each group, then the end.
        starts = np.arange(0, steps, row_steps)[:, None] + np.arange(0, row_steps, size)
        starts = np.append(starts.ravel(), steps)
        over = _over(sums, starts)
        # If much more than one pair per group does not fit, wide groups do not pay.
        is_few = over.sum((1, 2)) <= 1.5 * over.shape[1]
        if size > 1:
            over &= is_few[:, None, None]
        remainders[size] = remainder = _remainder(pairs, over, starts)
        extras = remainder.extras(blocks, steps)
        cost = steps + _GROUP_COST * over.shape[1] + _EXTRA_COST * extras
        is_better = (cost < least_cost) & ((is_few & (extras <= limits)) | (size == 1))
        group[is_better], least_cost[is_better] = size, cost[is_better]
        if not is_few.any():
            break
    grouped = pairs.copy()
    places, values = [], []
    for size, remainder in remainders.items():
        chosen = group[remainder.block] == size
        block, step, lane = (of[chosen] for of in (remainder.block, remainder.step, remainder.lane))
        grouped[block, step, lane] -= remainder.values[chosen]
        places.append(np.stack([block * steps + step, lane]))
        values.append(remainder.values[chosen])
    keys, lanes = np.concatenate(places, 1)
    keys, index = np.unique(keys, return_inverse=True)
    remaining = np.zeros((len(keys), *pairs.shape[2:]), np.int16)
    remaining[index.ravel(), lanes] = np.concatenate(values)
    all_keys, extra = _split(keys, remaining)
    return SplitWeights(
        grouped.astype(np.int8).reshape(weights.shape),
        group,
        np.searchsorted(all_keys, np.arange(blocks + 1) * steps),
        all_keys % steps,
        extra.reshape(-1, *weights.shape[2:]),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Remainder:
    """Pairs of weights with the remainders that groups of one size cannot hold."""

    block: Int64s
    step: Int64s
    lane: Int64s
    values: Int16s  # (pairs, 2)

    def extras(self, blocks: int, steps: int) -> Int64s:
        """Return the extra steps that each block needs for the remainders."""
        needed = np.zeros(blocks * steps, np.int64)
        rounds = _extras(np.maximum(*_sums(self.values)))
        np.maximum.at(needed, self.block * steps + self.step, rounds)
        per_block: Int64s = needed.reshape(blocks, steps).sum(1)
        return per_block


def _pairs(weights: Int16s) -> Int16s:
    """(blocks, steps, lanes, 4) -> (blocks, steps, 2 * lanes, 2): pairs of products to add."""
    return weights.reshape(*weights.shape[:2], -1, 2)


def _sums(pairs: Int16s) -> tuple[Int16s, Int16s]:
    """Return the sums of each pair's positive numbers, and of its negated negative ones."""
    first, second = pairs[..., 0], pairs[..., 1]
    zero = np.int16(0)
    positive = np.maximum(first, zero) + np.maximum(second, zero)
    return positive, positive - first - second


def _extras(sums: Int16s) -> Int16s:
    """Return the number of steps that hold pairs with these sums; 0 for sums of 0 or less."""
    rounds: Int16s = np.maximum(-(-sums // np.int16(_LIMIT)), np.int16(0))
    return rounds


def _over(sums: tuple[Int16s, Int16s], starts: Int64s) -> NDArray[np.bool_]:
    """Return which groups exceed the limit: (blocks, groups, lanes)."""
    largest = np.maximum(*(np.add.reduceat(each, starts[:-1], 1) for each in sums))
    over: NDArray[np.bool_] = largest > _LIMIT
    return over


def _remainder(pairs: Int16s, over: NDArray[np.bool_], starts: Int64s) -> _Remainder:
    block, group, lane = np.nonzero(over)
    size = int(np.diff(starts).max())
    step = starts[group][:, None] + np.arange(size)
    is_inside = step < starts[group + 1][:, None]
    values = pairs[block[:, None], np.where(is_inside, step, 0), lane[:, None]]
    values[~is_inside] = 0
    remaining = values - _fitted(values.reshape(len(values), 2 * size)).reshape(values.shape)
    row, place = np.nonzero(remaining.any(2))
    return _Remainder(block[row], step[row, place], lane[row], remaining[row, place])


def _fitted(values: Int16s) -> Int16s:
    """Reduce the largest numbers of each row until the row's sums fit."""
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


def _split(keys: Int64s, remaining: Int16s) -> tuple[Int64s, NDArray[np.int8]]:
    """Split numbers into int8 pairs that fit, with several steps per key if needed.

    Shapes:
        (n,), (n, lanes, 2) -> (extras,) in order, (extras, lanes, 2)
    """
    all_keys, parts = [keys[:0]], [remaining[:0].astype(np.int8)]
    while len(keys):
        positive, negative = np.clip(remaining, 0, _LIMIT), np.clip(-remaining, 0, _LIMIT)
        for sizes in (positive, negative):
            np.minimum(sizes[..., 1], _LIMIT - sizes[..., 0], out=sizes[..., 1])
        fitting = positive - negative
        all_keys.append(keys)
        parts.append(fitting.astype(np.int8))
        remaining = remaining - fitting
        is_left = remaining.any((1, 2))
        keys, remaining = keys[is_left], remaining[is_left]
    concatenated = np.concatenate(all_keys)
    order = np.argsort(concatenated, kind="stable")
    return concatenated[order], np.concatenate(parts)[order]
