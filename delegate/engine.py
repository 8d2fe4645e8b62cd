# SPDX-License-Identifier: Apache-2.0
"""Engine: an opened device that turns graphs into verdicts and partitions into executors.

It executes plans. A `Planning` makes them: a child process, with a cache, or this process if the
options say that no child is needed.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delegate.errors import PlanError
from delegate.graph.ir import Graph
from delegate.graph.partition import Partition
from delegate.graph.verdict import Verdict
from delegate.guard.children import helper, progress
from delegate.guard.isolation.backend import AnyDevice, AnyExecutor, AnyState, backend_of
from delegate.guard.isolation.device import IsolatedDevice
from delegate.guard.probing.opening import open_device, target_of
from delegate.guard.store import has_stores
from delegate.options import Options
from delegate.plan import ieee
from delegate.plan.fp16 import fp16
from delegate.plan.planners.child_planner import ChildPlanner
from delegate.plan.planners.file_planner import FilePlanner, write_answers
from delegate.plan.planners.plan_reader import PlanReader
from delegate.plan.record import NO_REGION, Region
from delegate.run.device import Device
from delegate.target import Rules, Target

if TYPE_CHECKING:
    from delegate.plan.planners.planner import Planning

_log = logging.getLogger("delegate")
# Whether children plan at all. Tests whose processes may crash disable it.
is_on = True


class Engine:
    """A device and its programs.

    Attributes:
        device: the opened device; its `proven` lacks excluded features.
    Raises:
        NoDeviceError: no device, none that matches, or none that passes its self-test.
        ProfileError: the device profile is unknown or invalid. PlanError: the plan does not apply.
    """

    def __init__(
        self,
        options: Options,
        planning: Callable[[Options, AnyDevice, float], Planning] | None = None,
        device: AnyDevice | None = None,
    ) -> None:
        """Open the device, unless one is given; nothing is built yet.

        `planning`: creates the planner, given the seconds that opening took; None: this process.
        """
        begun = time.perf_counter()
        with progress.phase("device"), progress.share(0, progress.AT_VERDICTS):
            open_one = IsolatedDevice if options.isolate else open_device
            self.device: AnyDevice = device or open_one(options)
        seconds = time.perf_counter() - begun
        self._is_ieee = options.is_ieee
        if options.is_ieee and (warning := ieee.warning(self.device.proven)):
            _log.warning("%s: %s", self.device.info.name, warning)
        if options.allows_fp16 and not fp16.can_store_fp16(self.device.proven):
            _log.warning("%s: not proven to store fp16; stays float32", self.device.info.name)
        self._backend = backend_of(self.device)
        if options.plan is not None:
            self._planning: Planning = FilePlanner(options, self.device, options.plan)
        elif planning is None:
            # Imported lazily: it loads all ops, which a start with a plan does not need: 0.1 s.
            from delegate.plan.planners.planner import Planner

            assert isinstance(self.device, Device)
            self._planning = Planner(options, self.device, seconds=seconds)
        else:
            self._planning = planning(options, self.device, seconds)

    @property
    def unmeasured(self) -> int:
        """The number of choices that were not measured."""
        return self._planning.unmeasured

    def write_plan(self, path: str | os.PathLike[str]) -> None:
        """Write a file with all plans made so far. Raises: PlanError."""
        if not isinstance(self._planning, PlanReader):
            raise PlanError("no child process planned (in_child_first=False): there is no plan")
        write_answers(path, self.device, self._planning.replies)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.device.is_closed

    def close(self) -> None:
        """Release the device's context; close all executors first."""
        self.device.close()

    def target(self, rules: Rules) -> Target:
        """Return the description of the device for lowering, with a runtime's arithmetic rules."""
        return target_of(self.device, rules, self._planning.registers(), self._is_ieee)

    def verdicts(
        self, graph: Graph, target: Target, exclude_ops: Sequence[str] = ()
    ) -> list[Verdict]:
        """Return for each node whether it is supported here."""
        return self._planning.verdicts(graph, target, exclude_ops)

    def placement(
        self, facts: Hashable, threads: int, measure: Callable[[], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return a partition's timings here and on the CPU: cached ones, or else `measure()`.

        `facts`: all that they depend on, except for the CPU's `threads`.
        """
        return self._planning.placement(facts, threads, measure)

    def why_not_on_cpu(self, graph: Graph, package: str, threads: int) -> str:
        """Return why TFLite's CPU path cannot run a graph, as a child found; "": it can.

        `package`: the import name of a TFLite runtime.
        """
        return self._planning.why_not_on_cpu(graph, package, threads)

    def executor(
        self,
        partition: Partition,
        target: Target,
        batch: int = 1,
        region: Region = NO_REGION,
        state: AnyState | None = None,
    ) -> AnyExecutor:
        """Return a partition ready to run, in the fastest dispatch mode.

        `state`: stores its persistent tensors; planning ignores it, and treats them as ordinary
        inputs. `region`: of the state, if there is none here.

        Raises:
            Unsupported: a node does not lower. DeviceError, KernelBuildError: planning failed.
        """
        region = state.region if state else region
        plan, constants = self._planning.partition(partition, target, batch, region)
        with progress.phase("build"):
            return self._backend.executor(plan, constants, state)

    def state(self, *about: Any, **more: Any) -> AnyState:
        """Return storage for persistent tensors; arguments as PersistentTensors."""
        return self._backend.state(*about, **more)

    def sibling(self, executor: AnyExecutor) -> AnyExecutor:
        """Return another executor of the same plan, with its own queue and arena.

        It has no state: runs that share a state are sequential.
        """
        return self._backend.executor(executor.plan, executor.constants(), None, True)


def open_engine(options: Options, device: AnyDevice | None = None) -> Engine:
    """Return an engine; a child plans if the options say so.

    `device`: an opened one. Raises: as Engine.
    """
    options = replace(options, device_profile=options.profile)  # read only once
    if options.isolate or (options.in_child_first and is_on):
        return Engine(options, ChildPlanner, device)
    return Engine(options, device=device)


def start_early() -> None:
    """Start the helper process early, so that it imports modules in the background.

    If this user has used a device before, a child may not be needed, and none is started.
    """
    if is_on and not has_stores():
        helper.begin()
