# SPDX-License-Identifier: Apache-2.0
"""Tells systemd that a command is ready, alive, reloads or ends: the protocol of sd_notify(3).

Without NOTIFY_SOCKET nothing is told.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time


def tell(*assignments: str) -> None:
    """Send assignments such as READY=1. A manager that does not listen is no error."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    if address[0] == "@":  # an abstract socket
        address = f"\0{address[1:]}"
    message = "\n".join(each.replace("\n", " ") for each in assignments)
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel,
    ):
        channel.setblocking(False)
        channel.sendto(os.fsencode(message), address)


def tell_reloading() -> None:
    """Say that a reload begins; READY=1 ends it."""
    now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    tell("RELOADING=1", f"MONOTONIC_USEC={now_us}")


def watchdog_s() -> float | None:
    """Return the seconds within which the manager wants WATCHDOG=1; None: it does not ask."""
    known = os.environ.get("WATCHDOG_USEC", "")
    if not known.isdecimal() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(
        os.getpid()
    ):
        return None
    return int(known) / 1e6 or None


class Heartbeat:
    """Tells that a command is ready at its first beat, and alive at the others."""

    def __init__(self) -> None:
        seconds = watchdog_s()
        self._pause = None if seconds is None else seconds / 4
        self._next: float | None = None  # None: not ready yet

    def beat(self) -> None:
        """Call it in each round of the command's loop, at least once in a second."""
        now = time.monotonic()
        if self._next is None:
            tell("READY=1")
        elif self._pause is None or now < self._next:
            return
        else:
            tell("WATCHDOG=1")
        self._next = now + (self._pause or 0.0)
