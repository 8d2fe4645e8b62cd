# SPDX-License-Identifier: Apache-2.0
"""The calling runtime is found by the address of its functions, not by imported modules."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from delegate.format.writer import write_model
from delegate.host.tflite import library, runtime_probes
from delegate.host.tflite.callbacks import NativeDelegate
from delegate.target import Rules
from tests.support.compare import RUNTIME, interpreter
from tests.support.nets import net

PACKAGE = RUNTIME.module.__package__


@pytest.fixture(autouse=True)
def _forgets_libraries() -> Iterator[None]:
    forget()
    yield
    forget()


def forget() -> None:
    library.rules_of_library.cache_clear()
    library._rules_of_package.cache_clear()


def rules_of_the_installed_runtime() -> Rules:
    results: list[Rules] = []

    class Hooks:
        def __init__(self) -> None:
            self.native = NativeDelegate("Asks", self)  # type: ignore[arg-type]

        def _get_native_delegate_pointer(self) -> int:
            return self.native.address

        def claim(self, context: int, *_: object) -> list[int]:
            results.append(library.rules_of_caller(context))
            return []

    interpreter(write_model(net([("ADD", [0, 0], 1)])), Hooks())  # type: ignore[arg-type]
    return results[0]


def test_caller_is_the_interpreters_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the other one had been imported first.
    for package in ("ai_edge_litert", "tflite_runtime"):
        monkeypatch.setitem(sys.modules, package, sys)
    result = rules_of_the_installed_runtime()
    assert (result.runtime, result.version) == (RUNTIME.name, RUNTIME.version)


@pytest.mark.parametrize("file", ["/lib/libc.so.6", ""])
def test_unknown_library_falls_back_to_imported_runtime(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, file: str
) -> None:
    for package in ("ai_edge_litert", "tflite_runtime"):
        monkeypatch.delitem(sys.modules, package, raising=False)
    assert library.rules_of_library(file) == library.rules("")
    assert "has no version): assuming a new one" in caplog.text
    monkeypatch.setitem(sys.modules, "tflite_runtime", sys)
    library.rules_of_library.cache_clear()
    assert library.rules_of_library(file).runtime == "tflite-runtime"


@pytest.mark.parametrize(
    ("version", "rounds_twice"),
    [("2.2.0", True), ("2.14.1", True), ("2.17.0", False), ("3.0", False), ("1.15.0-rc1", True)],
)
def test_tflite_without_python_reports_its_version(
    tmp_path: Path, version: str, rounds_twice: bool
) -> None:
    source = tmp_path / "tflite.c"
    source.write_text(f'const char* TfLiteVersion(void) {{ return "{version}"; }} int x;\n')
    file = tmp_path / "libtensorflow-lite.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", file, source], check=True)
    loaded = ctypes.CDLL(str(file))
    address = ctypes.cast(loaded.TfLiteVersion, ctypes.c_void_p).value or 0
    assert library.library_at(address) == str(file)
    rules = library.rules_of_library(str(file))
    assert (rules.runtime, rules.version) == ("TFLite", version)
    assert rules.fully_connected_double_rounding is rounds_twice
    assert rules.saturating_cast is not rounds_twice


def test_runtime_of_unknown_version_is_probed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rules_of_the_installed_runtime()
    packages: list[str] = []

    def kernels(package: str) -> runtime_probes.Kernels | None:
        packages.append(package)
        return runtime_probes.package_kernels(package)

    forget()
    monkeypatch.setattr(library, "_COMPARED", frozenset())
    monkeypatch.setattr(library, "package_kernels", kernels)
    assert rules_of_the_installed_runtime() == expected
    assert rules_of_the_installed_runtime() == expected
    assert packages == [PACKAGE]


def test_address_outside_of_libraries() -> None:
    assert library.library_at(0) == ""


@pytest.mark.parametrize(
    ("package", "runtime", "rounds_twice"),
    [
        ("ai_edge_litert", "ai-edge-litert", False),
        ("tflite_runtime", "tflite-runtime", True),
        ("", "ai-edge-litert", False),
        ("unknown", "ai-edge-litert", False),
    ],
    ids=["ai-edge-litert", "tflite-runtime", "none", "unknown"],
)
def test_rules_of_runtime(package: str, runtime: str, rounds_twice: bool) -> None:
    rules = library.rules(package)
    assert rules.runtime == runtime
    assert rules.fully_connected_double_rounding is rounds_twice
    assert rules.int16_sums_of_int32 is rounds_twice
    assert rules.batch_matmul_mixes_rows is rounds_twice
    assert rules.norm_products_wrap is rounds_twice
    assert rules.linked_lstms is not rounds_twice
