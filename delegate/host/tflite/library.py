# SPDX-License-Identifier: Apache-2.0
"""Which TFLite is calling, and the arithmetic rules that follow."""

from __future__ import annotations

import ctypes as C
import functools
import logging
import os
import platform
import re
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from delegate.host.tflite import abi
from delegate.host.tflite.runtime_probes import (
    Kernels,
    library_kernels,
    package_kernels,
    probed_rules,
    rounds_rows_twice,
)
from delegate.target import Rules

_log = logging.getLogger("delegate")
# The last version assumed to compute like tflite-runtime before its kernels are probed. Verified
# for 2.2, 2.9 and 2.14; none between 2.14 and ai-edge-litert was available.
_LAST_OLDER = (2, 14)
# Their reference kernels were compared with these rules value by value, so they are not probed.
# That was on x86-64; quantisation of float rows also depends on the processor (`Rules`).
_COMPARED = frozenset(
    {("TFLite", "2.14.1"), ("tflite-runtime", "2.14.0"), ("ai-edge-litert", "2.3.0")}
)
PACKAGES = {"ai_edge_litert": "ai-edge-litert", "tflite_runtime": "tflite-runtime"}


class _Symbol(C.Structure):
    # Dl_info of dladdr(3)
    _fields_ = [
        ("file", C.c_char_p),
        ("base", C.c_void_p),
        ("name", C.c_char_p),
        ("address", C.c_void_p),
    ]


def rules_of_caller(context: int) -> Rules:
    """Return the arithmetic rules of the TFLite that owns this context.

    Two runtimes may be loaded, so the library is found by the address of a context's function,
    not by imports.
    """
    function = C.cast(abi.TfLiteContext.from_address(context).GetExecutionPlan, C.c_void_p).value
    return rules_of_library(library_at(function or 0))


def threads_of_caller(context: int) -> int:
    """Return the threads that this context's CPU kernels use; below 1: TFLite's default."""
    return int(abi.TfLiteContext.from_address(context).recommended_num_threads)


@functools.cache
def rules_of_library(file: str) -> Rules:
    """Return the rules of the TFLite in this file, probed once per process."""
    for package in PACKAGES:
        if package in Path(file).parts:
            return _rules_of_package(package)
    version = _version_of(file)
    if version is not None:
        by_version = rules_of_version("TFLite", version, _numbers(version) <= _LAST_OLDER)
        return _probed(by_version, functools.partial(library_kernels, file))
    package = next((package for package in PACKAGES if package in sys.modules), "")
    if not package:
        _log.warning("the calling TFLite is unknown (%s has no version): assuming a new one", file)
    return rules(package)


@functools.cache
def _rules_of_package(package: str) -> Rules:
    return _probed(rules(package), functools.partial(package_kernels, package))


def _probed(by_version: Rules, kernels: Callable[[], Kernels | None]) -> Rules:
    """Return the rules found by probing these kernels; by version where that fails."""
    is_compared = (by_version.runtime, by_version.version) in _COMPARED
    # There tflite-runtime's hybrid ops stay on the CPU; its FULLY_CONNECTED crashes an emulator.
    has_rows = by_version.processor == "aarch64" and by_version.runtime == "ai-edge-litert"
    if is_compared and not has_rows:
        return by_version
    found = kernels()
    if found is None:
        _log.debug("%s %s cannot be asked", by_version.runtime, by_version.version)
        return by_version
    if has_rows:
        by_version = replace(by_version, rounds_rows_twice=rounds_rows_twice(found))
    return by_version if is_compared else probed_rules(by_version, found)


def _version_of(file: str) -> str | None:
    """Return TFLite's own version string, from this library or else from the program."""
    for name, mode in ((file, os.RTLD_NOW | os.RTLD_NOLOAD), (None, os.RTLD_NOW)):
        try:
            function = C.CDLL(name, mode).TfLiteVersion
        except (AttributeError, OSError):
            continue
        function.restype, function.argtypes = C.c_char_p, ()
        return str((function() or b"").decode(errors="replace")) or None
    return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def installed_rules() -> Rules:
    """Return the arithmetic rules of the imported TFLite runtime, else of an installed one.

    Of two, ai-edge-litert is preferred; without any, the rules are the newest known.
    """
    imported = [package for package in PACKAGES if package in sys.modules]
    found = imported or [package for package in PACKAGES if _installed_version(package)]
    return _rules_of_package(found[0]) if found else Rules()


def _installed_version(package: str) -> str:
    try:
        return metadata.version(PACKAGES[package])
    except metadata.PackageNotFoundError:
        return ""


def rules(package: str) -> Rules:
    """Return the arithmetic rules of a runtime by import name; the newest if unknown.

    Source: outputs of both runtimes' reference kernels, compared value by value; see
    ARCHITECTURE.md
    """
    known = package if package in PACKAGES else "ai_edge_litert"
    return rules_of_version(PACKAGES[known], _installed_version(known), known == "tflite_runtime")


def rules_of_version(runtime: str, version: str, is_older: bool) -> Rules:
    """Return tflite-runtime's rules if `is_older`, else ai-edge-litert's."""
    # The defaults are the newest rules, and every rule has one alternative.
    differ: dict[str, Any] = {
        rule.name: rule.default is not is_older
        for rule in fields(Rules)
        if isinstance(rule.default, bool)
    }
    if platform.machine() == "aarch64":  # NEON rounds differently there
        differ["rows_round_by_adding"] = False
    return Rules(
        runtime=runtime,
        version=version,
        processor=platform.machine(),
        float_function=float_function,
        **differ,
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


def library_at(address: int) -> str:
    """Return the file of the library or program that contains a function; "" if unknown."""
    symbol = _Symbol()
    try:
        found = C.CDLL(None).dladdr(C.c_void_p(address), C.byref(symbol))
    except (AttributeError, OSError):
        found = 0
    return str(symbol.file.decode(errors="replace")) if found and symbol.file else ""
