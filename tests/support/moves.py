# SPDX-License-Identifier: Apache-2.0
"""Shared code of tests of ops that only move bytes: tensors, strategies, assertions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import reject
from numpy.typing import ArrayLike

from delegate import DeviceInfo
from delegate.inspect import Node, Tensor
from tests.support.cases import LANES_8, SIMT, Strategy, assert_exact_strategy, strategy_on
from tests.support.compare import RUNTIME, interpreter, invoke
from tests.support.model import chain_model, const, t

ANY = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "bool")
# Work-groups of 64 work-items; of one that copies rows; of one that copies elements.
MOVE_STRATEGIES = (SIMT, LANES_8, replace(LANES_8, name="lanes8-plain", alternative="plain"))


def like(shape: Sequence[int], dtype: str = "uint8", zero: int = 3) -> Tensor:
    """Return a tensor, quantised if it has 8 bits."""
    return t(shape, dtype, *((0.5, zero) if dtype in ("uint8", "int8") else ()))


def numbers(values: ArrayLike, dtype: str = "int32") -> Tensor:
    """Return a constant of axes, sizes or indices."""
    return const(np.asarray(values, dtype))


def one_value(value: float, dtype: str = "uint8", zero: int = 3) -> Tensor:
    """Return a constant scalar, quantised as `like` does."""
    return replace(like((), dtype, zero), data=np.array(value).astype(dtype))


def assert_moved(node: Node, device: DeviceInfo, strategy: Strategy, seed: int = 0) -> set[str]:
    """Assert that a node gives TFLite's bytes with this strategy; return the alternatives' names.

    What an older runtime does not take is no case.
    """
    model = chain_model([node], outputs=node.outputs)
    kernels = _kernels_that_run(node, model)
    if kernels is None:
        assert RUNTIME.name == "tflite-runtime", "TFLite does not take the node"
        pytest.skip(f"{RUNTIME.name} has no {node.op} of this type")
    return assert_exact_strategy(model, device, strategy, seed, cpu_kernels=kernels)


def assert_moved_or_refused(node: Node, device: DeviceInfo, strategy: Strategy, seed: int) -> None:
    """Assert the same for a drawn node; reject one that TFLite does not run."""
    kernels = _kernels_that_run(node, chain_model([node], outputs=node.outputs))
    if kernels is None:
        reject()
    assert_moved(node, device, strategy_on(device, strategy), seed)


def _kernels_that_run(node: Node, model: bytes) -> str | None:
    """Return the CPU kernels that run a model: some accept it and fail in the run."""
    for kernels in ("reference", "builtin"):
        try:
            interp = interpreter(model, cpu_kernels=kernels)
            given = [np.zeros(d["shape"], d["dtype"]) for d in interp.get_input_details()]
            invoke(interp, given)
        except (RuntimeError, ValueError):
            continue
        return kernels
    return None
