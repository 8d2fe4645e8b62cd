# SPDX-License-Identifier: Apache-2.0
"""Selection of the TFLite runtime, and its interface."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import sys
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.tiers import slow
from tflite_opencl.interpreters.runtime import (
    ENVIRONMENT_VARIABLE,
    Runtime,
    RuntimeMissing,
    find_runtime,
)


class Resolvers(Enum):
    AUTO = 0
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception | ModuleType]:
    """Fake the installed runtimes: module name -> module, or the error of its import."""
    modules: dict[str, Exception | ModuleType] = {}

    def import_module(name: str) -> ModuleType:
        package = name.partition(".")[0]
        result = modules.get(package, ModuleNotFoundError("not there", name=package))
        if isinstance(result, Exception):
            raise result
        return result

    def version(name: str) -> str:
        return {"ai-edge-litert": "2.3.0", "tflite-runtime": "2.14.0"}[name]

    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    return modules


def test_ai_edge_litert_comes_first(installed: dict[str, Any]) -> None:
    installed.update(ai_edge_litert=ModuleType("new"), tflite_runtime=ModuleType("old"))
    runtime = find_runtime()
    assert (runtime.name, runtime.version) == ("ai-edge-litert", "2.3.0")


def test_tflite_runtime_is_used_if_alone(
    installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.update(tflite_runtime=ModuleType("old"))
    monkeypatch.setattr(np, "__version__", "1.26.4")
    assert find_runtime().name == "tflite-runtime"


@pytest.mark.parametrize("text", ["tflite-runtime", "tflite_runtime", "tflite"])
def test_environment_variable_overrides_order(
    installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    installed.update(ai_edge_litert=ModuleType("new"), tflite_runtime=ModuleType("old"))
    monkeypatch.setattr(np, "__version__", "1.26.4")
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, text)
    assert find_runtime().name == "tflite-runtime"


@pytest.mark.parametrize("text", ["ai-edge-litert", "litert"])
def test_requested_runtime_must_exist(
    installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    installed.update(tflite_runtime=ModuleType("old"))
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, text)
    with pytest.raises(RuntimeMissing, match="ai-edge-litert is not installed"):
        find_runtime()


def test_unknown_runtime_is_an_error(
    installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "tensorflow")
    with pytest.raises(RuntimeMissing, match="there are only ai-edge-litert and tflite-runtime"):
        find_runtime()


def test_error_without_runtime_says_what_to_install(installed: dict[str, Any]) -> None:
    with pytest.raises(RuntimeMissing, match=r"no TFLite runtime: .*pip install ai-edge-litert"):
        find_runtime()


def test_tflite_runtime_with_numpy_2_says_what_to_install(
    installed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.update(tflite_runtime=ModuleType("old"))
    monkeypatch.setattr(np, "__version__", "2.4.6")
    with pytest.raises(RuntimeMissing, match=r"does not work with numpy 2.4.6 .*numpy<2"):
        find_runtime()


@pytest.mark.parametrize(
    "error", [ImportError("GLIBC_2.38 not found\nmore"), SystemError("numpy")], ids=repr
)
def test_unloadable_runtime_is_one_line(installed: dict[str, Any], error: Exception) -> None:
    installed.update(ai_edge_litert=error)
    with pytest.raises(RuntimeMissing, match="ai-edge-litert cannot be loaded") as caught:
        find_runtime()
    assert "\n" not in str(caught.value)


def test_missing_dependency_is_named(installed: dict[str, Any]) -> None:
    installed.update(ai_edge_litert=ModuleNotFoundError("No module named 'x'", name="x"))
    with pytest.raises(RuntimeMissing, match=r"lacks a module .*'x'"):
        find_runtime()


@pytest.mark.parametrize(
    ("cpu_kernels", "resolver"),
    [
        ("auto", Resolvers.AUTO),
        ("builtin", Resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES),
        ("reference", Resolvers.BUILTIN_REF),
    ],
)
def test_cpu_kernels_choose_the_resolver(cpu_kernels: str, resolver: Resolvers) -> None:
    module = SimpleNamespace(Interpreter=dict, OpResolverType=Resolvers)
    interp = Runtime("fake", "1", module).interpreter("m\udcff.tflite", 4, cpu_kernels)
    assert interp["experimental_op_resolver_type"] is resolver
    assert interp["model_path"] == b"m\xff.tflite"  # the name need not be UTF-8


def test_model_in_memory_is_passed_as_content() -> None:
    module = SimpleNamespace(Interpreter=dict, OpResolverType=Resolvers)
    interp = Runtime("fake", "1", module).interpreter(b"model", None, "auto")
    assert interp["model_content"] == b"model"
    assert "model_path" not in interp


@slow
def test_missing_delegate_library(capsys: pytest.CaptureFixture[str]) -> None:
    hook = sys.unraisablehook
    with pytest.raises((OSError, ValueError)):
        find_runtime().load_delegate("./libnosuch.so", {})
    gc.collect()
    assert capsys.readouterr().err == ""
    assert sys.unraisablehook is hook
