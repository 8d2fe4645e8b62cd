# SPDX-License-Identifier: Apache-2.0
"""Runs whose outputs overflow fp16 are repeated in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.errors import DeviceError
from delegate.graph.ir import Tensor
from delegate.run.range_watch import RangeWatch

ONE = (Tensor(7, "scores", (4,), "float32"),)


class Fake:
    """An executor with these outputs."""

    def __init__(self, gives: Any, uses_fp16: bool, outputs: Sequence[Tensor] = ONE) -> None:
        self.gives, self.uses_fp16, self.outputs = gives, uses_fp16, outputs
        self.batch, self.runs, self.is_closed = 1, 0, False

    def run(self, inputs: Any, outputs: Sequence[NDArray[np.uint8]]) -> None:
        self.runs += 1
        for values, to in zip(self.gives, outputs, strict=True):
            to[...] = np.asarray(values, np.float32).view(np.uint8)

    def close(self) -> None:
        self.is_closed = True


def ran(watch: RangeWatch, executor: Fake, count: int = 0) -> tuple[Any, NDArray[np.float32]]:
    outputs = [np.zeros(16 * executor.batch, np.uint8) for _ in executor.outputs]
    executor.run([], outputs)
    after = watch.checked(executor, [], outputs, count)  # type: ignore[arg-type]
    return after, outputs[0].view(np.float32)


def halves(*values: float) -> Fake:
    return Fake([values], True)


@pytest.mark.parametrize(
    "values", [(1, np.inf, 3, 4), (np.nan,) * 4, (0, 0, 0, 0), (1, 2, 3, -np.inf)]
)
def test_overflowing_run_is_repeated(
    values: tuple[float, ...], caplog: pytest.LogCaptureFixture
) -> None:
    floats = Fake([[1, 2, 3, 4]], False)
    after, outputs = ran(RangeWatch(lambda: floats), halves(*values))  # type: ignore[arg-type]
    assert after is floats
    assert outputs.tolist() == [1, 2, 3, 4]
    (record,) = caplog.records
    assert "tensor 7 (scores) is" in record.getMessage()
    assert "runs in float32 from now on" in record.getMessage()


def test_run_within_range_is_used(caplog: pytest.LogCaptureFixture) -> None:
    def never() -> Any:
        raise AssertionError

    for executor in (halves(0, 0, 1, 0), Fake([[0, 0, 0, 0]], False), Fake([[np.nan] * 4], False)):
        after, _ = ran(RangeWatch(never), executor)
        assert after is executor
    assert caplog.records == []


def test_infinity_that_float32_also_has_is_the_models(caplog: pytest.LogCaptureFixture) -> None:
    floats = Fake([[np.inf, 1, 2, 3.5]], False)
    watch, executor = RangeWatch(lambda: floats), halves(np.inf, 1, 2, 3)  # type: ignore[arg-type]
    for _ in range(12):
        after, outputs = ran(watch, executor)
        assert after is executor
        assert outputs.tolist() == [np.inf, 1, 2, 3]
    assert floats.runs == 8  # then checking ends
    assert caplog.records == []
    watch.close()
    assert floats.is_closed


def test_overflow_of_stateful_run_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    watch, executor = RangeWatch(None), halves(np.inf, 1, 2, 3)
    for _ in range(3):
        after, _ = ran(watch, executor)
        assert after is executor
    (record,) = caplog.records
    assert "fp16 may be the reason" in record.getMessage()


def test_unused_pictures_of_batch_are_ignored() -> None:
    executor = Fake([[1, 2, 3, 4, np.nan, 0, 0, 0]], True)
    executor.batch = 2
    after, _ = ran(RangeWatch(None), executor, count=1)
    assert after is executor


def test_integers_are_ignored() -> None:
    executor = Fake([[0, 0, 0, 0]], True, [Tensor(0, "", (4,), "int32")])
    assert ran(RangeWatch(None), executor)[0] is executor


def test_failed_float32_run_is_an_error() -> None:
    def fails() -> Any:
        raise DeviceError("no memory")

    with pytest.raises(DeviceError, match="no memory"):
        ran(RangeWatch(fails), halves(np.nan, 1, 2, 3))
