# SPDX-License-Identifier: Apache-2.0
"""Marks of interpreters: a delegate sees graphs alone, at addresses that come again.

All graphs of an interpreter share its external contexts, which begin empty. One type of them is no
kernel's of TFLite. Source: tflite/core/interpreter.cc Interpreter, SetExternalContext
"""

from __future__ import annotations

import ctypes as C

from delegate.host.tflite import abi

# TFLite may read a mark as long as its interpreter lives, of whose end nobody hears: a few bytes
# for each interpreter that was marked stay for good.
_marks: list[abi.ExternalContext] = []


def mark_of(context: int) -> int:
    """Return the mark of a TfLiteContext's interpreter; 0: it has none."""
    view = abi.Context.from_address(context)
    return view.GetExternalContext(context, abi.MARK) or 0


class Marks:
    """The marks that one delegate gives.

    Attributes:
        own: their addresses.
    """

    def __init__(self) -> None:
        self.own: set[int] = set()

    def of(self, context: int) -> int:
        """Return the mark of a TfLiteContext's interpreter, which gets one where it has none.

        No other interpreter has or had it. It may be another delegate's.
        """
        address = mark_of(context)
        if not address:
            _marks.append(abi.ExternalContext(type=abi.MARK, Refresh=None))
            address = C.addressof(_marks[-1])
            view = abi.Context.from_address(context)
            view.SetExternalContext(context, abi.MARK, address)
            self.own.add(address)
        return address
