# SPDX-License-Identifier: Apache-2.0
"""Sparse constants: every format against TFLite's DENSIFY, and parameters that make no sense."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate
from delegate.format import table
from delegate.format.tree import Tree
from delegate.inspect import read_model, write_model
from tests.support.compare import interpreter, invoke, refusals
from tests.support.model import chain_model, const, op, t
from tflite_opencl.rewrites.tree import read_tree, write_tree

DENSE, CSR = 0, 1
Level = tuple[int, Any, Any]  # format, dense size or segments, indices


@dataclass(frozen=True, slots=True)
class Sparse:
    """How a tensor is stored."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    levels: tuple[Level, ...]
    values: tuple[float, ...]
    blocks: tuple[int, ...] = ()

    def model(self, kind: str = "Int32Vector") -> bytes:
        """Return y = x * w^T with w behind a DENSIFY; `kind`: of the lists of indices."""
        rows, columns = self.shape
        stored = const(np.array(self.values, np.float32), name="sparse")
        weights, x, y = t(self.shape), t((3, columns)), t((3, rows))
        nodes = [op("DENSIFY", [stored], [weights]), op("FULLY_CONNECTED", [x, weights], [y])]
        tree, _ = read_tree(memoryview(chain_model(nodes)))
        (sparse,) = (each for each in tree["subgraphs"][0]["tensors"] if each["name"] == b"sparse")
        sparse["shape"] = self.shape
        sparse["sparsity"] = {
            "traversal_order": self.order,
            "block_map": self.blocks,
            "dim_metadata": [_level(each, kind) for each in self.levels],
        }
        return write_tree(tree)


def _level(level: Level, kind: str) -> Tree:
    how, sizes, indices = level
    if how == DENSE:
        return {"format": DENSE, "dense_size": sizes}
    number = {"Int32Vector": 1, "Uint16Vector": 2, "Uint8Vector": 3}[kind]
    return {
        "format": CSR,
        "array_segments_type": number,
        "array_segments": {"values": sizes},
        "array_indices_type": number,
        "array_indices": {"values": indices},
    }


#     0 1 0 2
#     0 0 0 0        and the same by blocks of 1 x 2, of which two are stored
#     3 0 0 4
ROWS = Sparse(
    (3, 4),
    (0, 1),
    ((DENSE, 3, ()), (CSR, (0, 2, 2, 4), (1, 3, 0, 3))),
    (1, 2, 3, 4),
)
CASES = {
    "rows": ROWS,
    "columns": Sparse(
        (3, 4), (1, 0), ((DENSE, 4, ()), (CSR, (0, 1, 2, 2, 4), (2, 0, 0, 2))), (3, 1, 2, 4)
    ),
    "dense": Sparse((2, 2), (0, 1), ((DENSE, 2, ()), (DENSE, 2, ())), (1, 2, 3, 4)),
    "both_sparse": Sparse(
        (3, 4), (0, 1), ((CSR, (0, 2), (0, 2)), (CSR, (0, 1, 3), (1, 0, 3))), (1, 3, 4)
    ),
    "blocks": Sparse(
        (3, 4),
        (0, 1, 2),
        ((DENSE, 3, ()), (CSR, (0, 1, 1, 2), (1, 0)), (DENSE, 2, ())),
        (5, 6, 7, 8),
        (1,),
    ),
    "square_blocks": Sparse(
        (4, 4),
        (0, 1, 2, 3),
        ((DENSE, 2, ()), (CSR, (0, 1, 2), (1, 0)), (DENSE, 2, ()), (DENSE, 2, ())),
        (1, 2, 3, 4, 5, 6, 7, 8),
        (0, 1),
    ),
}


def dense_of(model: bytes) -> NDArray[Any] | None:
    (tensor,) = (tensor for tensor in read_model(model).tensors if tensor.name == "sparse")
    assert tensor.is_sparse
    return tensor.data


