# SPDX-License-Identifier: Apache-2.0
"""Kernel source + defines -> built program, kept in memory and on disk. Knows files, not ops."""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections.abc import Iterable, Sequence

import pyopencl as cl

from delegate import cache as disk_cache
from delegate.errors import DeviceError, KernelBuildError, KilledChild
from delegate.graph.verdict import Loss
from delegate.isa import OWN_BUILTINS
from delegate.launch import Launch
from delegate.runtime import forbidden
from delegate.runtime.context import is_lost, opencl
from delegate.runtime.device import Device
from delegate.runtime.sources import chosen_of, defines_of, may_be_argument, source_for
from delegate.sandbox import process
from delegate.sandbox.trials import (
    BINARY,
    BINARY_OF,
    BUILD,
    CHECK,
    DONE,
    KERNEL,
    REFUSED,
    RUN,
    SOURCE,
    Free,
    Trial,
)
from delegate.store import FACTS, Store

OPTIONS = ["-cl-std=CL1.2"]
# builtins.clh in place of clang's header, whose guard is defined. NOTE: PoCL 3.1 reads its
# 18,000 lines for each program: 0.08 s of 0.1.
_OWN_BUILTINS = ["-D_OPENCL_H_", "-DOWN_BUILTINS"]
_BUILDS = 4  # that tell whether a driver keeps what it compiled
LONG_SECONDS = 0.02  # if getting a binary takes longer, the driver is compiling
# For getting such binaries, an opened device; later starts get the others.
ASKING_SECONDS = 1.0
_KEEPS = "driver keeps what it compiled"
_log = logging.getLogger("delegate")


