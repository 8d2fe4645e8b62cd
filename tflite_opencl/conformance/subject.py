# SPDX-License-Identifier: Apache-2.0
"""The delegate under test: ours, the runtime's XNNPACK, a shared library, or a Python object."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from delegate import DelegateError, DeviceInfo, OpenCLDelegate, Options, Verdict, list_devices
from delegate.inspect import Graph, NodeAlternatives, write_model
from tflite_opencl.console.errors import OneLineError, UsageError, one_line
from tflite_opencl.interpreters.compiled_model import CompiledInterpreter
from tflite_opencl.interpreters.interpreter import allocated, taken_nodes
from tflite_opencl.interpreters.plugin_library import ACCELERATOR
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import graph, node, tensor

OPENCL, XNNPACK, PYTHON = "opencl", "xnnpack", "python:"
COMPILED_MODEL = "compiledmodel:"  # followed by a folder; "": no delegate, only the CPU
# The device has a flag of its own, placement would delegate less, and a plan is of one model.
_NOT_HERE = ("device", "placement", "plan")
# Options with text values on the command line.
_OPENCL_OPTIONS = sorted(
    each.name
    for each in fields(Options)
    if "str" in str(each.type).split(" | ") and each.name not in _NOT_HERE
)


class LibraryError(OneLineError):
    """The specified delegate cannot be loaded; the text is one line that says why."""


def require_options(options: Mapping[str, str]) -> None:
    """Check --delegate_options of our delegate. Raises: UsageError, ProfileError."""
    if unknown := sorted({*options}.difference(_OPENCL_OPTIONS)):
        words = f"opencl has {', '.join(_OPENCL_OPTIONS)}"
        raise UsageError(f"--delegate_options {unknown[0]}: {words}")
    try:
        _ = Options(**dict[str, Any](options)).profile
    except ValueError as error:
        raise UsageError(f"--delegate_options: {error}") from error


@dataclass(frozen=True, slots=True)
class Opened:
    """An allocated interpreter with the delegate applied."""

    interpreter: Any
    delegate: Any  # must outlive the interpreter; None for XNNPACK
    is_of_cpu: bool = False  # no delegate: the runtime's CPU replaces it

    def taken(self, graph: Graph) -> set[int]:
        """Return the nodes of the file that the delegate runs."""
        if self.is_of_cpu:
            return {node.index for node in graph.nodes}
        if isinstance(self.interpreter, CompiledInterpreter):
            return self.interpreter.taken(graph)
        return taken_nodes(self.interpreter, graph)

    def reasons(self) -> list[str]:
        """Return why nodes stayed on the CPU, if the delegate reports it."""
        verdicts = map(Verdict._make, getattr(self.delegate, "verdicts", ()))
        return [f"{each.op}: {each.reason}" for each in verdicts if not each.is_taken]

    def alternatives(self) -> list[NodeAlternatives]:
        """Return the alternatives of the delegated nodes, if the delegate reports them."""
        return list(getattr(self.delegate, "alternatives", ()))


def failure_of(delegate: Any) -> str:
    """Return a delegate's message about its last failure, "" if none."""
    return str(getattr(delegate, "failure", "") or "")