@pytest.mark.parametrize("kind", ["Int32Vector", "Uint16Vector", "Uint8Vector"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_are_tflite_s(case: Sparse, kind: str) -> None:
    model = case.model(kind)
    found = dense_of(model)
    assert found is not None
    _, columns = case.shape
    # Rows of the unit matrix through w^T are w's columns.
    made = interpreter(model)
    seen = [
        invoke(made, [np.repeat(np.eye(columns, dtype=np.float32)[[i]], 3, 0)])[0][0]
        for i in range(columns)
    ]
    np.testing.assert_array_equal(found, np.array(seen).T)
    assert np.count_nonzero(found) == len(case.values)


def test_weights_behind_a_densify_run_on_the_device(device: DeviceInfo) -> None:
    model = CASES["square_blocks"].model()
    delegate = OpenCLDelegate(model, device.index, tune="off")
    ours, reference = interpreter(model, delegate), interpreter(model)
    assert refusals(delegate) == {}
    x = [np.arange(12, dtype=np.float32).reshape(3, 4)]
    np.testing.assert_array_equal(invoke(ours, x)[0], invoke(reference, x)[0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 1, 4, 2)], ids=str)
def test_what_was_written_is_read_again(shape: tuple[int, ...], dtype: str) -> None:
    rng = np.random.default_rng(5)
    values = (rng.integers(-9, 9, shape) * (rng.random(shape) < 0.4)).astype(dtype)
    stored, dense_again = replace(const(values, name="sparse"), is_sparse=True), t(shape, dtype)
    model = chain_model([op("DENSIFY", [stored], [dense_again])])
    found = dense_of(model)
    assert found is not None
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(invoke(interpreter(model), [])[0], values)
    assert write_model(read_model(model)) == model


WRONG = {
    "order": Sparse((3, 4), (0, 0), ROWS.levels, ROWS.values),
    "levels": Sparse((3, 4), (0, 1), ROWS.levels[:1], ROWS.values),
    "index": Sparse(
        (3, 4), (0, 1), ((DENSE, 3, ()), (CSR, (0, 2, 2, 4), (1, 9, 0, 3))), ROWS.values
    ),
    "segments": Sparse(
        (3, 4), (0, 1), ((DENSE, 3, ()), (CSR, (0, 2, 2, 9), (1, 3, 0, 3))), ROWS.values
    ),
    "few_segments": Sparse(
        (3, 4), (0, 1), ((DENSE, 3, ()), (CSR, (0, 2), (1, 3, 0, 3))), ROWS.values
    ),
    "few_values": Sparse((3, 4), (0, 1), ROWS.levels, (1, 2, 3)),
    "size": Sparse((3, 4), (0, 1), ((DENSE, -3, ()), ROWS.levels[1]), ROWS.values),
    "huge": Sparse((1 << 20, 1 << 20), (0, 1), ROWS.levels, ROWS.values),
    # Few bytes that ask for all memory.
    "paths": Sparse((1, 1), (0, 1), ((DENSE, 1 << 28, ()), (DENSE, 1, ())), (1,)),
    "paths_of_a_large_tensor": Sparse(
        (1 << 13, 1 << 13), (0, 1), ((DENSE, 1 << 13, ()), (DENSE, 1 << 13, ())), (1,)
    ),
    "overlapping_segments": Sparse(
        (64, 64), (0, 1), ((DENSE, 64, ()), (CSR, (0, 64) * 32 + (0,), tuple(range(64)))), (1,) * 64
    ),
    "block": Sparse((3, 4), (0, 1, 2), CASES["blocks"].levels, (5, 6, 7, 8), (7,)),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_what_makes_no_sense_has_no_values(case: Sparse) -> None:
    model = case.model()
    tracemalloc.start()
    assert dense_of(model) is None
    most_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most_bytes < 1 << 20


def test_sparse_tensors_take_so_much_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ROWS.model()
    monkeypatch.setattr(table, "MAX_DENSE_BYTES", 4 * 12)
    assert dense_of(model) is not None
    monkeypatch.setattr(table, "MAX_DENSE_BYTES", 4 * 12 - 1)
    assert dense_of(model) is None