class Kernels:
    """The kernels of one opened device; their programs belong to its context."""

    def __init__(self, device: Device, trials: Free | None = None) -> None:
        """`trials`: what may be built here, and run."""
        self.trials = trials or Free()
        self._device = device
        self._builds: dict[str, Trial] = {}  # by source
        self._told: set[str] = set()  # sources of the failures that were logged
        self._store = Store(device.identity)
        # Whether the driver itself keeps what it compiled; None: no binary has taken long yet.
        self._driver_keeps: object = self._store.load(FACTS).get(_KEEPS)
        self._seconds_left = ASKING_SECONDS

    @property
    def _cl_context(self) -> cl.Context:
        return self._device.context.cl_context

    def build(self, launch: Launch) -> cl.Program:
        """Return the built program of a launch.

        Raises:
            KernelBuildError: the driver refuses it, now or on an earlier call.
            KilledChild: children died of it. DeviceError: the device is lost.
        """
        chosen = chosen_of(defines_of(launch, self.is_argument(launch)))
        return self.source(launch.file, self.source_of(launch), chosen)

    def is_argument(self, launch: Launch) -> bool:
        """Whether the launch's block of params is an argument of its kernel."""
        return may_be_argument(launch, self._device.proven, self._device.max_argument_bytes)

    def source_of(self, launch: Launch) -> str:
        """Return what the driver compiles for a launch, before what its profile forbids."""
        return source_for(launch, self.is_argument(launch))

    def source(self, file: str, source: str, chosen: dict[str, str]) -> cl.Program:
        """Return a built program by its text; `chosen` tells people which; raises as `build`."""
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
        if source not in self._told and not self.trials.tells:
            self._told.add(source)
            _log.warning("%s; the driver's log:\n%s", failed, failed.log)
        # A new one each time: an error that was raised keeps alive all that its frames refer to.
        raise KernelBuildError(failed.file, failed.defines, failed.log)

    def _load_or_build(self, file: str, source: str) -> cl.Program:
        build = self.build_of(file, source)
        name = f"programs/{build.build}.bin"
        with self.trials.of(build) as under_way:
            if under_way.how == SOURCE:  # in a child, which may not have asked for a binary
                return self._compiled(file, source)
            binary = disk_cache.load(name)
            if (program := self._from_binary(file, binary)) is not None:
                under_way.how = BINARY
                return program
            if not (is_gone := under_way.how == BINARY):
                under_way.how = SOURCE
                program = self._compiled(file, source)
        if is_gone:  # since a child made it
            self.trials.forget(build)
            return self._load_or_build(file, source)
        if self._driver_keeps and build.is_of_a_model:
            return program  # NOTE: PoCL takes 5 s for a language model's, and saves 0.1 a start
        if self._driver_keeps and (binary is None or self._seconds_left <= 0):
            disk_cache.store(name, b"")  # a later start asks: it has less to do
            return program
        return self._with_binary(program, file, source, build)

    def _from_binary(self, file: str, binary: bytes | None) -> cl.Program | None:
        """Return what a binary holds, built; None: there is none, or the driver refuses it."""
        if not binary:
            return None
        try:
            with opencl("clCreateProgramWithBinary"):
                program = cl.Program(self._cl_context, [self._device.cl_device], [binary])
            return self._compile(program, file)
        except DeviceError:
            return None  # a driver may refuse its own old binary: build it again

    def _with_binary(self, program: cl.Program, file: str, source: str, build: Trial) -> cl.Program:
        """Store a program's binary; return the program to use."""
        name = f"programs/{build.build}.bin"
        try:
            with self.trials.of(build._replace(kind=BINARY_OF)):
                binary = self._binary_of(program, file, source)
                if not (binary and disk_cache.store(name, binary) and self.trials.tells):
                    return program
                # Who repeats this begins with the binary, so it is what is tried here.
                loaded = self._from_binary(file, binary)
        except DeviceError:
            return program  # a driver without binaries: it builds at each start
        if loaded is not None:
            self.trials.note(build, BINARY)
        return loaded or program

    def _binary_of(self, program: cl.Program, file: str, source: str) -> bytes | None:
        """Return a program's binary; raises DeviceError."""
        begin = time.perf_counter()
        with opencl("clGetProgramInfo"):
            binaries = program.get_info(cl.program_info.BINARIES)
        asked = time.perf_counter() - begin
        self._seconds_left -= asked
        if self._driver_keeps is None and asked > LONG_SECONDS:
            self._driver_keeps = self._is_kept(asked, file, source)
            self._store.save(FACTS, {_KEEPS: self._driver_keeps})
        return binaries[0] if binaries else None

    def _is_kept(self, asked: float, file: str, source: str) -> bool:
        """Whether a driver that took so many seconds for a binary builds it again in far less.

        NOTE: for a binary PoCL compiles for work-groups of any size, and before the first run again
        for those that run. It keeps the second on disk; the first saves later starts its front end.
        """
        for _ in range(_BUILDS):  # other work on the machine may have made one of them slow
            begin = time.perf_counter()
            self._compiled(file, source)
            if time.perf_counter() - begin < asked / 2:
                return True
        return False

    def build_of(self, file: str, source: str) -> Trial:
        """Return the trial to build a source, with a digest of all it is compiled from and for."""
        if source not in self._builds:
            facts = (self._device.identity, *self.options(file))
            whole = "\0".join((*facts, forbidden.lines(self._device.profile) + source)).encode()
            self._builds[source] = Trial(BUILD, file, hashlib.sha256(whole).hexdigest()[:40])
        return self._builds[source]

    def trial(self, kind: str, launch: Launch, batch: int = 1) -> Trial:
        """Return a trial of a launch's kernel."""
        _, name, digest, *_ = self.build_of(launch.file, self.source_of(launch))
        return Trial(kind, name, digest, launch.kernel, (launch.tiles * batch, launch.group_items))

    def runs(self, launches: Iterable[Launch], batch: int) -> list[Trial]:
        """Return the trials to run launches once."""
        return [self.trial(RUN, launch, batch) for launch in launches]

    def _own_options(self, file: str) -> list[str]:
        if self._device.profile is not None:
            return forbidden.options(self._device.profile)
        # More groups on a unit hide what loads wait for; the persistent kernel has one group there.
        with opencl("clGetDeviceInfo"):
            has_option = "cl_nv_compiler_options" in self._device.cl_device.extensions.split()
        is_one = file.startswith("runtime_persistent")
        return ["-cl-nv-maxrregcount=128"] if has_option and not is_one else []

    def _compiled(self, file: str, source: str, more_options: Sequence[str] = ()) -> cl.Program:
        """Return the program of a source, built; raises DeviceError, whose text is the log."""
        limited = forbidden.lines(self._device.profile) + source
        return self._compile(cl.Program(self._cl_context, limited), file, more_options)

    def _compile(
        self, program: cl.Program, file: str, more_options: Sequence[str] = ()
    ) -> cl.Program:
        with warnings.catch_warnings():
            # pyopencl warns of every remark of the compiler; tests/kernels reads the log itself.
            warnings.simplefilter("ignore")
            try:
                # Asked before the build, pyopencl leaves out its cache, which knows no versions of
                # drivers, and its copy of a source that fails, in the temporary folder.
                with opencl("clGetProgramInfo"):
                    program.get_info(cl.program_info.REFERENCE_COUNT)
                with process.Inside():
                    options = [*self.options(file), *more_options]
                    return program.build(options=options, cache_dir=False)
            except cl.Error as error:
                raise DeviceError(_log_of(program, self._device) or str(error)) from error

    def anew(
        self, file: str, source: str, more_options: Sequence[str] = ()
    ) -> tuple[cl.Program, str]:
        """Build a source whatever was built before; return the program and the driver's log.

        Raises:
            DeviceError: the driver refuses it; its text is the log.
        """
        program = self._compiled(file, source, more_options)
        return program, _log_of(program, self._device)

    def options(self, file: str) -> list[str]:
        """Return the options that a file's programs are built with."""
        own = _OWN_BUILTINS if OWN_BUILTINS in self._device.proven else []
        return [*OPTIONS, *own, *self._own_options(file)]

    def kernel(self, launch: Launch) -> tuple[cl.Kernel, int]:
        """Return a kernel object of the launch's own and the work-group size it can run at.

        Raises:
            KernelBuildError: as `build`. DeviceError: the driver cannot make the kernel, or it
                cannot run within the device's or its profile's limits.
        """
        kernel, limit = self.made(self.build(launch), self.trial(KERNEL, launch))
        return kernel, max(1, min(launch.group_items, limit))

    def made(self, program: cl.Program, trial: Trial) -> tuple[cl.Kernel, int]:
        """Return a kernel object, and the largest work-group that it can run at; `trial`: of it.

        Raises:
            DeviceError: as `kernel`.
        """
        with self.trials.of(trial):
            with opencl(f"clCreateKernel {trial.kernel}"):
                kernel = cl.Kernel(program, trial.kernel)
            return kernel, self._device.group_limit(kernel)

    def check(self, launches: Iterable[Launch]) -> str | None:
        """Return why these launches cannot run on this device, or None.

        A Loss where that is because children died of them.

        Raises:
            DeviceError: the device is lost.
        """
        for launch in launches:
            checked = self.trial(CHECK, launch)
            if self.trials.known(checked) == DONE or self.trials.awaits(checked):
                continue
            try:
                self.kernel(launch)
                self.trials.note(checked, DONE)
            except (DeviceError, KernelBuildError) as error:
                if is_lost(error):
                    raise
                if isinstance(error, KilledChild):
                    return Loss(error)
                self.trials.note(checked, REFUSED)
                return str(error)
        return None


def _log_of(program: cl.Program, device: Device) -> str:
    try:
        return str(program.get_build_info(device.cl_device, cl.program_build_info.LOG)).strip()
    except cl.Error:
        return ""
