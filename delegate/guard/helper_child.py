# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.guard.helper_child`: the child process of delegate.guard.children.helper.

A request is pickled: a method of _RequestHandler, and its arguments. Events are: a step begins, a
step ended, a log line, the answer.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from delegate.errors import DelegateError, DeviceError
from delegate.graph.ir import Graph
from delegate.graph.partition import Partition
from delegate.guard.children import environment, progress
from delegate.guard.children.channel import Channel, serving
from delegate.guard.children.trials import PASSED, PLATFORMS, ReportedTrials, Trial
from delegate.guard.probing.opening import open_device
from delegate.guard.probing.self_tests import run_self_test
from delegate.isa import BY_NAME, OWN_BUILTINS
from delegate.options import Options
from delegate.plan.codec import TunedPlan, encode
from delegate.plan.contents import paths_outside_cache
from delegate.plan.dispatch.survey import probe_platforms
from delegate.plan.planners.planner import Planner
from delegate.plan.record import Region
from delegate.profiles import DeviceProfile
from delegate.run import icds
from delegate.run.constant_files import save_constants
from delegate.run.device_list import DeviceInfo, matching
from delegate.target import Target

IDLE_SECONDS = 10  # without a request
_log = logging.getLogger("delegate")


class _EventSender(logging.Handler):
    """Sends events, and ends this process if a step takes so long that the parent must be gone.

    It uses a kernel timer, which also works inside a driver.
    """

    def __init__(self, parent: Channel) -> None:
        super().__init__()
        self._parent = parent
        self._trying: list[Trial] = []
        self.step_seconds = self.between_seconds = 0

    def send(self, payload: bytes = b"", **event: Any) -> None:
        """Send an event."""
        if "trying" in event:
            self._trying.append(event["trying"])
        elif self._trying and self._trying[-1] == event.get("tried"):
            self._trying.pop()
        signal.alarm(self.step_seconds if self._trying else self.between_seconds)
        self._parent.send(payload, **event)

    def emit(self, record: logging.LogRecord) -> None:
        """Send a log record."""
        self.send(log=record.getMessage(), level=record.levelno)


def main() -> int:
    """Handle requests until idle for IDLE_SECONDS, or the parent is gone."""
    with serving() as parent:
        events = _EventSender(parent)
        _log.addHandler(events)
        _log.propagate = False
        icds.trust()  # the parent finds out what kills this process
        environment.trust()
        handler = _RequestHandler(events)
        for message in parent.messages(IDLE_SECONDS):
            message_parts = pickle.loads(message["payload"])
            request, events.step_seconds, events.between_seconds, usage, level = message_parts
            _log.setLevel(level)
            if usage is not None:
                environment.reserve_as_much(usage)
            word, *arguments = request
            with progress.forwarded_to(lambda *step: events.send(progress=step)):
                answer = getattr(handler, word)(*arguments)
            payload = answer.pop("payload") if isinstance(answer, dict) else b""
            events.send(payload, answer=answer)
            signal.alarm(0)
    return 0


class _RequestHandler:
    """Handles requests. The planner is reused if the next request is for the same device."""

    def __init__(self, events: _EventSender) -> None:
        self._send = events.send
        self._same: object = None
        self._planner: Planner | None = None

    def platforms(self, environment: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Query every library as for listing devices; return the platforms.

        `environment`: variables that select libraries in place of the loader's defaults.
        """
        os.environ.update(environment or {})
        with ReportedTrials({}, self._send).attempt(Trial(PLATFORMS)):
            return [asdict(each) for each in probe_platforms()]

    def self_tests(
        self,
        info: DeviceInfo,
        profile: DeviceProfile | None,
        tests: Sequence[Trial],
        passed: Collection[str],
    ) -> None:
        """Run self-tests, each as a step, since any may crash the process.

        `passed`: names of tests that passed before.
        """
        _log.setLevel(logging.CRITICAL)  # a failed build only means "not proven"
        info, known = self._require_device(info.index, info.identity), {*passed}
        trials = ReportedTrials({}, self._send)
        for test in progress.each(tests, lambda test: f"self-test {test.name}"):
            name = test.name
            with trials.attempt(test) as under_way:
                if name in BY_NAME and BY_NAME[name].proven_by & known:
                    under_way.how = "not needed"
                else:
                    proven = [name, *(known & {OWN_BUILTINS})]
                    under_way.how = run_self_test(info, proven, profile)
            self._send(log=f"device {info.index}, {name}: {under_way.how}", level=logging.DEBUG)
            if under_way.how == PASSED:
                known.add(name)

    def plan(
        self,
        same: tuple[str, Options],
        left_out: dict[Trial, str],
        seconds_left: float,
        call: str,
        arguments: Sequence[Any],
    ) -> dict[str, Any]:
        """Serve a planning request of the parent's engine; the "payload" is the encoded answer.

        `same`: the device's identity and the options. `seconds_left`: budget for measuring.
        """
        planner = self._planner_of(same, left_out)
        planner.chooser.begin(seconds_left)
        planner.trials.encountered.clear()
        payload, error = b"", None
        try:
            payload = getattr(self, f"_{call}")(planner, *arguments)
        except DelegateError as raised:
            _log.debug("in a child process: %s", raised)
            error = type(raised).__name__, str(raised)
        head = json.dumps([sorted(planner.trials.encountered), error]).encode()
        return {
            "payload": head + b"\n" + payload,
            "error": error[0] if error else "",
            "seconds_left": planner.chooser.seconds_left,
            "elsewhere": paths_outside_cache(),
        }

    def _planner_of(self, same: tuple[str, Options], left_out: dict[Trial, str]) -> Planner:
        planner = self._planner
        if planner is None or same != self._same or planner.trials.left_out != left_out:
            if planner is not None:
                planner.device.close()
            identity, options = same
            self._require_device(options.device, identity)
            trials = ReportedTrials(left_out, self._send)
            planner = self._planner = Planner(options, open_device(options), trials)
            self._same = same
        return planner

    def _registers(self, planner: Planner) -> bytes:
        return json.dumps(planner.registers()).encode()

    def _verdicts(
        self, planner: Planner, graph: Graph, target: Target, exclude_ops: Sequence[str]
    ) -> bytes:
        found = planner.verdicts(graph, target, exclude_ops)
        return json.dumps([[*verdict, verdict.is_lost] for verdict in found]).encode()

    def _partition(
        self, planner: Planner, partition: Partition, target: Target, batch: int, region: Region
    ) -> bytes:
        chooser = planner.chooser
        plan, lease = planner.partition(partition, target, batch, region)
        with contextlib.closing(lease):
            constants = save_constants(lease)
            tuning = chooser.mode, chooser.unmeasured, chooser.unmeasured_seconds
            return encode(TunedPlan(plan, constants, *tuning))

    def _cpu(self, planner: Planner, graph: Graph, package: str, threads: int) -> bytes:
        return json.dumps(planner.why_not_on_cpu(graph, package, threads)).encode()

    def _require_device(self, index: str | int | None, identity: str) -> DeviceInfo:
        """Return the device of the parent."""
        info = matching(index)[0]
        if info.identity != identity:
            raise DeviceError(f"device {index} is now {info.identity}")
        return info


if __name__ == "__main__":
    sys.exit(main())
