# SPDX-License-Identifier: Apache-2.0
"""Programs of an opened device: compiled from a source, or loaded from a binary in the cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.guard import cache as disk_cache
from delegate.guard.children import process
from delegate.isa import OWN_BUILTINS
from delegate.plan.record import ProgramPlan
from delegate.run import forbidden
from delegate.run.context import opencl
from delegate.run.device import Device

OPTIONS = ["-cl-std=CL1.2"]
# builtins.clh in place of clang's header, whose include guard is defined. NOTE: PoCL 3.1 parses
# its 18,000 lines for each program: 0.08 of 0.1 s.
_OWN_BUILTINS = ["-D_OPENCL_H_", "-DOWN_BUILTINS"]


BinaryOf = Callable[[str, str], bytes | None]


class MissingBinary(DeviceError):
    """The binary of a planned program is no longer in the cache."""


def binary_name(file: str, digest: str) -> str:
    """Return the name of a program's binary in the cache."""
    return f"programs/{file}-{digest}.bin"


def _of_cache(file: str, digest: str) -> bytes | None:
    return disk_cache.load(binary_name(file, digest))


class Programs:
    """The programs of one opened device; they belong to its context."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def load(self, plan: ProgramPlan, binary_of: BinaryOf | None = None) -> cl.Program:
        """Return a program of a plan, from its binary or its source.

        `binary_of`: returns a binary by file and digest; None: looks in the cache.

        Raises:
            DeviceError: the driver rejects it. MissingBinary: its binary is gone.
        """
        context = self._device.context
        with context.lock:
            found = context.programs.get(plan.digest)
            if found is None:
                found = self._made(plan, binary_of or _of_cache)
                context.programs[plan.digest] = found
            return found

    def _made(self, plan: ProgramPlan, binary_of: BinaryOf) -> cl.Program:
        if not plan.is_binary:
            return self.compiled(plan.file, plan.source)
        program = self.from_binary(plan.file, binary_of(plan.file, plan.digest))
        if program is None:
            raise MissingBinary(f"the binary of {plan.file}.cl is gone")
        return program

    def from_binary(self, file: str, binary: bytes | None) -> cl.Program | None:
        """Return a built program from a binary; None: there is none, or the driver rejects it."""
        if not binary:
            return None
        try:
            with opencl("clCreateProgramWithBinary"):
                own = self._device.context.cl_context, [self._device.cl_device], [binary]
                program = cl.Program(*own)
            return self._built(program, file)
        except DeviceError:
            return None  # a driver may reject its own old binary: rebuild

    def compiled(self, file: str, source: str, more_options: Sequence[str] = ()) -> cl.Program:
        """Return a program built from source; raises DeviceError with the build log as text."""
        limited = forbidden.lines(self._device.profile) + source
        program = cl.Program(self._device.context.cl_context, limited)
        return self._built(program, file, more_options)

    def _built(
        self, program: cl.Program, file: str, more_options: Sequence[str] = ()
    ) -> cl.Program:
        return build(self._device, program, [*self.options(file), *more_options])

    def options(self, file: str) -> list[str]:
        """Return the build options of a file's programs."""
        own = _OWN_BUILTINS if OWN_BUILTINS in self._device.proven else []
        return [*OPTIONS, *own, *self._own_options(file)]

    def _own_options(self, file: str) -> list[str]:
        if self._device.profile is not None:
            return forbidden.options(self._device.profile)
        # More groups per unit hide load latency; the persistent kernel runs one group per unit.
        with opencl("clGetDeviceInfo"):
            has_option = "cl_nv_compiler_options" in self._device.cl_device.extensions.split()
        is_one = file.startswith("runtime_persistent")
        return ["-cl-nv-maxrregcount=128"] if has_option and not is_one else []

    def log_of(self, program: cl.Program) -> str:
        """Return the build log of a program; "" if the driver has none."""
        return _log_of(self._device, program)


def build(device: Device, program: cl.Program, options: Sequence[str]) -> cl.Program:
    """Return the built program; raises DeviceError with the build log as text."""
    with warnings.catch_warnings():
        # pyopencl warns about any compiler output; tests/kernels reads the log itself.
        warnings.simplefilter("ignore")
        try:
            # Querying first makes pyopencl bypass its cache, which ignores driver versions,
            # and its dump of a failing source to the temporary folder.
            with opencl("clGetProgramInfo"):
                program.get_info(cl.program_info.REFERENCE_COUNT)
            with process.ProtectedCall():
                return program.build(options=[*options], cache_dir=False)
        except cl.Error as error:
            raise DeviceError(_log_of(device, program) or str(error)) from error


def _log_of(device: Device, program: cl.Program) -> str:
    try:
        wanted = cl.program_build_info.LOG
        return str(program.get_build_info(device.cl_device, wanted)).strip()
    except cl.Error:
        return ""
