# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.start.helper_child`: the child process of delegate.sandbox.helper.

A request is pickled: a method of _Performer, and its arguments. What is told is a step that
begins, one that ended, a line to log, the answer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from delegate import compiler, progress
from delegate.errors import DelegateError, DeviceError
from delegate.graph.infer import infer
from delegate.graph.ir import Graph
from delegate.graph.partition import partition_of, plain_nodes
from delegate.isa import BY_NAME, OWN_BUILTINS, likely_on
from delegate.options import Options
from delegate.profiles import DeviceProfile
from delegate.runtime import icds
from delegate.runtime.bench import DeviceBench
from delegate.runtime.device import Device
from delegate.runtime.device_list import DeviceInfo, matching
from delegate.runtime.kernels import Kernels
from delegate.runtime.survey import tried_platforms
from delegate.sandbox import surroundings
from delegate.sandbox.channel import Channel, serving
from delegate.sandbox.trials import PLATFORMS, Guessing, Told, Trial
from delegate.start.engine import Engine
from delegate.start.opening import granted, target_of
from delegate.start.self_tests import PASSED, tested
from delegate.tflite.library import installed_rules
from delegate.tuning.chooser import State

IDLE_SECONDS = 10  # without a request
_log = logging.getLogger("delegate")


class _Teller(logging.Handler):
    """Tells the parent, and ends this process if a step takes so long that the parent must be gone.

    The kernel of the operating system ends it, inside a driver, too.
    """

    def __init__(self, parent: Channel) -> None:
        super().__init__()
        self._parent = parent
        self._trying: list[Trial] = []
        self.step_seconds = self.between_seconds = 0

    def tell(self, **told: Any) -> None:
        """Tell an event."""
        if "trying" in told:
            self._trying.append(told["trying"])
        elif self._trying and self._trying[-1] == told.get("tried"):
            self._trying.pop()
        signal.alarm(self.step_seconds if self._trying else self.between_seconds)
        self._parent.send(**told)

    def emit(self, record: logging.LogRecord) -> None:
        """Tell a line to log."""
        self.tell(log=record.getMessage(), level=record.levelno)


def main() -> int:
    """Perform requests until there was none for long, or the parent is gone."""
    with serving() as parent:
        teller = _Teller(parent)
        _log.addHandler(teller)
        _log.propagate = False
        icds.trust()  # what this process dies of is the parent's to find
        surroundings.trust()
        performer = _Performer(teller)
        for message in parent.messages(IDLE_SECONDS):
            sent = pickle.loads(message["payload"])
            request, teller.step_seconds, teller.between_seconds, room, level = sent
            _log.setLevel(level)
            if room is not None:
                surroundings.take_as_much(room)
            word, *arguments = request
            with progress.told_to(lambda *step: teller.tell(progress=step)):
                answer = getattr(performer, word)(*arguments)
            teller.tell(answer=answer)
            signal.alarm(0)
    return 0


class _Performer:
    """What the child does. An engine is kept for the next request, if the parent knows the same."""

    def __init__(self, teller: _Teller) -> None:
        self._tell = teller.tell
        self._same: object = None
        self._engine: Engine | None = None
        self._told = Told({}, {}, teller.tell)

    def platforms(self, environment: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Ask every library for all that is asked when devices are listed; return the platforms.

        `environment`: the variables that say which libraries, where the loader is not to decide.
        """
        os.environ.update(environment or {})
        with Told({}, {}, self._tell).of(Trial(PLATFORMS)):
            return [asdict(each) for each in tried_platforms()]

    def self_tests(
        self,
        info: DeviceInfo,
        profile: DeviceProfile | None,
        tests: Sequence[Trial],
        passed: Collection[str],
    ) -> None:
        """Run self-tests, each a step: the driver may end the process at the next one.

        `passed`: the names of those before.
        """
        _log.setLevel(logging.CRITICAL)  # what does not build is only not proven
        info, known = self._found(info.index, info.identity), {*passed}
        told = Told({}, {}, self._tell)
        for test in progress.each(tests, lambda test: f"self-test {test.name}"):
            name = test.name
            with told.of(test) as under_way:
                if name in BY_NAME and BY_NAME[name].proven_by & known:
                    under_way.how = "not needed"
                else:
                    proven = [name, *(known & {OWN_BUILTINS})]
                    under_way.how = tested(info, proven, profile)
            self._tell(log=f"device {info.index}, {name}: {under_way.how}", level=logging.DEBUG)
            if under_way.how == PASSED:
                known.add(name)

    def ahead(self, options: Options, graphs: Sequence[Graph]) -> None:
        """Compile what will be launched; the driver is to keep it on disk.

        Of one graph that is what its nodes launch, the last first: another child begins at the
        first. Of several it is each graph as one kernel, which takes longer than all else.
        """
        info = matching(options.device)[0]
        if info.type != "cpu":
            return  # it may be for one process at a time
        likely = likely_on(info.type, Path("/proc/cpuinfo").read_text().split())
        isa = granted(frozenset(n for n in likely if not {n, "all"} & {*options.exclude_isa}))
        device = Device(info, options.profiling, isa, options.profile)
        if len(graphs) > 1:
            self._as_one_kernel_each(options, device, graphs)
            return
        bench = DeviceBench(device, Kernels(device, Guessing()))
        target = target_of(device, installed_rules())
        for node in reversed(plain_nodes(infer(graphs[0]).nodes)):
            with contextlib.suppress(DelegateError):
                bench.warm_up(compiler.first_choice(node, target, bench.check))

    def _as_one_kernel_each(
        self, options: Options, device: Device, graphs: Sequence[Graph]
    ) -> None:
        """Compile graphs as `engine` will where nothing was measured."""
        engine = Engine(options, lambda *_: Guessing(), device)
        engine.chooser.go_on({}, 0.0)
        target = engine.target(installed_rules())
        # Nobody listens: a pipe that is full would hold this process.
        with progress.told_to(lambda *_: None), contextlib.suppress(DelegateError):
            for graph in map(infer, graphs):
                if not {*options.exclude_ops} & {node.op for node in graph.nodes}:
                    engine.executor(partition_of(graph, range(len(graph.nodes))), target).close()

    def engine(
        self,
        same: tuple[str, Options],
        request: Sequence[Any],
        done: dict[Trial, str],
        left_out: dict[Trial, str],
        state: State,
    ) -> State:
        """Do what the parent's engine is about to do; return the chooser's state."""
        if self._engine is None or same != self._same or not self._told.knows(done, left_out):
            if self._engine is not None:
                self._engine.close()
            identity, options = same
            self._found(options.device, identity)
            self._told = told = Told(done, left_out, self._tell)
            self._engine, self._same = Engine(options, lambda *_: told), same
        engine, (call, *arguments) = self._engine, request
        engine.chooser.go_on(*state)
        try:
            if call == "executor":
                engine.executor(*arguments).close()
            else:
                getattr(engine, call)(*arguments)  # "target", "verdicts"
        except DelegateError as error:
            _log.debug("in a child process: %s", error)  # the parent meets it itself
        return engine.chooser.state()

    def _found(self, index: str | int | None, identity: str) -> DeviceInfo:
        """Return the device that the parent means."""
        info = matching(index)[0]
        if info.identity != identity:
            raise DeviceError(f"device {index} is now {info.identity}")
        return info


if __name__ == "__main__":
    sys.exit(main())
