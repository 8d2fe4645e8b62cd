# SPDX-License-Identifier: Apache-2.0
"""Kernel source + defines -> built program, cached in memory and on disk. Op-agnostic."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Sequence

import pyopencl as cl

from delegate.errors import DeviceError, KernelBuildError, KilledChild
from delegate.graph.verdict import KilledReason
from delegate.guard import cache as disk_cache
from delegate.guard.children.trials import (
    BINARY_OF,
    BUILD,
    CHECK,
    DONE,
    KERNEL,
    REFUSED,
    RUN,
    Trial,
    Trials,
)
from delegate.guard.store import FACTS, Store
from delegate.launch import Launch
from delegate.plan.record import ProgramPlan
from delegate.plan.sources import chosen_of, defines_of, may_be_argument, source_for
from delegate.run import forbidden
from delegate.run.context import is_lost, opencl
from delegate.run.device import Device
from delegate.run.programs import Programs, binary_name

_BUILDS = 4  # to find out whether a driver caches its builds
LONG_SECONDS = 0.02  # if getting a binary takes longer, the driver is compiling
# Budget for fetching such binaries, per opened device; later starts fetch the rest.
ASKING_SECONDS = 1.0
_KEEPS = "driver keeps what it compiled"
_log = logging.getLogger("delegate")


class Kernels:
    """The kernels of one opened device, for planning; their programs belong to its context.

    Attributes:
        trials: guards builds and runs; programs: creates the programs.
    """

    def __init__(
        self, device: Device, trials: Trials | None = None, has_binaries: bool = True
    ) -> None:
        """`trials`: guards builds and runs. `has_binaries`: the cache may have them."""
        self._has_binaries = has_binaries
        self.trials = trials or Trials()
        self.programs = Programs(device)
        self._device = device
        self._builds: dict[str, Trial] = {}  # by source
        self._logged: set[str] = set()  # sources of failures already logged
        self._store = Store(device.identity)
        # Whether the driver has its own cache; None: no binary has taken long yet.
        self._driver_caches: object = self._store.load(FACTS).get(_KEEPS)
        self._seconds_left = ASKING_SECONDS

    def build(self, launch: Launch) -> cl.Program:
        """Return the built program of a launch.

        Raises:
            KernelBuildError: the driver rejects it, now or on an earlier call.
            KilledChild: it killed children. DeviceError: the device is lost.
        """
        chosen = chosen_of(defines_of(launch, self.is_argument(launch)))
        return self.source(launch.file, self.source_of(launch), chosen)

    def is_argument(self, launch: Launch) -> bool:
        """Whether the launch's parameter block is passed as a kernel argument."""
        return may_be_argument(launch, self._device.proven, self._device.max_argument_bytes)

    def source_of(self, launch: Launch) -> str:
        """Return the source of a launch, without the lines that a device profile prepends."""
        return source_for(launch, self.is_argument(launch))

    def source(self, file: str, source: str, chosen: dict[str, str]) -> cl.Program:
        """Return a built program by its source; `chosen`: its defines. Raises as `build`."""
        context, name = self._device.context, self.build_of(file, source).digest
        with context.lock:
            if name not in context.programs and name not in context.failures:
                try:
                    context.programs[name] = self._load_or_build(file, source)
                except DeviceError as error:
                    if is_lost(error) or isinstance(error, KilledChild):
                        raise
                    log = forbidden.explained(str(error), self._device.profile)
                    context.failures[name] = KernelBuildError(f"{file}.cl", chosen, log)
            failed = context.failures.get(name)
            if failed is None:
                return context.programs[name]
        if source not in self._logged:
            self._logged.add(source)
            _log.warning("%s; the driver's log:\n%s", failed, failed.log)
        # A new one each time: a raised exception keeps every frame it refers to alive.
        raise KernelBuildError(failed.file, failed.defines, failed.log)

    def _load_or_build(self, file: str, source: str) -> cl.Program:
        build = self.build_of(file, source)
        name = binary_name(build.name, build.digest)
        with self.trials.attempt(build):
            binary = disk_cache.load(name) if self._has_binaries else None
            if (program := self.programs.from_binary(file, binary)) is not None:
                self._device.context.of_binaries.add(build.digest)
                return program
            program = self.programs.compiled(file, source)
        if not self._has_binaries or (self._driver_caches and build.is_of_a_model):
            return program  # NOTE: PoCL takes 5 s for a language model's, to save 0.1 s a start
        if self._driver_caches and (binary is None or self._seconds_left <= 0):
            disk_cache.store(name, b"")  # a later start fetches it: it has less to do
            return program
        return self._with_binary(program, file, source, build)

    def _with_binary(self, program: cl.Program, file: str, source: str, build: Trial) -> cl.Program:
        """Store a program's binary; return the program to use."""
        name = binary_name(build.name, build.digest)
        try:
            with self.trials.attempt(build._replace(kind=BINARY_OF)):
                binary = self._binary_of(program, file, source)
                if not (binary and disk_cache.store(name, binary) and self.trials.reports):
                    return program
                # A repeated start begins with the binary, so the binary is what is tried here.
                loaded = self.programs.from_binary(file, binary)
        except DeviceError:
            return program  # a driver without binaries: built at each start
        if loaded is not None:
            self._device.context.of_binaries.add(build.digest)
        return loaded or program

    def _binary_of(self, program: cl.Program, file: str, source: str) -> bytes | None:
        """Return a program's binary; raises DeviceError."""
        begin = time.perf_counter()
        with opencl("clGetProgramInfo"):
            binaries = program.get_info(cl.program_info.BINARIES)
        asked = time.perf_counter() - begin
        self._seconds_left -= asked
        if self._driver_caches is None and asked > LONG_SECONDS:
            self._driver_caches = self._is_driver_cached(asked, file, source)
            self._store.save(FACTS, {_KEEPS: self._driver_caches})
        return binaries[0] if binaries else None

    def _is_driver_cached(self, asked: float, file: str, source: str) -> bool:
        """Whether a driver that took `asked` seconds for a binary rebuilds it in far less.

        NOTE: for a binary PoCL compiles for any work-group size, and before the first run again for
        the actual one. It caches the latter on disk; the former saves later starts the front end.
        """
        for _ in range(_BUILDS):  # other load may have slowed one of them down
            begin = time.perf_counter()
            self.programs.compiled(file, source)
            if time.perf_counter() - begin < asked / 2:
                return True
        return False

    def build_of(self, file: str, source: str) -> Trial:
        """Return the trial of a build, with a digest of everything that goes into it."""
        if source not in self._builds:
            facts = (self._device.identity, *self.programs.options(file))
            whole = "\0".join((*facts, forbidden.lines(self._device.profile) + source)).encode()
            self._builds[source] = Trial(BUILD, file, hashlib.sha256(whole).hexdigest()[:40])
        return self._builds[source]

    def plan_of(self, file: str, source: str) -> ProgramPlan:
        """Return how to load a program that was built here."""
        digest = self.build_of(file, source).digest
        return ProgramPlan(file, source, digest, digest in self._device.context.of_binaries)

    def trial(self, kind: str, launch: Launch, batch: int = 1) -> Trial:
        """Return a trial of a launch's kernel."""
        _, name, digest, *_ = self.build_of(launch.file, self.source_of(launch))
        return Trial(kind, name, digest, launch.kernel, (launch.tiles * batch, launch.group_items))

    def runs(self, launches: Iterable[Launch], batch: int) -> list[Trial]:
        """Return the trials to run launches once."""
        return [self.trial(RUN, launch, batch) for launch in launches]

    def rebuild(
        self, file: str, source: str, more_options: Sequence[str] = ()
    ) -> tuple[cl.Program, str]:
        """Build a source, bypassing caches; return the program and the build log.

        Raises:
            DeviceError: the driver rejects it; the text is the log.
        """
        program = self.programs.compiled(file, source, more_options)
        return program, self.programs.log_of(program)

    def kernel(self, launch: Launch) -> tuple[cl.Kernel, int]:
        """Return a new kernel object for the launch, and the work-group size to run it with.

        Raises:
            KernelBuildError: as `build`. DeviceError: the driver cannot create the kernel, or it
                exceeds the limits of the device or its profile.
        """
        kernel, limit = self.create_kernel(self.build(launch), self.trial(KERNEL, launch))
        return kernel, max(1, min(launch.group_items, limit))

    def create_kernel(self, program: cl.Program, trial: Trial) -> tuple[cl.Kernel, int]:
        """Return a kernel object and its largest work-group size; `trial`: of it.

        Raises:
            DeviceError: as `kernel`.
        """
        with self.trials.attempt(trial):
            with opencl(f"clCreateKernel {trial.kernel}"):
                kernel = cl.Kernel(program, trial.kernel)
            return kernel, self._device.group_limit(kernel)

    def check(self, launches: Iterable[Launch]) -> str | None:
        """Return why these launches cannot run on this device, or None.

        A KilledReason if they killed children.

        Raises:
            DeviceError: the device is lost.
        """
        for launch in launches:
            checked = self.trial(CHECK, launch)
            if self.trials.outcome(checked) == DONE:
                continue
            try:
                self.kernel(launch)
                self.trials.note(checked, DONE)
            except (DeviceError, KernelBuildError) as error:
                if is_lost(error):
                    raise
                if isinstance(error, KilledChild):
                    return KilledReason(error)
                self.trials.note(checked, REFUSED)
                return str(error)
        return None
