# SPDX-License-Identifier: Apache-2.0
"""Marks that identify interpreters: a delegate sees only graphs, whose addresses are reused.

All graphs of an interpreter share its external contexts, which are initially null. One type of them
is not used by TFLite. Source: tflite/core/interpreter.cc Interpreter, SetExternalContext
"""

from __future__ import annotations

import ctypes as C

from delegate.host.tflite import abi

# Never freed: TFLite reads a mark as long as its interpreter lives, and has no destroy callback. A
# few bytes for each marked interpreter.
_marks: list[abi.TfLiteExternalContext] = []


def mark_of(context: int) -> int:
    """Return the mark of a TfLiteContext's interpreter; 0: none."""
    view = abi.TfLiteContext.from_address(context)
    return view.GetExternalContext(context, abi.MARK) or 0


class Marks:
    """The marks set by one delegate.

    Attributes:
        own: their addresses.
    """

    def __init__(self) -> None:
        self.own: set[int] = set()

    def of(self, context: int) -> int:
        """Return the mark of a TfLiteContext's interpreter; sets one if there is none.

        Marks are never reused. It may be another delegate's.
        """
        address = mark_of(context)
        if not address:
            _marks.append(abi.TfLiteExternalContext(type=abi.MARK, Refresh=None))
            address = C.addressof(_marks[-1])
            view = abi.TfLiteContext.from_address(context)
            view.SetExternalContext(context, abi.MARK, address)
            self.own.add(address)
        return address
