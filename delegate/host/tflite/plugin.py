# SPDX-License-Identifier: Apache-2.0
"""Requests of C programs for a delegate, passed on by delegate/host/plugin.c."""

from __future__ import annotations

import ctypes as C
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delegate.host.tflite.callbacks import Kernel
from delegate.host.tflite.views import Bytes

_ERROR_BYTES = 2048
# Threads whose Python state is retained: it is never freed, and a host may start a thread per run.
_MOST_KEPT = 16


class _Request(C.Structure):
    _fields_ = [
        ("keys", C.POINTER(C.c_char_p)),
        ("values", C.POINTER(C.c_char_p)),
        ("count", C.c_uint64),
        ("delegate", C.c_void_p),
        ("destroy", C.c_void_p),
        ("error", C.c_char * _ERROR_BYTES),
    ]


_made: dict[int, Any] = {}  # delegates by address; C holds no reference


def made() -> list[Any]:
    """Return the delegates that C holds, newest last."""
    return list(_made.values())


def _destroy(address: int) -> None:
    made = _made.pop(address, None)
    if made is not None:
        made.close()


_destroy_callback = C.CFUNCTYPE(None, C.c_void_p)(_destroy)


def answer(address: int, make: Callable[[Mapping[str, str]], Any]) -> None:
    """Answer the request at this address with `make(options)`.

    If `make` raises, the message is passed to the program, except for Ctrl-C.
    """
    request = _Request.from_address(address)
    try:
        options = {
            request.keys[i].decode(): request.values[i].decode() for i in range(request.count)
        }
        made = make(options)
    except Exception as error:
        text = str(error) or type(error).__name__
        request.error = text.encode(errors="replace")[: _ERROR_BYTES - 1]
        return
    pointer = made._get_native_delegate_pointer()
    _made[pointer] = made
    request.destroy = C.cast(_destroy_callback, C.c_void_p)
    request.delegate = pointer


class ThreadKeeper:
    """A kernel for threads that Python has not started.

    Python would create and drop such a thread's state in each call, a quarter of the time of a
    small graph. It is retained here, for the first few threads.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        """Forward to the kernel."""
        return getattr(self._kernel, name)

    def invoke(self, inputs: Sequence[Bytes], outputs: Sequence[Bytes]) -> None:
        """Run the kernel."""
        _keep_thread()
        self._kernel.invoke(inputs, outputs)


_thread = threading.local()
_kept = itertools.count()


def _keep_thread() -> None:
    if not hasattr(_thread, "is_known"):
        _thread.is_known = True
        if next(_kept) < _MOST_KEPT:
            C.pythonapi.PyGILState_Ensure()  # never released, which would drop the state
