# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of elementwise launches on the host, in NumPy, with the roundings of TFLite.

It reads the fields and macros that the kernel reads, so that no op states its arithmetic twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Constant, Launch
from delegate.ops._numbers import fixed_point
from delegate.ops._numbers.float_functions import function_of_floats
from delegate.target import Rules

Values = NDArray[Any]  # int64 for integers of any width, or float32
Arithmetic = Callable[..., Values]  # a node's inputs, broadcast like NumPy's -> its output
_LIFT = 1 << 20  # of add.cl's inputs


def on_host(launch: Launch, rules: Rules) -> Arithmetic:
    """Return the function of arrays that computes what an elementwise launch does.

    Raises:
        Unsupported: the host cannot compute it as TFLite does.
    """
    make = _KERNELS.get(launch.kernel)
    found = None if make is None else make(launch, rules)
    if found is None:
        what = ", ".join(map(str, (launch.kernel, *launch.defines.values())))
        raise Unsupported(f"{what}: the host does not compute it")
    return found


def _lookup(launch: Launch, rules: Rules) -> Arithmetic:
    table, source = launch.params["table"], launch.params["input"]
    assert isinstance(table, Constant)
    assert isinstance(source, Tensor)
    mask = 0xFF if launch.defines["INDEX"] == "uchar" else 0xFFFF

    def function(values: Values) -> Values:
        found: Values = table.pack()[values & mask]
        return found if found.dtype == np.float32 else found.astype(np.int64)

    return function


def _ints(launch: Launch) -> dict[str, int]:
    return {name: value for name, value in launch.params.items() if isinstance(value, int)}


def _quantized_binary(launch: Launch, rules: Rules) -> Arithmetic | None:
    op, n = str(launch.defines["OP"]), _ints(launch)
    if op in ("MAXIMUM", "MINIMUM"):
        return lambda a, b: np.maximum(a, b) if op == "MAXIMUM" else np.minimum(a, b)
    rescaled = fixed_point.multiply_by_quantized_multiplier

    def side(values: Values, which: str) -> Values:
        lifted = (values - n[f"{which}_zero"]) * n[f"{which}_lift"]
        return rescaled(lifted, n[f"{which}_multiplier"], n[f"{which}_shift"])

    combine: dict[str, Arithmetic] = {
        "ADD": lambda a, b: side(a, "left") + side(b, "right"),
        "SQUARED_DIFFERENCE": lambda a, b: np.square(side(a, "left") - side(b, "right")),
        "MULTIPLY": lambda a, b: (a - n["left_zero"]) * (b - n["right_zero"]),
    }
    if op not in combine:
        return None

    def function(a: Values, b: Values) -> Values:
        sums = rescaled(combine[op](a, b), n["output_multiplier"], n["output_shift"])
        return np.clip(sums + n["output_zero"], n["output_min"], n["output_max"])

    return function


def _quantized_add(launch: Launch, rules: Rules) -> Arithmetic:
    n = _ints(launch)
    rescaled = fixed_point.multiply_by_quantized_multiplier

    def function(a: Values, b: Values) -> Values:
        left = rescaled((a - n["left_zero"]) * _LIFT, n["left_multiplier"], n["left_shift"])
        right = rescaled((b - n["right_zero"]) * _LIFT, n["right_multiplier"], n["right_shift"])
        sums = rescaled(left + right, n["output_multiplier"], n["output_shift"])
        return np.clip(sums + n["output_zero"], n["output_min"], n["output_max"])

    return function


def _float(number: int) -> np.float32:
    found: np.float32 = np.int32(number).view(np.float32)
    return found


def _select(condition: NDArray[np.bool_], a: Values, b: Values) -> Values:
    chosen: Values = np.where(condition, a, b)
    return chosen


def _float_binary(launch: Launch, rules: Rules) -> Arithmetic | None:
    op, n = str(launch.defines["OP"]), _ints(launch)
    selects: dict[str, Arithmetic] = {
        "MAXIMUM": lambda a, b: _select(a > b, a, b),
        "MINIMUM": lambda a, b: _select(a < b, a, b),
        "SQUARED_DIFFERENCE": lambda a, b: np.square(a - b),
    }
    if op in selects:
        return selects[op]
    combine: dict[str, Arithmetic] = {
        "ADD": lambda a, b: a + b * np.float32(n["right_sign"]),
        "MULTIPLY": np.multiply,
        "DIVIDE": np.divide,
    }
    if op not in combine:
        return None
    low, high = _float(n["output_min"]), _float(n["output_max"])
    return lambda a, b: np.minimum(np.maximum(combine[op](a, b), low), high)


def _float_function(launch: Launch, rules: Rules) -> Arithmetic | None:
    n = _ints(launch)
    names = [name.removeprefix("IS_") for name in launch.defines if name.startswith("IS_")]
    (name,) = names or [str(launch.defines["OP"])]
    if name == "RELU":
        low, high = _float(n["lowest"]), _float(n["highest"])
        return lambda x: np.minimum(np.maximum(x, low), high)
    if name == "LEAKY_RELU":
        alpha = _float(n["alpha"])
        return lambda x: np.where(x > 0, x, x * alpha)
    return function_of_floats(name, rules.float_function)


def _quantize(launch: Launch, rules: Rules) -> Arithmetic:
    n, thresholds = _ints(launch), launch.params["thresholds"]
    assert isinstance(thresholds, Constant)
    beyond = _float(n["beyond"])

    def function(values: Values) -> Values:
        # -inf, the first threshold, stands for the lowest value.
        steps = np.searchsorted(thresholds.pack()[1:], values, "right") + n["output_min"]
        steps = np.where(values >= beyond, n["highest"], steps)
        steps = np.where(values <= -beyond, n["lowest"], steps)
        found: Values = np.where(np.isnan(values), n["not_a_number"], steps).astype(np.int64)
        return found

    return function


_KERNELS: Mapping[str, Callable[[Launch, Rules], Arithmetic | None]] = {
    "lookup": _lookup,
    "binary_quant8": _quantized_binary,
    "add_quant8": _quantized_add,
    "binary_float": _float_binary,
    "activation_float": _float_function,
    "unary_float": _float_function,
    "quantize_float": _quantize,
}
