# SPDX-License-Identifier: Apache-2.0
"""Whether a partition runs on the driver's threads, or faster in the calling thread alone."""

from __future__ import annotations

import logging
from functools import partial

from delegate.errors import DeviceError, KernelBuildError
from delegate.guard.children.trials import Trials
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.planned import planned_executor
from delegate.plan.tuning.agreement import same_outputs
from delegate.plan.tuning.chooser import Choice, Chooser
from delegate.plan.tuning.dispatch import Selection
from delegate.run.device import Device
from delegate.run.executor import Executor
from delegate.run.weights import Weights

_THREADS, _NO_THREADS = MODES = ("threads", "calling thread")
# Waking threads takes 30 us and the end of their work as much again: longer runs gain nothing.
_LONGEST_SECONDS = 300e-6
_log = logging.getLogger("delegate")


class ThreadChooser:
    """Chooses between a device and the same processor without threads, if the driver has both."""

    def __init__(
        self,
        device: Device,
        chooser: Chooser,
        trials: Trials,
        is_profiled: bool,
        is_exact: bool = False,
    ) -> None:
        """`is_profiled`: launches are timed, on the device that was asked for.

        `is_exact`: floats may not differ by a bit.
        """
        self._device, self._chooser, self._trials = device, chooser, trials
        self._is_profiled, self._is_exact = is_profiled, is_exact
        self._weights: Weights | None = None  # on the other device

    def executor_without(self, executor: Executor, chosen: Selection) -> Executor | None:
        """Return an executor of the same schedule in the calling thread; None: it is not faster.

        `executor`: of `chosen`, with threads, after a first run.
        """
        has_state = any(t.state_name for t in (*executor.plan.inputs, *executor.plan.outputs))
        if has_state or self._is_profiled or self._device.type != "cpu":
            return None
        choice = Choice(f"{chosen.key}, threads", MODES, default=_THREADS, is_short=True)
        try:
            taken = self._chooser.choose(choice, partial(self._measure, executor, chosen))
            return self._executor(executor, chosen) if taken == _NO_THREADS else None
        except (DeviceError, KernelBuildError) as error:
            _log.info("the driver's threads are used: %s", error)
            return None

    def _measure(self, executor: Executor, chosen: Selection) -> str:
        if min(executor.repeat(1, wait=True) for _ in range(5)) > _LONGEST_SECONDS:
            return _THREADS
        other = self._executor(executor, chosen)
        if other is None:
            return _THREADS
        with other:
            if not same_outputs(executor, other, 0, self._is_exact):
                _log.warning("%s computes wrongly without threads", self._device.info.name)
                return _THREADS
            both = {_THREADS: executor, _NO_THREADS: other}
            runs = {name: partial(each.repeat, wait=True) for name, each in both.items()}
            return self._chooser.fastest(runs) or _THREADS

    def _executor(self, executor: Executor, chosen: Selection) -> Executor | None:
        device = self._device.without_threads()
        if device is None:
            return None
        if self._weights is None:
            self._weights = Weights(device, is_shared=True)
        kernels, how = (
            Kernels(device, self._trials),
            (chosen.dispatch_mode, executor.plan.copy_strategy),
        )
        return planned_executor(device, kernels, chosen.schedule, 1, *how, self._weights)
