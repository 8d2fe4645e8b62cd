# SPDX-License-Identifier: Apache-2.0
"""The installed package's metadata; .ci/run tests what needs a network or a new venv."""

from __future__ import annotations

import ast
import importlib.metadata as metadata
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import delegate
import delegate.inspect
import label_image
import tflite_opencl
from delegate.plan.sources import folder
from tests.support.tiers import slow

NAME = "tflite-opencl"
BACKPORTS = {"tomli"}  # imported only by older Pythons
EXTRAS = ("cluster", "demo", "generate", "serve", "shell", "suite", "trace", "video")
PACKAGES = [
    Path(str(package.__file__)).parent for package in (delegate, label_image, tflite_opencl)
]


def _installed() -> bool:
    return any(True for _ in metadata.distributions(name=NAME))


pytestmark = pytest.mark.skipif(not _installed(), reason="not installed: pip install -e .")


def _needs(machine: str, extra: str = "", python: str | None = None) -> set[str]:
    """Return what pip would install with the package on Linux."""
    environment = {"platform_machine": machine, "sys_platform": "linux", "extra": extra}
    if python is not None:
        environment["python_version"] = python
    requirements = map(Requirement, metadata.requires(NAME) or [])
    return {r.name for r in requirements if r.marker is None or r.marker.evaluate(environment)}


def _imported() -> set[str]:
    names: set[str] = set()
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    names.update(alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    names.add(str(node.module).partition(".")[0])
    return names - set(sys.stdlib_module_names) - {package.name for package in PACKAGES}


def _provided(requirements: set[str]) -> set[str]:
    return {
        file.parts[0].removesuffix(".py")
        for distribution in metadata.distributions()
        if distribution.metadata["Name"].lower().replace("_", "-") in requirements
        for file in distribution.files or ()
    }


@slow
def test_every_imported_module_is_a_dependency() -> None:
    needed = {name for extra in EXTRAS for name in _needs("x86_64", extra)}
    assert _imported() - _provided(needed) - BACKPORTS == set()


def test_backports_are_required_only_for_old_pythons() -> None:
    assert _needs("aarch64", python="3.10") >= BACKPORTS
    assert not _needs("aarch64", python="3.11") & BACKPORTS


@pytest.mark.parametrize(
    ("machine", "has_runtime", "has_pocl"),
    [("x86_64", True, True), ("aarch64", True, False), ("armv7l", False, False)],
)
def test_wheels_are_required_only_where_they_exist(
    machine: str, has_runtime: bool, has_pocl: bool
) -> None:
    assert ("ai-edge-litert" in _needs(machine)) == has_runtime
    assert ("pocl-binary-distribution" in _needs(machine, "demo")) == has_pocl
    assert "tflite-runtime" in _needs(machine, "tflite-runtime")


def test_console_scripts() -> None:
    scripts = metadata.distribution(NAME).entry_points.select(group="console_scripts")
    assert {(script.name, script.value) for script in scripts} >= {
        ("label_image", "label_image.__main__:main"),
        ("tflite-opencl", "tflite_opencl.__main__:main"),
        ("tflite-delegate-test", "tflite_opencl.conformance.__main__:main"),
    }
    assert metadata.version(NAME) == tflite_opencl.__version__


def test_data_files_are_installed() -> None:
    assert (folder() / "convolution/conv_2d.cl").is_file()
    assert "v3d" in delegate.inspect.device_profile_names()
