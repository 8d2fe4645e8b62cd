# SPDX-License-Identifier: Apache-2.0
"""Kernel source + defines -> built program, kept in memory and on disk. Knows files, not ops."""

from __future__ import annotations

import hashlib
import logging
import re
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pyopencl as cl

from delegate import cache as disk_cache
from delegate import process
from delegate.errors import DeviceError, KernelBuildError
from delegate.launch import Launch
from delegate.runtime import forbidden
from delegate.runtime.context import is_lost, opencl
from delegate.runtime.device import Device

OPTIONS = ["-cl-std=CL1.2"]
_LONG_SECONDS = 0.02  # if getting a binary takes longer, the driver is compiling
# For getting such binaries, an opened device; later starts get the others.
_ASKING_SECONDS = 1.0
_log = logging.getLogger("delegate")
_INCLUDE = re.compile(r'^#include "(\w+\.clh)"$', re.MULTILINE)


@cache
def folder() -> Path:
    """Return where the .cl files are: inside the installed package, else in the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


@cache
def _text(file: str) -> str:
    # Includes are put in here: not every driver can open files, and the cache key sees them.
    text = (folder() / file).read_text()
    return _INCLUDE.sub(lambda match: _text(match[1]), text)


def defines_of(launch: Launch) -> dict[str, str]:
    """Return every macro a launch is built with; a field of `params` is a load from its place."""
    fields = {name.upper(): f"(params[{i}])" for i, name in enumerate(launch.params)}
    chosen = {name: str(value) for name, value in launch.defines.items()}
    return {f"USES_{launch.kernel.upper()}": "1", **chosen, **fields}


def source_of(file: str, defines: Mapping[str, str]) -> str:
    """Return what the driver compiles; macros are lines, as drivers parse options differently."""
    lines = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    return f'{lines}#line 1 "{file}.cl"\n{_text(f"{file}.cl")}'


class Kernels:
    """The kernels of one opened device; their programs belong to its context."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._told: set[str] = set()  # sources of the failures that were logged
        identity = hashlib.sha256(device.identity.encode()).hexdigest()[:40]
        self._keeping = f"devices/{identity}-keeping"
        known = disk_cache.load(self._keeping)
        # Whether the driver itself keeps what it compiled; None: no binary has taken long yet.
        self._driver_keeps = {b"yes": True, b"no": False}.get(known or b"")
        self._seconds_left = _ASKING_SECONDS

    @property
    def _cl_context(self) -> cl.Context:
        return self._device.context.cl_context

    def build(self, launch: Launch) -> cl.Program:
        """Return the built program of a launch.

        Raises:
            KernelBuildError: the driver refuses it, now or on an earlier call.
            DeviceError: the device is lost.
        """
        return self.program(launch.file, defines_of(launch))

    def program(self, file: str, defines: Mapping[str, str]) -> cl.Program:
        """Return a built program by file and macros; raises as `build`."""
        # The macros a person chose; the fields' places say nothing.
        chosen = {n: v for n, v in defines.items() if not v.startswith("(params")}
        return self.source(file, source_of(file, defines), chosen)

    def source(self, file: str, source: str, chosen: dict[str, str]) -> cl.Program:
        """Return a built program by its text; `chosen` tells people which; raises as `build`."""
        context = self._device.context
        with context.lock:
            if source not in context.programs and source not in context.failures:
                try:
                    context.programs[source] = self._load_or_build(file, source)
                except DeviceError as error:
                    if is_lost(error):
                        raise
                    log = self._explained(str(error))
                    context.failures[source] = KernelBuildError(f"{file}.cl", chosen, log)
            failed = context.failures.get(source)
            if failed is None:
                return context.programs[source]
        if source not in self._told:
            self._told.add(source)
            _log.warning("%s; the driver's log:\n%s", failed, failed.log)
        # A new one each time: an error that was raised keeps alive all that its frames refer to.
        raise KernelBuildError(failed.file, failed.defines, failed.log)

    def _explained(self, log: str) -> str:
        profile = self._device.profile
        limit = None if profile is None else forbidden.broken(log, profile)
        return log if limit is None else f"error: {limit}\n{log}"

    def _load_or_build(self, file: str, source: str) -> cl.Program:
        source = self._limited(source)
        identity = "\0".join((self._device.identity, *self.options(file), source))
        name = f"programs/{file}-{hashlib.sha256(identity.encode()).hexdigest()[:40]}.bin"
        binary = disk_cache.load(name)
        if binary:
            try:
                with opencl("clCreateProgramWithBinary"):
                    program = cl.Program(self._cl_context, [self._device.cl_device], [binary])
                return self._compile(program, file)
            except DeviceError:
                pass  # a driver may refuse its own old binary: build it again
        program = self._compile(cl.Program(self._cl_context, source), file)
        if self._driver_keeps and (binary is None or self._seconds_left <= 0):
            disk_cache.store(name, b"")  # a later start asks: it has less to do
        else:
            self._keep(program, file, source, name)
        return program

    def _keep(self, program: cl.Program, file: str, source: str, name: str) -> None:
        """Store a program's binary."""
        begin = time.perf_counter()
        try:
            with opencl("clGetProgramInfo"):
                binaries = program.get_info(cl.program_info.BINARIES)
        except DeviceError:
            return  # a driver without binaries: it builds at each start
        asked = time.perf_counter() - begin
        self._seconds_left -= asked
        if binaries and binaries[0]:
            disk_cache.store(name, binaries[0])
        if self._driver_keeps is None and asked > _LONG_SECONDS:
            self._driver_keeps = self._is_kept(asked, file, source)
            disk_cache.store(self._keeping, b"yes" if self._driver_keeps else b"no")

    def _is_kept(self, asked: float, file: str, source: str) -> bool:
        """Whether a driver that took so many seconds for a binary builds it again in far less.

        NOTE: for a binary PoCL compiles for work-groups of any size, and before the first run again
        for those that run. It keeps the second on disk; the first saves later starts its front end.
        """
        begin = time.perf_counter()
        self._compile(cl.Program(self._cl_context, source), file)
        return time.perf_counter() - begin < asked / 2

    def _limited(self, source: str) -> str:
        profile = self._device.profile
        return source if profile is None else forbidden.lines(profile) + source

    def _own_options(self, file: str) -> list[str]:
        if self._device.profile is not None:
            return forbidden.options(self._device.profile)
        # More groups on a unit hide what loads wait for; the persistent kernel has one group there.
        with opencl("clGetDeviceInfo"):
            has_option = "cl_nv_compiler_options" in self._device.cl_device.extensions.split()
        return ["-cl-nv-maxrregcount=128"] if has_option and file != "runtime_persistent" else []

    def _compile(
        self, program: cl.Program, file: str, more_options: Sequence[str] = ()
    ) -> cl.Program:
        with warnings.catch_warnings():
            # pyopencl warns of every remark of the compiler; tests/kernels reads the log itself.
            warnings.simplefilter("ignore")
            try:
                # Our cache is keyed by driver version and checksummed; pyopencl's is not.
                with process.Inside():
                    options = [*self.options(file), *more_options]
                    return program.build(options=options, cache_dir=False)
            except cl.Error as error:
                raise DeviceError(_log_of(program, self._device) or str(error)) from error

    def log(self, file: str, source: str) -> str:
        """Return the driver's log of building a source, which is not kept; raises as `anew`."""
        return self.anew(file, source)[1]

    def anew(
        self, file: str, source: str, more_options: Sequence[str] = ()
    ) -> tuple[cl.Program, str]:
        """Build a source whatever was built before; return the program and the driver's log.

        Raises:
            DeviceError: the driver refuses it; its text is the log.
        """
        program = cl.Program(self._cl_context, self._limited(source))
        program = self._compile(program, file, more_options)
        return program, _log_of(program, self._device)

    def options(self, file: str) -> list[str]:
        """Return the options that a file's programs are built with."""
        return [*OPTIONS, *self._own_options(file)]

    def kernel(self, launch: Launch) -> tuple[cl.Kernel, int]:
        """Return a kernel object of the launch's own and the work-group size it can run at.

        Raises:
            KernelBuildError: as `build`. DeviceError: the driver cannot make the kernel, or it
                cannot run within the device's or its profile's limits.
        """
        program = self.build(launch)
        with opencl(f"clCreateKernel {launch.kernel}"):
            kernel = cl.Kernel(program, launch.kernel)
        return kernel, max(1, min(launch.group_items, self._device.group_limit(kernel)))

    def check(self, launches: Iterable[Launch]) -> str | None:
        """Return why these launches cannot run on this device, or None.

        Raises:
            DeviceError: the device is lost.
        """
        for launch in launches:
            try:
                self.kernel(launch)
            except (DeviceError, KernelBuildError) as error:
                if isinstance(error, DeviceError) and is_lost(error):
                    raise
                return str(error)
        return None


def _log_of(program: cl.Program, device: Device) -> str:
    try:
        return str(program.get_build_info(device.cl_device, cl.program_build_info.LOG)).strip()
    except cl.Error:
        return ""
