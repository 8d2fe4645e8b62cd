# SPDX-License-Identifier: Apache-2.0
"""The process that drivers are called in: no fork of one that called them, and not one that ends.

Drivers have threads and locks of their own. A forked process has the locks without the threads, so
that calls never return. And where a process ends, Python ends each thread that wants to run Python
code again; a thread that is inside a driver or in a callback of TFLite takes the whole process down
with it. So the end waits for those inside, and holds back those that come.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time

from delegate.errors import DeviceError

# A driver that hangs does not keep the process from ending.
LAST_WAIT_SECONDS = 5.0
_LEAVING_SECONDS = 0.01  # from the last line of `Inside` to the C code that called Python
_user: int | None = None  # the process that called a driver first
_stays: dict[int, int] = {}  # thread -> how many `Inside` it is in
_ending: int | None = None  # the thread that ends the process


def require_own() -> None:
    """Note that this process calls drivers.

    Raises:
        DeviceError: it was forked from a process that had done so.
    """
    global _user
    if _user is None:
        _user = os.getpid()
    elif _user != os.getpid():
        raise DeviceError(
            "this process was forked from one that had used OpenCL, where drivers hang: start "
            "workers with spawn, as multiprocessing.get_context('spawn') does"
        )


class Inside:
    """A context of calls that Python must not end: the process waits for its end before its own.

    A thread that comes when the process ends stays here for good.
    """

    def __enter__(self) -> None:
        thread = threading.get_ident()
        _stays[thread] = _stays.get(thread, 0) + 1
        if _stays[thread] == 1 and _ending not in (None, thread):
            del _stays[thread]
            while True:
                time.sleep(3600.0)

    def __exit__(self, *exception: object) -> None:
        thread = threading.get_ident()
        _stays[thread] -= 1
        if not _stays[thread]:
            del _stays[thread]


def keep_for_good(thing: object) -> None:
    """Never free an object of this process, at the process's end neither."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@atexit.register
def _end() -> None:
    global _ending
    _ending = threading.get_ident()
    last = time.monotonic() + LAST_WAIT_SECONDS
    if not set(_stays) - {_ending}:
        return
    while set(_stays) - {_ending} and time.monotonic() < last:
        time.sleep(0.001)
    time.sleep(_LEAVING_SECONDS)


os.register_at_fork(after_in_child=_stays.clear)  # the other threads are not in the child
