# SPDX-License-Identifier: Apache-2.0
"""Weights of stateful ops, and helpers for both directions."""

from __future__ import annotations

import numpy as np

from delegate.inspect import Tensor
from tflite_opencl.models.build import Shape, constant, integers, tensor

# Rows, steps, depth, cells.
SIZES = ((1, 1, 7, 5), (1, 9, 12, 16), (3, 4, 33, 17), (2, 3, 1, 1))


def another(source: Tensor, form: str) -> Tensor | None:
    """Return an auxiliary input, of the input's depth if it replaces the input."""
    if "auxiliary" not in form and "linked" not in form:
        return None
    depth = source.shape[-1] + (1 if "linked" in form else 0)
    return tensor((*source.shape[:-1], depth), limits=(-2.0, 2.0))


def outputs_of(outputs: list[Tensor], is_merged: bool) -> list[Tensor]:
    """Return the outputs of both directions, concatenated if merged."""
    if not is_merged:
        return outputs
    width = sum(each.shape[-1] for each in outputs)
    return [tensor((*outputs[0].shape[:-1], width))]


def narrow(rng: np.random.Generator, shape: Shape, scale: float) -> Tensor:
    """Return int8 weights that every TFLite version multiplies correctly."""
    return constant(np.maximum(integers(rng, shape, "int8"), -127), scale)


def matrix(rng: np.random.Generator, kind: str, shape: Shape, size: float = 1.0) -> Tensor:
    """Return float or int8 weights (outputs, terms), scaled so that sums have this size."""
    if kind == "int8":
        return constant(integers(rng, shape, "int8"), rng.uniform(0.002, 0.02))
    if kind == "hybrid":
        return narrow(rng, shape, size * rng.uniform(0.005, 0.015) / np.sqrt(shape[1]))
    return normal(rng, shape, size / np.sqrt(shape[1]))


def normal(rng: np.random.Generator, shape: Shape, deviation: float = 1.0) -> Tensor:
    """Return normally distributed floats."""
    return constant((rng.standard_normal(shape) * deviation).astype(np.float32))
