# SPDX-License-Identifier: Apache-2.0
"""Query of integer dot product acceleration (cl_khr_integer_dot_product 2.0), not in pyopencl.

Source: Khronos OpenCL Extension Specification, cl_khr_integer_dot_product
"""

from __future__ import annotations

import ctypes as C

import pyopencl as cl

# CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR, and the booleans of
# cl_device_integer_dot_product_acceleration_properties_khr: signed, unsigned, mixed; then the
# same, saturating.
_PROPERTIES, _TRUTHS = 0x1075, 6
_SIGNED, _MIXED = 0, 2


def is_accelerated(device: cl.Device, takes_int8: bool) -> bool:
    """Whether the device reports that a packed 4x8-bit dot product is accelerated.

    `takes_int8`: signed x signed, else mixed signedness. The built-in alone proves nothing, as a
    compiler may emulate it. A device without the query (version 1 of the extension) counts as
    not accelerated.
    """
    # pyopencl's module is linked to the ICD loader, so the symbol resolves through it.
    ask = C.CDLL(cl._cl.__file__).clGetDeviceInfo
    ask.restype = C.c_int
    ask.argtypes = (C.c_void_p, C.c_uint32, C.c_size_t, C.c_void_p, C.c_void_p)
    truths = (C.c_uint32 * _TRUTHS)()
    status = ask(device.int_ptr, _PROPERTIES, C.sizeof(truths), truths, None)
    return status == cl.status_code.SUCCESS and bool(truths[_SIGNED if takes_int8 else _MIXED])
