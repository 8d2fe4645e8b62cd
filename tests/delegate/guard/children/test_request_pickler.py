# SPDX-License-Identifier: Apache-2.0
"""Requests to a child: large arrays are sent once, and arrive unchanged."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from delegate.guard.children import request_pickler
from delegate.guard.children.request_pickler import RequestPickler

BYTES = 1 << 17


def values(seed: int, dtype: str = "int8") -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 99, BYTES).astype(dtype)


def arrived(sender: RequestPickler, *arrays: np.ndarray[Any, Any]) -> tuple[list[Any], int]:
    payload = b"".join(sender.dumps([*arrays]))
    return pickle.loads(payload), len(payload)


def test_large_array_is_sent_once() -> None:
    sender, array = RequestPickler(), values(1)
    first, size = arrived(sender, array, array[: BYTES // 2 + 1], array.reshape(2, -1))
    assert size > 2 * BYTES
    again, size = arrived(sender, array[:], values(2, "float32"), array.reshape(2, -1))
    assert size < 4 * BYTES + 2000  # of the other array
    assert again[0] is first[0]
    assert np.array_equal(first[0], array)
    assert np.array_equal(again[1], values(2, "float32"))
    assert np.array_equal(again[2], array.reshape(2, -1))
    assert [each.dtype for each in again] == ["int8", "float32", "int8"]


def test_large_array_is_not_copied() -> None:
    array = values(1)
    large = [part for part in RequestPickler().dumps([array]) if memoryview(part).nbytes >= BYTES]
    assert [np.shares_memory(np.frombuffer(part, np.int8), array) for part in large] == [True]


def test_strided_and_small_arrays_arrive_unchanged() -> None:
    sender = RequestPickler()
    turned = values(1).reshape(64, -1).T
    texts = np.array(["a" * 70_000, "b"])
    result, _ = arrived(sender, turned, texts, np.zeros(0), np.array(5.0))
    assert np.array_equal(result[0], turned)
    assert result[1].tolist() == texts.tolist()
    assert (result[2].shape, result[3].shape) == ((0,), ())


def test_new_array_at_reused_address_is_sent() -> None:
    sender, memory = RequestPickler(), bytearray(values(1).tobytes())
    first = np.frombuffer(memory, np.int8)
    arrived(sender, first)
    del first
    memory[:] = values(2).tobytes()
    result, size = arrived(sender, np.frombuffer(memory, np.int8))
    assert size > BYTES
    assert np.array_equal(result[0], values(2))


def test_child_limits_remembered_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_pickler, "_MOST_BYTES", BYTES)
    sender, arrays = RequestPickler(), [values(seed) for seed in range(3)]
    arrived(sender, *arrays)
    result, size = arrived(sender, arrays[2], arrays[1])
    assert size > 2 * BYTES
    assert [np.array_equal(a, b) for a, b in zip(result, arrays[:0:-1], strict=True)] == [True] * 2
    assert len(request_pickler._arrays) == 2
