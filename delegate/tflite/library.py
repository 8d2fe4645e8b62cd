# SPDX-License-Identifier: Apache-2.0
"""Which TFLite called us, and so which arithmetic rules hold."""

from __future__ import annotations

import ctypes as C
import functools
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import cast

from delegate.target import Rules
from delegate.tflite import abi

_PACKAGES = {"ai_edge_litert": "ai-edge-litert", "tflite_runtime": "tflite-runtime"}


class _Symbol(C.Structure):
    # Dl_info of dladdr(3)
    _fields_ = [
        ("file", C.c_char_p),
        ("base", C.c_void_p),
        ("name", C.c_char_p),
        ("address", C.c_void_p),
    ]


def rules_of_caller(context: int) -> Rules:
    """Return the arithmetic rules of the TFLite whose context this is.

    Two runtimes may be loaded at once, so the library is found by the address of one of the
    context's functions, not by what is imported.
    """
    function = C.cast(abi.Context.from_address(context).GetExecutionPlan, C.c_void_p).value
    return rules(_package_of(function or 0))


def installed_rules() -> Rules:
    """Return the arithmetic rules of the TFLite runtime that is imported, else of one installed.

    Of two it is ai-edge-litert; without any the rules are the newest known.
    """
    imported = [package for package in _PACKAGES if package in sys.modules]
    found = imported or [package for package in _PACKAGES if _is_installed(package)]
    return rules(found[0]) if found else Rules()


def _is_installed(package: str) -> bool:
    try:
        return bool(metadata.version(_PACKAGES[package]))
    except metadata.PackageNotFoundError:
        return False


def rules(package: str) -> Rules:
    """Return the arithmetic rules of a runtime's import name; unknown ones as the newest.

    Source: outputs of both runtimes' reference kernels, compared value by value; see
    ARCHITECTURE.md
    """
    name = _PACKAGES.get(package, "ai-edge-litert")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = ""
    return Rules(
        runtime=name,
        version=version,
        fully_connected_double_rounding=package == "tflite_runtime",
        older_comparisons=package == "tflite_runtime",
        int16_sums_of_int32=package == "tflite_runtime",
        batch_matmul_mixes_rows=package == "tflite_runtime",
        reverses_first_axis=package == "tflite_runtime",
        saturating_cast=package != "tflite_runtime",
        newer_types=package != "tflite_runtime",
        leaky_relu_by_size=package != "tflite_runtime",
        arg_max_nan_gives_way=package != "tflite_runtime",
        saturating_sums=package != "tflite_runtime",
        resizes_newer_types=package != "tflite_runtime",
        float_function=float_function,
    )


@functools.cache
def float_function(name: str) -> Callable[[float], float] | None:
    """Return a float function of the C library that TFLite is linked to, or None."""
    for library in (None, "libm.so.6"):
        try:
            function = getattr(C.CDLL(library), name)
        except (AttributeError, OSError, TypeError):
            continue
        function.restype = C.c_float
        function.argtypes = [C.c_float]
        return cast("Callable[[float], float]", function)
    return None


def _package_of(address: int) -> str:
    symbol = _Symbol()
    try:
        found = C.CDLL(None).dladdr(C.c_void_p(address), C.byref(symbol))
    except (AttributeError, OSError):
        found = 0
    if found and symbol.file:
        parts = Path(symbol.file.decode(errors="replace")).parts
        for package in _PACKAGES:
            if package in parts:
                return package
    return next((package for package in _PACKAGES if package in sys.modules), "")
