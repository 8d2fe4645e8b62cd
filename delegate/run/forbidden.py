# SPDX-License-Identifier: Apache-2.0
"""Enforces a device profile on kernels: forbidden identifiers, and limits of argument size.

A forbidden word is defined as an undeclared name, so that only code that is compiled fails, with
any driver, and the build log names the limit. No driver reports a kernel's argument bytes, so they
are summed from the type names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyopencl as cl

from delegate.errors import DeviceError
from delegate.isa import ASSEMBLY, INTEGER_DOT_PRODUCT, that_need
from delegate.plan.sources import POINTER_BYTES, block_bytes
from delegate.profiles import DeviceProfile
from delegate.run.context import opencl

_MARK = "device_profile_without_"
_WIDTHS = ("", "2", "3", "4", "8", "16")
_ROUNDINGS = ("", "_rte", "_rtz", "_rtp", "_rtn")
# Image types of OpenCL C 1.2, and the functions that read them.
_IMAGES = (
    *(f"image{kind}_t" for kind in ("1d", "1d_buffer", "1d_array", "2d", "2d_array", "3d")),
    "sampler_t",
)
_DOTS = (
    *("dot_acc_sat", "arm_dot", "arm_dot_acc", "arm_dot_acc_sat"),
    *("qcom_dot8_acc", "qcom_udot8_acc"),
    *(f"dot_4x8packed_{kind}" for kind in ("uu_uint", "ss_int", "us_int", "su_int")),
    *(f"dot_acc_sat_4x8packed_{kind}" for kind in ("uu_uint", "ss_int", "us_int", "su_int")),
)
_BLOCK = re.compile(r"block_of_(\d+)")  # the type in kernel.clh
_WORDS = {
    "int64": "64-bit integers",
    "fp64": "doubles",
    "fp16": "halves",
    "images": "images",
    INTEGER_DOT_PRODUCT: "integer dot products",
    ASSEMBLY: "inline assembly",
}


def options(profile: DeviceProfile) -> list[str]:
    """Return the build options of this profile; the first makes argument types queryable."""
    # What the standard prescribes for a device without doubles.
    single = [] if profile.has_fp64 else ["-cl-single-precision-constant"]
    return ["-cl-kernel-arg-info", *single]


def lines(profile: DeviceProfile | None) -> str:
    """Return the lines to prepend to a kernel's source; None forbids nothing."""
    text = ""
    if profile is None:
        return text
    if not profile.has_int64:
        text += _defines("int64", (*_types("long"), *_types("ulong")))
    if not profile.has_fp64:
        text += _defines("fp64", _types("double"))
    if not profile.has_fp16:
        text += _defines("fp16", _types("half"))
    if not profile.has_images:
        text += _defines("images", _IMAGES)
    if not that_need(INTEGER_DOT_PRODUCT) & {*profile.isa}:
        text += _defines(INTEGER_DOT_PRODUCT, _DOTS)
    if not that_need(ASSEMBLY) & {*profile.isa}:
        text += _defines(ASSEMBLY, ("asm", "__asm", "__asm__"))
    return text


def explained(log: str, profile: DeviceProfile | None) -> str:
    """Return a build log, preceded by the profile limit that it shows to be violated."""
    found = re.search(rf"{_MARK}(\w+?)\b", log)
    if profile is None or found is None or found[1] not in _WORDS:
        return log
    return f"error: device profile {profile.name}: there are no {_WORDS[found[1]]}\n{log}"


def _types(base: str) -> Iterable[str]:
    """Yield every width of a type, and the conversions that produce it without naming it."""
    for width in _WIDTHS:
        yield f"{base}{width}"
        yield f"as_{base}{width}"
        for saturated in ("", "_sat"):
            for rounding in _ROUNDINGS:
                yield f"convert_{base}{width}{saturated}{rounding}"


def _defines(what: str, words: Iterable[str]) -> str:
    # Some compilers' own headers define as_long and the like.
    return "".join(f"#undef {word}\n#define {word} {_MARK}{what}\n" for word in words)


def argument_bytes(kernel: cl.Kernel) -> int:
    """Return the bytes of all arguments; requires a build with -cl-kernel-arg-info."""
    info, private = cl.kernel_arg_info, cl.kernel_arg_address_qualifier.PRIVATE
    size = 0
    with opencl(f"clGetKernelArgInfo {kernel.function_name}"):
        for number in range(kernel.num_args):
            name = kernel.get_arg_info(number, info.TYPE_NAME)
            is_value = kernel.get_arg_info(number, info.ADDRESS_QUALIFIER) == private
            size += _size_of(name) if is_value and not name.endswith("*") else POINTER_BYTES
    return size


def _size_of(type_name: str) -> int:
    """Return a private argument's size by its type name.

    Raises:
        DeviceError: a foreign structure, whose size no driver reports.
    """
    if block := _BLOCK.search(type_name):
        return block_bytes(int(block[1]))
    found = re.fullmatch(r"u?(char|short|int|long|half|float|double)(|2|3|4|8|16)", type_name)
    if found is None:
        raise DeviceError(f"an argument of type {type_name}: its bytes cannot be told")
    size = {"char": 1, "short": 2, "half": 2, "long": 8, "double": 8}.get(found[1], 4)
    return size * {"": 1, "3": 4}.get(found[2], int(found[2] or 1))
