# SPDX-License-Identifier: Apache-2.0
"""Comparison of equivalent computations: random inputs, outputs, and a vote where they
differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.graph.ir import Tensor
from delegate.launch import Requirement, size_bytes, storage_type
from delegate.plan.tuning.rounding import are_near, are_near_fp16
from delegate.run.executor import Executor

Values = NDArray[Any]
Outputs = Sequence[Values]


def random_inputs(executor: Executor, seed: int = 0) -> list[Values]:
    """Return random values for each input of its plan, by batch element; reproducible by seed."""
    plan = executor.plan
    needs = {need.tensor: need for _, need in plan.requirements()}
    return [
        _fitting(_random(tensor, executor.batch, (seed, place)), needs.get(tensor))
        for place, tensor in enumerate(plan.inputs)
    ]


def outputs_of(executor: Executor, inputs: Sequence[Values]) -> list[Values]:
    """Run once including copies; return the outputs, sorted by tensor index.

    Raises:
        DeviceError: a failed OpenCL call.
    """
    plan, batch = executor.plan, executor.batch
    outputs = [np.zeros(batch * size_bytes(t), np.uint8) for t in plan.outputs]
    with executor.trying():
        executor.run([values.view(np.uint8) for values in inputs], outputs)
    by_index = zip(plan.outputs, outputs, strict=True)
    seen = [(t, out) for t, out in by_index if t not in plan.watched]
    return [out.view(storage_type(t.dtype)) for t, out in sorted(seen, key=lambda e: e[0].index)]


def same_outputs(one: Executor, other: Executor, seed: int = 0, is_exact: bool = False) -> bool:
    """Whether two executors of equivalent schedules agree on the same random inputs."""
    inputs = random_inputs(one, seed)
    return are_same(outputs_of(one, inputs), outputs_of(other, inputs), is_exact)


def are_same(ours: Outputs, theirs: Outputs, is_exact: bool = False) -> bool:
    """Whether outputs are equal; floats may differ by summation order unless `is_exact`."""
    same = _same_bits if is_exact else _same
    return all(same(a, b) for a, b in zip(ours, theirs, strict=True))


def right_of(
    found: Sequence[Outputs], expected: Callable[[], Outputs | None], is_exact: bool = False
) -> list[bool]:
    """Return for each candidate's outputs whether they are correct.

    All are if they agree. Else `expected` decides, which is evaluated only then; without it the
    majority decides, and of two the last, which is the simplest. `is_exact`: no bit of a float may
    differ. If none has the bits that are expected, which the C library's functions may have made,
    the majority of those that are near them decides.
    """
    groups: list[list[int]] = []
    for number, outputs in enumerate(found):
        group = next((g for g in groups if are_same(outputs, found[g[0]], is_exact)), None)
        if group is None:
            groups.append([number])
        else:
            group.append(number)
    if len(groups) < 2:
        return [True] * len(found)
    known = expected()
    if known is not None:
        right = [are_same(outputs, known, is_exact) for outputs in found]
        if any(right) or not is_exact:
            return right
        groups = [group for group in groups if are_same(found[group[0]], known)]
        if not groups:
            return right
    most = max(groups, key=lambda group: (len(group), group[-1]))
    return [number in most for number in range(len(found))]


def _random(tensor: Tensor, batch: int, seed: tuple[int, ...]) -> Values:
    """Return random values of the tensor's type; indices are in range."""
    dtype = storage_type(tensor.dtype)
    count = batch * size_bytes(tensor) // dtype.itemsize
    rng = np.random.default_rng((*seed, count))
    if tensor.ranges is not None and dtype.kind == "i":
        low, high = (np.resize(each, count) for each in tensor.ranges)
        return rng.integers(low, high, endpoint=True).astype(dtype)
    if dtype.kind == "f":
        return rng.standard_normal(count).astype(dtype)
    if dtype.kind == "c":
        return rng.standard_normal(2 * count).astype(np.float32).view(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(dtype)
    values = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype)
    # Make small values of 32 bits and more as frequent as large ones.
    return values >> rng.integers(0, 31, count).astype(dtype) if dtype.itemsize > 2 else values


def _fitting(values: Values, need: Requirement | None) -> Values:
    """Return the values with those replaced on which TFLite's kernel would fail."""
    if need is None:
        return values
    if need.most is not None:
        size = np.resize(np.array(need.most) + 1, len(values))
        values = (values % size).astype(values.dtype)
    elif need.least is not None:
        values = np.maximum(values, np.array(need.least, values.dtype))
    if need.excluded is not None:
        other = need.excluded + (1 if need.excluded < 1 else -1)
        values = np.where(values == need.excluded, np.array(other, values.dtype), values)
    return values


def _same_bits(a: Values, b: Values) -> bool:
    """Whether no bit differs; a NaN is a NaN."""
    if a.dtype.kind not in "fc":
        return a.tobytes() == b.tobytes()
    a, b = (each.view(np.float32) if each.dtype.kind == "c" else each for each in (a, b))
    is_nan = np.isnan(a)
    return np.array_equal(is_nan, np.isnan(b)) and a[~is_nan].tobytes() == b[~is_nan].tobytes()


def _same(a: Values, b: Values) -> bool:
    if a.dtype == np.complex64:
        a, b = a.view(np.float32), b.view(np.float32)
    if a.dtype == np.float16:
        return are_near_fp16(a, b)
    return are_near(a, b) if a.dtype == np.float32 else a.tobytes() == b.tobytes()
