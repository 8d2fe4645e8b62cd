# SPDX-License-Identifier: Apache-2.0
"""Compares a chain of two delegates with the reference kernels; logs once why it cannot."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from delegate.inspect import Graph
from tflite_opencl.console.errors import DelegateFailed, RunError, reason_of
from tflite_opencl.harness.chain import Judge, Shares, open_judge
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.interpreters.runtime import Runtime

log = logging.getLogger("label_image")


class ChainJudge(contextlib.ExitStack):
    """Opens the chain a second time when the first picture is compared."""

    def __init__(self, job: Job, runtime: Runtime, graph: Graph) -> None:
        super().__init__()
        self._job, self._runtime, self._graph = job, runtime, graph
        self._judge: Judge | None = None
        self._is_ended = False

    def shares(self, taken: Delegation | None, pixels: NDArray[Any]) -> Sequence[Shares]:
        """Return how far both delegates are from the reference kernels, for each picture.

        () if only one delegate took nodes or nothing can be compared. Shapes: (n, h, w, c)
        """
        if self._is_ended or taken is None or not (taken.others and taken.delegated):
            return ()
        try:
            if self._job.own_batch > 1 and not self._job.is_timed:
                raise RunError("the model takes several pictures at once")
            if self._judge is None:
                context = open_judge(self._job, self._runtime, self._graph, taken)
                self._judge = self.enter_context(context)
            return self._judge.shares(None if self._job.is_timed else pixels)
        except (RunError, DelegateFailed) as error:
            log.warning("the delegates are not judged apart: %s", reason_of(error))
            self._is_ended = True
            return ()
