# SPDX-License-Identifier: Apache-2.0
"""How many bytes the arguments of a kernel take: some devices limit them to a few."""

from __future__ import annotations

import re

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.runtime.context import opencl

_POINTER_BYTES = 8  # of an argument; half of it where addresses have 32 bits
POINTERS_BYTES = 2 * _POINTER_BYTES  # of what a kernel takes beside its block: arena, constants
_BLOCK = re.compile(r"block_of_(\d+)")  # the type in kernel.clh


def block_bytes(fields: int) -> int:
    """Return the bytes of a launch's block of params as an argument: two ints before its fields."""
    return 4 * (2 + fields)


def argument_bytes(kernel: cl.Kernel) -> int:
    """Return the bytes of all arguments; the kernel was built with -cl-kernel-arg-info."""
    info, private = cl.kernel_arg_info, cl.kernel_arg_address_qualifier.PRIVATE
    size = 0
    with opencl(f"clGetKernelArgInfo {kernel.function_name}"):
        for number in range(kernel.num_args):
            name = kernel.get_arg_info(number, info.TYPE_NAME)
            is_value = kernel.get_arg_info(number, info.ADDRESS_QUALIFIER) == private
            size += _size_of(name) if is_value and not name.endswith("*") else _POINTER_BYTES
    return size


def _size_of(type_name: str) -> int:
    """Return a private argument's bytes by its type's name.

    Raises:
        DeviceError: it is a structure of another's, whose size no driver tells.
    """
    if block := _BLOCK.search(type_name):
        return block_bytes(int(block[1]))
    found = re.fullmatch(r"u?(char|short|int|long|half|float|double)(|2|3|4|8|16)", type_name)
    if found is None:
        raise DeviceError(f"an argument of type {type_name}: its bytes cannot be told")
    size = {"char": 1, "short": 2, "half": 2, "long": 8, "double": 8}.get(found[1], 4)
    return size * {"": 1, "3": 4}.get(found[2], int(found[2] or 1))
