# SPDX-License-Identifier: Apache-2.0
"""What a device says of its integer dot products: cl_khr_integer_dot_product 2.0. Not in pyopencl.

Source: Khronos OpenCL Extension Specification, cl_khr_integer_dot_product
"""

from __future__ import annotations

import ctypes as C

import pyopencl as cl

# CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR, and the truths of
# cl_device_integer_dot_product_acceleration_properties_khr: both sides signed, none, one of them;
# then the same for sums that saturate.
_PROPERTIES, _TRUTHS = 0x1075, 6
_SIGNED, _MIXED = 0, 2


def is_accelerated(device: cl.Device, takes_int8: bool) -> bool:
    """Whether the device says that a dot product of four bytes costs less than its parts do.

    `takes_int8`: of signed bytes on both sides, else on one. A compiler may offer the function and
    write it out. One that knows no such question (version 1 of the extension) says nothing, and
    that is a no.
    """
    # pyopencl's module brings the ICD loader; a symbol is looked for in what it is linked to.
    ask = C.CDLL(cl._cl.__file__).clGetDeviceInfo
    ask.restype = C.c_int
    ask.argtypes = (C.c_void_p, C.c_uint32, C.c_size_t, C.c_void_p, C.c_void_p)
    truths = (C.c_uint32 * _TRUTHS)()
    status = ask(device.int_ptr, _PROPERTIES, C.sizeof(truths), truths, None)
    return status == cl.status_code.SUCCESS and bool(truths[_SIGNED if takes_int8 else _MIXED])
