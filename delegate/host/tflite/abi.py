# SPDX-License-Identifier: Apache-2.0
"""ctypes mirror of TFLite's C interface for delegates: structures, no logic.

Source: tflite/core/c/common.h. Only the leading fields of TfLiteContext are declared; it is never
created or copied here. The layouts hold from tflite-runtime 2.14 to ai-edge-litert 2.3.
"""

from __future__ import annotations

import ctypes as C
from typing import Any

OK = 0  # kTfLiteOk
ERROR = 1  # kTfLiteError
READ_ONLY = 1  # kTfLiteMmapRo, an allocation type: a constant of the file
ARENA = 2  # kTfLiteArenaRw, likewise: in TFLite's arena
DYNAMIC = 4  # kTfLiteDynamic, likewise
BUILTIN_DELEGATE = 51  # kTfLiteBuiltinDelegate
MARK = 2  # kTfLiteEdgeTpuContext, a type of external contexts that no TFLite kernel reads
# kTfLiteDelegateFlagsAllowDynamicTensors: without it, one dynamic tensor anywhere in a model makes
# TFLite refuse the whole delegate. RequirePropagatedShapes (2) is not set: when a dynamic tensor is
# resized during a run, TFLite (Subgraph::PrepareOpsAndTensors) would re-prepare the plan from
# before delegation, starting at an index into the delegated plan. CPU kernels that have already run
# are prepared again, their temporaries never get memory, and the next run crashes. Instead, each
# kernel's prepare sizes its outputs.
FLAGS = 1


class TfLiteIntArray(C.Structure):
    """TfLiteIntArray: a count, then as many ints."""

    _fields_ = [("size", C.c_int), ("data", C.c_int * 0)]


class TfLiteQuantizationParams(C.Structure):
    _fields_ = [("scale", C.c_float), ("zero_point", C.c_int32)]


class TfLiteQuantization(C.Structure):
    _fields_ = [("type", C.c_int), ("params", C.c_void_p)]


class TfLiteTensor(C.Structure):
    _fields_ = [
        ("type", C.c_int),
        ("data", C.c_void_p),
        ("dims", C.POINTER(TfLiteIntArray)),
        ("params", TfLiteQuantizationParams),
        ("allocation_type", C.c_int),
        ("bytes", C.c_size_t),
        ("allocation", C.c_void_p),
        ("name", C.c_void_p),  # an address, see locate.py
        ("delegate", C.c_void_p),
        ("buffer_handle", C.c_int),
        ("data_is_stale", C.c_bool),
        ("is_variable", C.c_bool),
        ("quantization", TfLiteQuantization),
        ("sparsity", C.c_void_p),
        ("dims_signature", C.POINTER(TfLiteIntArray)),
    ]


class TfLiteNode(C.Structure):
    _fields_ = [
        ("inputs", C.POINTER(TfLiteIntArray)),
        ("outputs", C.POINTER(TfLiteIntArray)),
        ("intermediates", C.POINTER(TfLiteIntArray)),
        ("temporaries", C.POINTER(TfLiteIntArray)),
        ("user_data", C.c_void_p),
        ("builtin_data", C.c_void_p),
        ("custom_initial_data", C.c_void_p),
        ("custom_initial_data_size", C.c_int),
        ("delegate", C.c_void_p),
    ]


class TfLiteDelegateParams(C.Structure):
    _fields_ = [
        ("delegate", C.c_void_p),
        ("nodes_to_replace", C.POINTER(TfLiteIntArray)),
        ("input_tensors", C.POINTER(TfLiteIntArray)),
        ("output_tensors", C.POINTER(TfLiteIntArray)),
    ]


Init = C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_void_p, C.c_size_t)
Free = C.CFUNCTYPE(None, C.c_void_p, C.c_void_p)
NodeCall = C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(TfLiteNode))


class TfLiteRegistration(C.Structure):
    _fields_ = [
        ("init", Init),
        ("free", Free),
        ("prepare", NodeCall),
        ("invoke", NodeCall),
        ("profiling_string", C.c_void_p),
        ("builtin_code", C.c_int32),
        ("custom_name", C.c_char_p),
        ("version", C.c_int),
        ("registration_external", C.c_void_p),
        ("async_kernel", C.c_void_p),
        ("inplace_operator", C.c_uint64),
    ]


class TfLiteExternalContext(C.Structure):
    """TfLiteExternalContext: TFLite calls Refresh, if not null, when threads are set."""

    _fields_ = [("type", C.c_int), ("Refresh", C.c_void_p)]


class TfLiteContext(C.Structure):
    _fields_ = [
        ("tensors_size", C.c_size_t),
        (
            "GetExecutionPlan",
            C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.POINTER(TfLiteIntArray))),
        ),
        ("tensors", C.POINTER(TfLiteTensor)),
        ("impl", C.c_void_p),
        # It takes ownership of the array and frees it with C's free(); see new_int_array.
        ("ResizeTensor", C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(TfLiteTensor), C.c_void_p)),
        # Variadic in C: arguments after the format are passed by this prototype.
        ("ReportError", C.CFUNCTYPE(None, C.c_void_p, C.c_char_p, C.c_char_p)),
        ("AddTensors", C.c_void_p),
        (
            "GetNodeAndRegistration",
            C.CFUNCTYPE(
                C.c_int,
                C.c_void_p,
                C.c_int,
                C.POINTER(C.POINTER(TfLiteNode)),
                C.POINTER(C.POINTER(TfLiteRegistration)),
            ),
        ),
        (
            "ReplaceNodeSubsetsWithDelegateKernels",
            C.CFUNCTYPE(
                C.c_int, C.c_void_p, TfLiteRegistration, C.POINTER(TfLiteIntArray), C.c_void_p
            ),
        ),
        ("recommended_num_threads", C.c_int),
        # Shared by all graphs of an interpreter, by type; None: not set.
        ("GetExternalContext", C.CFUNCTYPE(C.c_void_p, C.c_void_p, C.c_int)),
        ("SetExternalContext", C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_void_p)),
    ]


DelegatePrepare = C.CFUNCTYPE(C.c_int, C.c_void_p, C.c_void_p)


class TfLiteDelegate(C.Structure):
    _fields_ = [
        ("data", C.c_void_p),
        ("Prepare", DelegatePrepare),
        ("CopyFromBufferHandle", C.c_void_p),
        ("CopyToBufferHandle", C.c_void_p),
        ("FreeBufferHandle", C.c_void_p),
        ("flags", C.c_int64),
        ("opaque_delegate_builder", C.c_void_p),
    ]


def ints(array: Any) -> tuple[int, ...]:
    """Return the values of a pointer to TfLiteIntArray; () for a null pointer."""
    if not array:
        return ()
    address = C.addressof(array.contents) + TfLiteIntArray.data.offset
    return tuple((C.c_int * array.contents.size).from_address(address))


def int_array(values: tuple[int, ...]) -> Any:
    """Return a new TfLiteIntArray, as the ctypes array that owns its memory."""
    return (C.c_int * (len(values) + 1))(len(values), *values)


_malloc = C.CDLL(None).malloc
_malloc.restype, _malloc.argtypes = C.c_void_p, (C.c_size_t,)


def new_int_array(values: tuple[int, ...]) -> int:
    """Return the address of a new TfLiteIntArray that TFLite may free.

    Raises:
        MemoryError: out of memory.
    """
    array = int_array(values)
    address = _malloc(C.sizeof(array))
    if not address:
        raise MemoryError
    C.memmove(address, array, C.sizeof(array))
    return int(address)
