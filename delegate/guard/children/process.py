# SPDX-License-Identifier: Apache-2.0
"""Constraints on a process that calls drivers: forking, and its exit.

Drivers have threads and locks of their own. A forked process inherits the locks without the
threads, so calls hang. At exit, Python terminates each thread that tries to resume Python code; a
thread inside a driver or a TFLite callback then takes the whole process down. So exit waits for
such threads, and blocks new calls.

A process also has to ask Linux for permission before a driver's threads use x86's tile registers.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import signal
import sys
import time
from threading import get_ident

from delegate.errors import DeviceError

# A hung driver must not block the exit.
LAST_WAIT_SECONDS = 5.0
_LEAVING_SECONDS = 0.01  # from the end of `ProtectedCall` to the C code that called Python
# arch_prctl of x86-64, without a function in the C library; see
# https://docs.kernel.org/arch/x86/xstate.html
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_driver_pid = 0  # the first process to call drivers: this one, or an ancestor by fork
_depths: dict[int, int] = {}  # thread -> nesting depth of `ProtectedCall`
_ending: int | None = None  # the thread that exits


def require_own() -> None:
    """Record that this process calls drivers.

    Raises:
        DeviceError: it was forked from a process that called drivers, or its Python has no GIL.
    """
    global _driver_pid
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise DeviceError("this Python runs without its GIL, which is untested: set PYTHON_GIL=1")
    # Checked each time: a fork by C code, in a program that embeds Python, runs no Python hook.
    own = os.getpid()
    if not _driver_pid:
        _driver_pid = own
    elif _driver_pid != own:
        raise DeviceError(
            "this process was forked from one that had used OpenCL, where drivers hang: start "
            "workers with spawn, as multiprocessing.get_context('spawn') does"
        )


class ProtectedCall:
    """A context manager for calls that the process's exit must wait for.

    A thread that enters during exit blocks forever. One object serves all threads, and is
    reentrant.
    """

    # NOTE: these two are measurable in networks of a few microseconds.
    def __enter__(self) -> None:
        thread = get_ident()
        stays = _depths[thread] = _depths.get(thread, 0) + 1
        if _ending is not None and stays == 1 and _ending != thread:
            del _depths[thread]
            while True:
                time.sleep(3600.0)

    def __exit__(self, *exception: object) -> None:
        thread = get_ident()
        stays = _depths[thread]
        if stays == 1:
            del _depths[thread]
        else:
            _depths[thread] = stays - 1


def tile_registers_refused() -> str:
    """Request x86's tile registers for all threads of this process; return why not, or "".

    The permission is permanent. Linux before 5.16 lacks the request, and later ones refuse it if a
    thread's signal stack is too small for the tiles. Afterwards no thread can have so small a
    stack.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "tile registers are those of Linux on x86-64"
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype, call.argtypes = ctypes.c_long, (ctypes.c_long,) * 3
    if call(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA) == 0:
        return ""
    return f"Linux gives this process no tile registers: {os.strerror(ctypes.get_errno())}"


def die_with(parent: int) -> None:
    """Let Linux kill this process when the parent's thread that started it exits.

    That works even if a driver hangs, or a fork of the parent holds the other end of the pipe.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it had already exited
        signal.raise_signal(signal.SIGKILL)


def never_free(thing: object) -> None:
    """Leak an object deliberately, even at exit."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@atexit.register
def _end() -> None:
    global _ending
    if _driver_pid not in (0, os.getpid()):
        return  # a forked process does not have the other threads
    _ending = get_ident()
    last = time.monotonic() + LAST_WAIT_SECONDS
    if not set(_depths) - {_ending}:
        return
    while set(_depths) - {_ending} and time.monotonic() < last:
        time.sleep(0.001)
    time.sleep(_LEAVING_SECONDS)
