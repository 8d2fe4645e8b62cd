# SPDX-License-Identifier: Apache-2.0
"""Detects fp16 overflow in a run's outputs, and falls back to float32.

Which tensors may be fp16 is decided before any value is known (delegate/plan/fp16/fp16_range.py).
An infinity, NaN or all-zero output is suspicious: the run is repeated in float32, and if the
result differs, so are all later runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from delegate.graph.ir import Tensor
from delegate.launch import element_type
from delegate.plan.layout import Bytes

# Repeated runs that float32 confirmed, as for a model that masks with infinities. From then on fp16
# is considered correct, and no run is repeated.
_MOST_AGREED = 8
_NOT_FINITE, _ZEROS = "infinite or no number", "zero everywhere"
_log = logging.getLogger("delegate")


class WatchedExecutor(Protocol):
    """The executor's interface, in this process or another."""

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The tensors that a run returns."""

    @property
    def batch(self) -> int:
        """Batch size of a run."""

    @property
    def uses_fp16(self) -> bool:
        """Whether its float32 tensors are stored as fp16 between launches."""

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once."""

    def close(self) -> None:
        """Free the device memory."""


_Executor = TypeVar("_Executor", bound=WatchedExecutor)


class RangeWatch(Generic[_Executor]):
    """Checks the outputs of an executor's runs."""

    def __init__(self, make: Callable[[], _Executor] | None) -> None:
        """`make`: returns a float32 executor of the same partition; raises DelegateError.

        None: runs cannot be repeated, because they update persistent tensors.
        """
        self._make = make
        self._floats: _Executor | None = None
        self._remaining = _MOST_AGREED

    def checked(
        self,
        executor: _Executor,
        inputs: Sequence[Bytes],
        outputs: Sequence[Bytes],
        count: int = 0,
    ) -> _Executor:
        """Return the executor of the next run: this one, or a float32 one for the caller to close.

        In the latter case the outputs are replaced. `count`: valid batch elements; 0: all.

        Raises: DelegateError: the float32 run fails.
        """
        if not executor.uses_fp16 or not self._remaining:
            return executor
        symptoms = _symptoms(executor, outputs, count)
        if not any(symptoms):
            return executor
        if self._make is None:
            if _NOT_FINITE in symptoms:
                self._remaining = 0
                _log.warning("%s: fp16 may be the reason", _words(executor, symptoms))
            return executor
        if self._floats is None:
            self._floats = self._make()
        fp16_outputs = [each.copy() for each in outputs]
        self._floats.run(inputs, outputs)
        if _symptoms(executor, outputs, count) == symptoms:
            self._remaining -= 1
            for mine, theirs in zip(outputs, fp16_outputs, strict=True):
                mine[...] = theirs
            return executor
        _log.warning(
            "%s in fp16, but not in float32: the model's values exceed the range of fp16, "
            "so it runs in float32 from now on; leave out precision=\"fp16\" (--allow_fp16)",
            _words(executor, symptoms),
        )  # fmt: skip
        self._remaining, found, self._floats = 0, self._floats, None
        return found

    def close(self) -> None:
        """Close the executor that it created and that was never returned."""
        if self._floats is not None:
            self._floats.close()
            self._floats = None


def _symptoms(executor: WatchedExecutor, outputs: Sequence[Bytes], count: int) -> list[str]:
    """Return for each output why it looks invalid; "": it does not."""
    pairs = zip(executor.outputs, outputs, strict=True)
    return [_why(tensor, values, executor.batch, count) for tensor, values in pairs]


def _why(tensor: Tensor, values: Bytes, batch: int, count: int) -> str:
    if tensor.dtype not in ("float16", "float32"):
        return ""
    numbers = values.view(element_type(tensor.dtype)).reshape(batch, -1)[: count or batch]
    if not np.isfinite(numbers).all():
        return _NOT_FINITE
    return _ZEROS if numbers.size > 1 and not numbers.any() else ""


def _words(executor: WatchedExecutor, symptoms: Sequence[str]) -> str:
    place = next(place for place, why in enumerate(symptoms) if why)
    tensor = executor.outputs[place]
    name = f" ({tensor.name})" if tensor.name else ""
    return f"tensor {tensor.index}{name} is {symptoms[place]}"
