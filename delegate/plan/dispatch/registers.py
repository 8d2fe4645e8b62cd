# SPDX-License-Identifier: Apache-2.0
"""Register budget of a work-item, queried from the compiler without running anything."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pyopencl as cl

from delegate.errors import DeviceError, KernelBuildError
from delegate.graph.ir import Tensor
from delegate.guard.children.trials import DONE, REGISTERS, Trial
from delegate.guard.store import FACTS, Store
from delegate.launch import Launch
from delegate.plan.dispatch.kernels import Kernels
from delegate.run.context import is_lost, opencl
from delegate.run.device import Device

_OPTION = "-cl-nv-maxrregcount="  # NVIDIA's, in the kernels' own options
_MOST_ITEMS = 1 << 16  # so that the kernel's own limit applies
_VECTORS = (1, 4, 6, 8, 12, 16, 24)  # of four values; runtime_registers.cl has their macros


def registers(device: Device, kernels: Kernels) -> int:
    """Return how many 32-bit values a work-item is certain to keep in registers.

    The most that a small kernel holds without private memory. A compiler that shrinks the groups
    and never reports private memory may still spill (Mesa's v3d): for such a one, what it holds
    at the largest group size. 0: unknown.

    Raises:
        DeviceError: the device is lost.
    """
    profile = device.profile
    own = 0 if device.type == "cpu" else _query_compiler(device, kernels)
    known = [own] if profile is None else [own, profile.registers]
    return min((each for each in known if each), default=0)


def registers_launch(vectors: int) -> Launch:
    """Return a launch of runtime_registers.cl."""
    answer = Tensor(0, "answer", (1,), "float32")
    return Launch(
        "runtime_registers",
        "runtime_registers",
        tiles=1,
        group_items=_MOST_ITEMS,
        params={"rounds": 1, "answer": answer},
        reads=(),
        writes=(answer,),
        defines={"VECTORS": vectors},
    )


def _query_compiler(device: Device, kernels: Kernels) -> int:
    if any(option.startswith(_OPTION) for option in kernels.programs.options("runtime_registers")):
        return 0  # this compiler is given a limit, and the block sizes were measured with it
    launches = [registers_launch(vectors) for vectors in _VECTORS]
    sources = [kernels.source_of(launch) for launch in launches]
    store, digest = Store(device.identity), hashlib.sha256("\0".join(sources).encode()).hexdigest()
    name = f"registers, by {digest[:16]}"
    stored = store.load(FACTS).get(name)
    if isinstance(stored, int):
        return stored
    trials, trial = kernels.trials, Trial.of(REGISTERS, device.identity, digest)
    found = _measure(device, kernels, launches)
    if found is not None:
        store.save(FACTS, {name: found})
    trials.note(trial, DONE)
    return found or 0


def _measure(device: Device, kernels: Kernels, launches: Sequence[Launch]) -> int | None:
    """Return what the compiler reports; None: it cannot be queried."""
    measured: list[tuple[int, int, int]] = []  # values, private bytes, work-group limit
    for vectors, launch in zip(_VECTORS, launches, strict=True):
        try:
            kernel, items = kernels.kernel(launch)
            with opencl("clGetKernelWorkGroupInfo"):
                private = kernel.get_work_group_info(
                    cl.kernel_work_group_info.PRIVATE_MEM_SIZE, device.cl_device
                )
        except (DeviceError, KernelBuildError) as error:
            if is_lost(error):
                raise
            return None
        measured.append((4 * vectors, private, items))
    return most_registers(measured)


def most_registers(measured: list[tuple[int, int, int]]) -> int:
    """Return the values held, from (values, private bytes, work-group limit), ascending."""
    _, least_bytes, most_items = measured[0]
    in_registers = [values for values, private, _ in measured if private == least_bytes]
    whole = [values for values, _, items in measured if items == most_items]
    is_silent = len(in_registers) == len(measured) > len(whole)
    return max(whole if is_silent else in_registers)
