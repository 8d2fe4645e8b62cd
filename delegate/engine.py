# SPDX-License-Identifier: Apache-2.0
"""An opened device with all that turns partitions into executors on it; TFLite is not needed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from delegate import compiler
from delegate.errors import DeviceError
from delegate.graph.ir import Graph
from delegate.graph.partition import Partition
from delegate.launch import Program, Rules, Target
from delegate.probe import open_device
from delegate.runtime.bench import DeviceBench
from delegate.runtime.device import TRANSFERS, Device
from delegate.runtime.executor import Executor
from delegate.runtime.kernels import Kernels, defines_of, source_of
from delegate.tune import Tuner


class _Form(NamedTuple):
    program: Program
    as_one: bool  # all launches as one persistent launch


class Engine:
    """A device, its programs and its tuner.

    Attributes:
        device: the opened device.
    Raises:
        NoDeviceError: no device, none that matches, or none that passes its self-test.
        ValueError: `tune` is not one of its words.
    """

    def __init__(
        self,
        selector: str | int | None,
        tune: str = "quick",
        exclude_isa: Iterable[str] = (),
        profiling: bool = False,
    ) -> None:
        """Open the device; nothing is built yet.

        `exclude_isa`: instructions not to use though the device has them; "all" for every one.
        `profiling`: launches stay apart, so that each has its time.
        """
        if isinstance(exclude_isa, str):
            raise TypeError(f"exclude_isa is a list of names: ['{exclude_isa}']")
        self.device: Device = open_device(selector, profiling)
        excluded = frozenset(exclude_isa)
        self.device.proven = frozenset() if "all" in excluded else self.device.proven - excluded
        self._profiling = profiling
        self._kernels = Kernels(self.device)
        self._bench = DeviceBench(self.device, self._kernels)
        self._tuner = Tuner(
            tune,
            self.device.info.identity,
            self._bench,
            lambda launch: source_of(launch.file, defines_of(launch)),
        )
        self.device.transfer = (
            self._tuner.remembered("transfer", lambda: self._tuner.fastest(self._bench.transfers()))
            or TRANSFERS[0]
        )

    def target(self, rules: Rules) -> Target:
        """Return what lowering may know, with a runtime's arithmetic rules."""
        return Target(
            device_type=self.device.info.type,
            vector_width=self.device.vector_width,
            compute_units=self.device.compute_units,
            isa=self.device.proven,
            rules=rules,
        )

    def verdicts(
        self, graph: Graph, target: Target, exclude_ops: Collection[str] = ()
    ) -> list[compiler.Verdict]:
        """Return for each node whether it runs here."""
        return compiler.verdicts(graph, target, self._bench.check, exclude_ops)

    def executor(self, partition: Partition, target: Target, batch: int = 1) -> Executor:
        """Return a partition ready to run, in the form that measures faster.

        Raises:
            Unsupported: a node does not lower. DeviceError, KernelBuildError: it does not fit or
                build.
        """
        programs = [compiler.compile_partition(partition, target, self._tuner.choose)]
        fused = compiler.rewritten(partition, target, self._bench.check)
        if fused is not partition:
            programs.insert(0, compiler.compile_partition(fused, target, self._tuner.choose))
        try:
            return self._fastest(programs, batch)
        finally:
            self._tuner.save()

    def sibling(self, executor: Executor) -> Executor:
        """Return a second executor of the same program, with a queue and an arena of its own."""
        return self._made(executor.program, executor.batch, executor.is_persistent, executor)

    def _fastest(self, programs: Sequence[Program], batch: int) -> Executor:
        """The first of equivalent programs or the one that measures faster, in the faster form."""
        forms = [
            _Form(program, as_one)
            for program in programs
            for as_one in (False, True)
            if not (as_one and (self._profiling or len(program.launches) < 2))
        ]
        names = [f"{programs.index(each.program)} {each.as_one}" for each in forms]
        made: dict[str, Executor] = {}

        def measure() -> str | None:
            for name, form in zip(names, forms, strict=True):
                sibling = next((e for e in made.values() if e.program is form.program), None)
                try:
                    executor = self._made(form.program, batch, form.as_one, sibling)
                except DeviceError:
                    continue  # so many do not fit at once
                if executor.is_persistent == form.as_one:
                    made[name] = executor
                else:
                    executor.close()
            return self._tuner.fastest({name: each.repeat for name, each in made.items()})

        known = None
        if len(forms) > 1:
            digest = hashlib.sha256(str(batch).encode())
            for step in (step for program in programs for step in program.steps):
                digest.update(self._tuner.signature([step.alternative]).encode())
            known = self._tuner.remembered(digest.hexdigest()[:24], measure)
        name = known if known in names else names[0]
        form = forms[names.index(name)]
        chosen = made.pop(name, None) or self._made(form.program, batch, form.as_one)
        for other in made.values():
            other.close()
        return chosen

    def _made(
        self,
        program: Program,
        batch: int,
        persistent: bool = False,
        sibling: Executor | None = None,
    ) -> Executor:
        return Executor(self.device, self._kernels, program, batch, persistent, sibling)
