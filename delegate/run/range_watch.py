# SPDX-License-Identifier: Apache-2.0
"""Runs of a program with halves whose results show that its values are beyond their range.

Which floats may be halves is decided before any value is known (delegate/plan/fp16/fp16_range.py).
What a run gives then tells: an infinity, NaN, or an output that is all zeros. Such a run is done
again in float32, and where that gives something else, so are all later ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np

from delegate.graph.ir import Tensor
from delegate.launch import element_type
from delegate.plan.layout import Bytes

# Repeated runs that float32 agreed to, such as of a model that masks with infinities. Then halves
# are not to blame, and nobody waits for a second run any more.
_MOST_AGREED = 8
_NOT_FINITE, _ZEROS = "infinite or no number", "zero everywhere"
_log = logging.getLogger("delegate")


class WatchedExecutor(Protocol):
    """What an executor has, in this process or another one."""

    @property
    def outputs(self) -> Sequence[Tensor]:
        """The tensors that a run gives."""

    @property
    def batch(self) -> int:
        """Pictures of a run."""

    @property
    def uses_fp16(self) -> bool:
        """Whether values of its float32 tensors are halves between launches."""

    def run(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run once."""

    def close(self) -> None:
        """Give the device's memory back."""


_Executor = TypeVar("_Executor", bound=WatchedExecutor)


class RangeWatch(Generic[_Executor]):
    """Looks at what the runs of an executor give."""

    def __init__(self, make: Callable[[], _Executor] | None) -> None:
        """`make`: gives an executor of the same partition in float32; raises DelegateError.

        None: a run cannot be done again, for it leaves values to the next one.
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
        """Return the executor of the next run: this one, or that in float32, which is the caller's.

        The outputs become those of float32 then. `count`: the pictures that count; 0: all.

        Raises: DelegateError: the run in float32 fails.
        """
        if not executor.uses_fp16 or not self._remaining:
            return executor
        symptoms = _symptoms(executor, outputs, count)
        if not any(symptoms):
            return executor
        if self._make is None:
            if _NOT_FINITE in symptoms:
                self._remaining = 0
                _log.warning("%s: halves may be the reason", _words(executor, symptoms))
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
            "%s in halves, and not in float32: the model's values are beyond the range of halves, "
            "so it runs in float32 from now on; leave out precision=\"fp16\" (--allow_fp16)",
            _words(executor, symptoms),
        )  # fmt: skip
        self._remaining, found, self._floats = 0, self._floats, None
        return found

    def close(self) -> None:
        """Give back what it made and nobody took."""
        if self._floats is not None:
            self._floats.close()
            self._floats = None


def _symptoms(executor: WatchedExecutor, outputs: Sequence[Bytes], count: int) -> list[str]:
    """Return for each output why it is no result; "": it may be one."""
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
