# SPDX-License-Identifier: Apache-2.0
"""`python -m delegate.guard.replay_child`: makes and runs reproducers, each of which may end it.

A request is pickled: `open` with the device, then `make` and `replay`, as often as wanted.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from typing import Any

from delegate.errors import DelegateError, Unsupported
from delegate.guard.children.channel import serving
from delegate.guard.probing.opening import open_device
from delegate.options import Options
from delegate.plan.layout import Bytes
from delegate.plan.planners.node_reproducer import (
    alternatives_of,
    node_reproducer,
    target_on,
)
from delegate.plan.reproducer import Replay, Reproducer
from delegate.run import replay
from delegate.run.device import Device
from delegate.run.device_list import DeviceInfo, matching


class _Child:
    """An opened device, and its target."""

    def open(self, options: Options) -> DeviceInfo:
        """Open the device; return what it reports."""
        self._device = open_device(options)
        self._target = target_on(self._device)
        return self._device.info

    def open_bare(self, options: Options) -> DeviceInfo:
        """Open the device without its self-tests, for `replay` alone."""
        self._device = Device(matching(options.device)[0])
        return self._device.info

    def alternatives(self, model: bytes) -> list[tuple[str, tuple[str, ...]]]:
        """Return the alternatives of a small model, with their kernel files."""
        return alternatives_of(model, self._target)

    def make(
        self, model: bytes, inputs: Sequence[Bytes], alternative: str | None, how: dict[str, bool]
    ) -> Reproducer:
        """Return the calls of a small model; arguments as `node_reproducer`."""
        return node_reproducer(model, inputs, self._device, self._target, alternative, **how)

    def replay(self, given: Reproducer) -> Replay:
        """Run them."""
        return replay.replayed(self._device, given)


def main() -> int:
    """Answer requests until the parent is gone; return the exit code."""
    child = _Child()
    with serving() as parent:
        for request in parent.messages():
            method, arguments = pickle.loads(request["payload"])
            answer: Any
            try:
                answer = getattr(child, method)(*arguments)
            except (DelegateError, Unsupported) as error:
                parent.send(refusal=str(error))
            else:
                parent.send(pickle.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
