# SPDX-License-Identifier: Apache-2.0
"""Skips the tests that ask for an interpreter if no TFLite is installed, as on systems with musl.

The others show what class Model, the readers and the commands do without TFLite.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tflite_opencl.interpreters import runtime

WHY_NOT = runtime.runtime_if_any().why_not  # "" if TFLite is installed
INTERPRETER = runtime.Runtime.interpreter  # without TFLite the one in NumPy


def _skip(*_: Any, **__: Any) -> NoReturn:
    # Not a subclass of Exception, so that no command catches it.
    raise pytest.skip.Exception(f"it needs TFLite: {WHY_NOT}", allow_module_level=True)


class _Nothing:
    """A stand-in for TFLite's missing module."""

    __getattr__ = _skip


def make_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide TFLite in this process and its children."""
    monkeypatch.setattr(runtime.Runtime, "interpreter", INTERPRETER)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("no_tflite")))
    for name in ("ai_edge_litert", "tflite_runtime"):
        for module in (name, f"{name}.interpreter"):
            monkeypatch.setitem(sys.modules, module, None)


# For tests that need TFLite in a child process.
needs_tflite = pytest.mark.skipif(bool(WHY_NOT), reason=f"it needs TFLite: {WHY_NOT}")


def patch() -> None:
    """Make requests for an interpreter skip the test. Call it before other imports."""
    if WHY_NOT:
        runtime.find_runtime = _skip
        runtime.runtime_if_any = lambda: runtime.Runtime("none", "", _Nothing(), WHY_NOT)
        runtime.Runtime.interpreter = _skip  # type: ignore[method-assign]
