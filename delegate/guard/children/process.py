# SPDX-License-Identifier: Apache-2.0
"""The process that drivers are called in: no fork of one that called them, and not one that ends.

Drivers have threads and locks of their own. A forked process has the locks without the threads, so
that calls never return. And where a process ends, Python ends each thread that wants to run Python
code again; a thread that is inside a driver or in a callback of TFLite takes the whole process down
with it. So the end waits for those inside, and holds back those that come.

A process also has to ask Linux before a driver's threads use x86's tile registers.
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

# A driver that hangs does not keep the process from ending.
LAST_WAIT_SECONDS = 5.0
_LEAVING_SECONDS = 0.01  # from the last line of `ProtectedCall` to the C code that called Python
# Of arch_prctl on x86-64, where it has no function in the C library; see
# https://docs.kernel.org/arch/x86/xstate.html
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_driver_pid = 0  # the process that called drivers first: this one, or one that it was forked from
_depths: dict[int, int] = {}  # thread -> how many `ProtectedCall` it is in
_ending: int | None = None  # the thread that ends the process


def require_own() -> None:
    """Note that this process calls drivers.

    Raises:
        DeviceError: it was forked from a process that had done so.
    """
    global _driver_pid
    # Asked each time: a fork by C code, in a program that embeds Python, calls no hook of Python's.
    own = os.getpid()
    if not _driver_pid:
        _driver_pid = own
    elif _driver_pid != own:
        raise DeviceError(
            "this process was forked from one that had used OpenCL, where drivers hang: start "
            "workers with spawn, as multiprocessing.get_context('spawn') does"
        )


class ProtectedCall:
    """A context of calls that Python must not end: the process waits for its end before its own.

    A thread that comes when the process ends stays here for good. One object serves all threads,
    and may be entered again.
    """

    # NOTE: networks of a few microseconds notice each line of these two.
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
    """Ask for AMX's tile registers, for all threads of this process; return why not, or "".

    What gets them keeps them. Linux before 5.16 knows no such question, and one that knows it
    refuses where a thread has a stack for signals that has no room for the tiles. Afterwards no
    thread can have so small a stack.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "tile registers are those of Linux on x86-64"
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype, call.argtypes = ctypes.c_long, (ctypes.c_long,) * 3
    if call(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _TILE_DATA) == 0:
        return ""
    return f"Linux gives this process no tile registers: {os.strerror(ctypes.get_errno())}"


def die_with(parent: int) -> None:
    """Let Linux end this process when the thread of the parent that started it ends.

    That holds where a driver hangs, and where a fork of the parent has the other end of the pipe.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it had ended before
        signal.raise_signal(signal.SIGKILL)


def never_free(thing: object) -> None:
    """Never free an object of this process, at the process's end neither."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@atexit.register
def _end() -> None:
    global _ending
    if _driver_pid not in (0, os.getpid()):
        return  # the other threads are not in a forked process
    _ending = get_ident()
    last = time.monotonic() + LAST_WAIT_SECONDS
    if not set(_depths) - {_ending}:
        return
    while set(_depths) - {_ending} and time.monotonic() < last:
        time.sleep(0.001)
    time.sleep(_LEAVING_SECONDS)
