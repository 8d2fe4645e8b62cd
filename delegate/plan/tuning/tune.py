# SPDX-License-Identifier: Apache-2.0
"""Alternatives of a node -> the fastest correct one on this device.

Candidates are compared before they are timed: an alternative that a driver miscompiles is dropped
with a warning. The device is only accessed through `DeviceBench`.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from delegate.errors import DeviceError, KernelBuildError, Unsupported
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Launch, first_that_runs
from delegate.plan.lowering.lowering_cache import LoweringCache
from delegate.plan.tuning.bench import DeviceBench, Reference
from delegate.plan.tuning.chooser import FULL, ROUNDS, Choice, Chooser

_NONE = ""  # cached for a node whose alternatives are all wrong
_log = logging.getLogger("delegate")


class Tuner:
    """Chooses among the alternatives of nodes.

    Attributes:
        has_unmeasured: whether some choice was neither cached nor measured since it was reset.
    """

    def __init__(self, chooser: Chooser, bench: DeviceBench, forced: str | None = None) -> None:
        """`forced`: the alternative to choose, without measuring, for nodes that have it."""
        self._chooser = chooser
        self._bench = bench
        self._forced = forced
        self.has_unmeasured = False

    def choose(
        self,
        node: Node,
        alternatives: Sequence[Alternative],
        batch: int = 1,
        reference: Reference = lambda node, inputs: None,
        lowered: LoweringCache | None = None,
        origin: str = "",
    ) -> Alternative:
        """Return the alternative to run; without measuring, the first one that is supported.

        `reference`: see `DeviceBench.are_correct`. `lowered`: identifies equal nodes.
        `origin`: identifies the part of a graph, independent of shapes; "": unknown.
        Raises:
            Unsupported: none can run, for the fallback's reason, or all are wrong.
        """
        for each in alternatives:
            if each.name == self._forced and self._bench.check(each) is None:
                return each
        if len(alternatives) > 1:
            names = [*(each.name for each in alternatives), _NONE]
            known_nodes = LoweringCache() if lowered is None else lowered
            own = known_nodes.fingerprint(
                node, lambda: fingerprint(alternatives, self._bench.source_of)
            )
            known = self._chooser.choose(
                Choice(
                    f"{own}x{batch}",
                    names,
                    subject=(origin, node.op, node.index, batch, *names) if origin else (),
                    size=sum(math.prod(tensor.shape) for tensor in node.outputs),
                ),
                lambda: self._measure(node, alternatives, batch, reference),
            )
            self.has_unmeasured |= known is None
            if known == _NONE:
                raise Unsupported("this device computes it wrongly")
            alternatives = sorted(alternatives, key=lambda each: each.name != known)
        return first_that_runs(alternatives, self._bench.check)

    def _measure(
        self, node: Node, alternatives: Sequence[Alternative], batch: int, reference: Reference
    ) -> str | None:
        is_patient = self._chooser.mode == FULL
        able = [each for each in alternatives if self._bench.check(each) is None]
        try:
            right = self._correct(node, able, reference)
            if not right:
                return _NONE if able else None
            able = [each for each in right if each is not alternatives[-1]] or right
            is_fused = is_patient and batch == 1
            # For batches, time specialised kernels: their register use differs.
            is_specialised = is_patient and batch > 1
            timed = [each.specialised() for each in able] if is_specialised else able
            rounds = ROUNDS[self._chooser.mode]
            best, times = self._bench.fastest(timed, rounds, batch, is_fused)
        except (DeviceError, KernelBuildError) as error:
            _log.info("node %d (%s) was not tuned: %s", node.index, node.op, error)
            return None
        _log.debug(
            "node %d (%s): %s", node.index, node.op,
            ", ".join(f"{a.name} {t * 1e6:.0f} us" for a, t in zip(able, times, strict=True)),
        )  # fmt: skip
        return able[best].name

    def _correct(
        self, node: Node, able: Sequence[Alternative], reference: Reference
    ) -> list[Alternative]:
        """Return those that compute correctly; no alternative is trusted more than another."""
        if len(able) < 2:
            return [*able]
        found = [*zip(able, self._bench.are_correct(node, able, reference), strict=True)]
        for each, is_right in found:
            if not is_right:
                _log.warning(
                    "node %d (%s): '%s' computes wrongly on this device and is not used",
                    node.index, node.op, each.name,
                )  # fmt: skip
        return [each for each, is_right in found if is_right]


def fingerprint(alternatives: Sequence[Alternative], source_of: Callable[[Launch], str]) -> str:
    """Return a key shared by nodes that run equally fast: kernels, sizes and macros."""
    digest = hashlib.sha256()
    for alternative in alternatives:
        digest.update(alternative.name.encode())
        for launch in alternative.launches:
            # Plain ints do not affect speed. Tensor and constant sizes do.
            sizes = [_size(v) for v in launch.params.values() if not isinstance(v, int)]
            digest.update(repr((launch.kernel, launch.tiles, sizes)).encode())
            digest.update(_digest(source_of(launch)))
    return digest.hexdigest()[:24]


@lru_cache(1 << 12)  # launches share sources
def _digest(source: str) -> bytes:
    return hashlib.sha256(source.encode()).digest()


def _size(value: Tensor | Constant) -> object:
    return value.shape if isinstance(value, Tensor) else value.size_bytes
