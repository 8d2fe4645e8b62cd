# SPDX-License-Identifier: Apache-2.0
"""Where no TFLite is installed, as on systems with musl: a test that asks for it is skipped there.

What is left proves what class Model, the readers and the commands do without TFLite.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tflite_opencl.interpreters import runtime

WHY_NOT = runtime.runtime_if_any().why_not  # "": there is a TFLite
INTERPRETER = runtime.Runtime.interpreter  # without TFLite numpy's, for tests that are about that


def _skip(*_: Any, **__: Any) -> NoReturn:
    # It is no Exception: no command takes it for a failure of its own.
    raise pytest.skip.Exception(f"it needs TFLite: {WHY_NOT}", allow_module_level=True)


class _Nothing:
    """TFLite's module, where there is none."""

    __getattr__ = _skip


def make_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process, and those that it starts, ones in which no TFLite is installed."""
    monkeypatch.setattr(runtime.Runtime, "interpreter", INTERPRETER)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).with_name("no_tflite")))
    for name in ("ai_edge_litert", "tflite_runtime"):
        for module in (name, f"{name}.interpreter"):
            monkeypatch.setitem(sys.modules, module, None)


# What asks for TFLite in a process of its own, or by a command that says what is missing.
needs_tflite = pytest.mark.skipif(bool(WHY_NOT), reason=f"it needs TFLite: {WHY_NOT}")


def patch() -> None:
    """Let all that asks for an interpreter skip the test. Call it before others import these."""
    if WHY_NOT:
        runtime.find_runtime = _skip
        runtime.runtime_if_any = lambda: runtime.Runtime("none", "", _Nothing(), WHY_NOT)
        runtime.Runtime.interpreter = _skip  # type: ignore[method-assign]