@dataclass(frozen=True, slots=True)
class Subject:
    """How to create the delegate under test."""

    spec: (
        str  # "opencl", "xnnpack", a library's path, "python:MODULE:CALLABLE", "compiledmodel:DIR"
    )
    options: dict[str, Any]  # text values, as on the command line; opencl accepts any
    device: str | None
    runtime: Runtime
    own_context: bool = False  # opencl's: do not share the context within this process

    def open(self, graph: Graph, model: bytes | str, cpu_kernels: str) -> Opened:
        """Return an interpreter with the delegate; remaining nodes run on `cpu_kernels`.

        Raises: RuntimeError, ValueError: TFLite or the delegate fails.
        """
        if self.folder is not None:
            options = self.opencl_options()
            made = CompiledInterpreter(self.runtime, model, self.folder, options, cpu_kernels)
            return Opened(made, made.delegate, is_of_cpu=not self.folder)
        delegate = self._delegate(model)
        if self.spec == XNNPACK:
            return Opened(allocated(self.runtime, model, "auto"), None)
        try:
            return Opened(allocated(self.runtime, model, cpu_kernels, [delegate]), delegate)
        except (RuntimeError, ValueError) as error:
            words = " ".join(str(error).split()) or "TFLite refuses the delegate"
            raise RuntimeError("; ".join(filter(None, [failure_of(delegate), words]))) from error

    def hold(self) -> Any:
        """Return an object that keeps opencl's context alive, or it ends with its last user."""
        if self.spec != OPENCL and not self.folder:
            return None
        try:
            return OpenCLDelegate(_small(), options=Options(**self.opencl_options()))
        except (DelegateError, ValueError, OSError):
            return None  # each case will report it

    def describe(self) -> str:
        """Return the name of the device or library, after checking that it is usable.

        Raises: OneLineError: it is not.
        """
        if self.spec == XNNPACK:
            return f"XNNPACK of {self.runtime.text}"
        if self.spec == OPENCL:
            info = self.device_info()
            return f"{info.name} ({info.platform}, {info.driver})"
        if self.spec == COMPILED_MODEL:
            return f"the CPU alone, by a CompiledModel of {self.runtime.text}"
        if self.folder:
            if not Path(self.folder, ACCELERATOR).exists():
                raise LibraryError(f"there is no {ACCELERATOR} in {self.folder}")
            CompiledInterpreter(self.runtime, _small(), self.folder, self.opencl_options())
            return f"{ACCELERATOR} of {self.folder}"
        try:
            self._delegate(b"")
        except (OSError, ValueError, AttributeError, RuntimeError, ImportError) as error:
            raise LibraryError(f"cannot load {self.spec}: {one_line(error)}") from None
        return self.spec if self.spec.startswith(PYTHON) else str(Path(self.spec).resolve())

    def device_info(self) -> DeviceInfo:
        """Return the OpenCL device that is tested. Raises: OneLineError: none matches."""
        for info in list_devices():  # raises NoDeviceError, which the worker reports
            if self.device is None or info.matches(self.device):
                return info
        raise OneLineError(f"no OpenCL device matches '{self.device}'")

    def opencl_options(self) -> dict[str, Any]:
        """Return the options of our own delegate."""
        # Without tuning, runs are reproducible; small partitions are delegated, too.
        usual: dict[str, Any] = {
            "device": self.device,
            "tune": "off",
            "min_nodes_per_partition": 1,
            "own_context": self.own_context,
            "in_child_first": False,  # the worker itself may crash
        }
        return usual | self.options

    @property
    def folder(self) -> str | None:
        """The accelerator's folder in "compiledmodel:DIR"; None: another kind of delegate."""
        is_compiled = self.spec.startswith(COMPILED_MODEL)
        return self.spec.removeprefix(COMPILED_MODEL) if is_compiled else None

    def _delegate(self, model: bytes | str) -> Any:
        if self.spec == XNNPACK:
            return None
        if self.spec == OPENCL:
            return OpenCLDelegate(model, options=Options(**self.opencl_options()))
        if self.spec.startswith(PYTHON):
            module, _, name = self.spec.removeprefix(PYTHON).partition(":")
            return getattr(importlib.import_module(module), name)(model, dict(self.options))
        return self.runtime.load_delegate(self.spec, self.options)


def _small() -> bytes:
    return write_model(graph([node("RELU", [tensor((1,))], [tensor((1,))])]))


def unsupported_ops(graph: Graph, taken: Sequence[int] | set[int]) -> list[str]:
    """Return the distinct ops that a delegate left."""
    return list(dict.fromkeys(step.op for step in graph.nodes if step.index not in taken))
