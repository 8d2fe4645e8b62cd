# SPDX-License-Identifier: Apache-2.0
"""The installed TFLite runtime, and the parts of its API in use.

Also TFLite's type and op codes, as its own label_image prints them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from delegate import OpenCLDelegate
from delegate.inspect import Graph, read_model
from tflite_opencl.console.errors import OneLineError, RunError
from tflite_opencl.interpreters.own_interpreter import NumpyInterpreter, WholeInterpreter
from tflite_opencl.interpreters.signature import OfSignature

ENVIRONMENT_VARIABLE = "LABEL_IMAGE_RUNTIME"

# Distribution -> module, in order of preference.
_MODULES = {"ai-edge-litert": "ai_edge_litert", "tflite-runtime": "tflite_runtime"}
_SHORT_NAMES = {"litert": "ai-edge-litert", "tflite": "tflite-runtime"}

_RESOLVERS = {
    "auto": "AUTO",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "reference": "BUILTIN_REF",
}

# Source: TfLiteType in tflite/core/c/c_api_types.h
TYPE_NUMBERS = {
    "float32": 1, "int32": 2, "uint8": 3, "int64": 4, "string": 5, "bool": 6, "int16": 7,
    "complex64": 8, "int8": 9, "float16": 10, "float64": 11, "complex128": 12, "uint64": 13,
    "resource": 14, "variant": 15, "uint32": 16, "uint16": 17, "int4": 18, "bfloat16": 19,
}  # fmt: skip


class RuntimeMissing(OneLineError):
    """No TFLite runtime works here; the text is one line that says what to install."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """An installed TFLite runtime."""

    name: str  # of the distribution: "ai-edge-litert"
    version: str
    module: Any  # its `interpreter` module
    why_not: str = ""  # why there is none; then numpy is the reference, and nothing else runs

    @property
    def text(self) -> str:
        """Its name and version, for people."""
        return "no TFLite" if self.why_not else f"{self.name} {self.version}"

    @property
    def reference(self) -> str:
        """The origin of the reference kernels, for people."""
        return "numpy's reference kernels" if self.why_not else "TFLite's reference kernels"

    def interpreter(
        self,
        model: str | bytes,
        threads: int | None,
        cpu_kernels: str,
        delegates: Sequence[object] = (),
        keeps_all: bool = False,
        graph: Graph | None = None,
    ) -> Any:
        """Return a new interpreter of a model's file or content, its tensors not allocated yet.

        `keeps_all`: all tensors can be read after a run. A delegate then gets each node separately.
        `graph`: one of the model's, with its input shapes; None: the first, with the
            file's.

        Raises: ValueError, RuntimeError: TFLite rejects the model or a delegate, or numpy does not
            implement a node. RunError: there is no TFLite, and the request is neither for numpy
            nor for our delegate alone, or the delegate leaves nodes.
        """
        if self.why_not and cpu_kernels == "reference" and not delegates:
            return NumpyInterpreter(graph or read_model(model))
        if self.why_not and len(delegates) == 1 and isinstance(delegates[0], OpenCLDelegate):
            return WholeInterpreter(graph or read_model(model), delegates[0], self.why_not)
        if self.why_not:
            raise RunError(self.why_not)
        name = "model_content" if isinstance(model, bytes) else "model_path"
        made = self.module.Interpreter(
            **{name: os.fsencode(model)},  # not every path is UTF-8
            num_threads=threads,
            experimental_delegates=list(delegates) or None,
            experimental_op_resolver_type=getattr(
                self.module.OpResolverType, _RESOLVERS[cpu_kernels]
            ),
            experimental_preserve_all_tensors=keeps_all,
        )
        if graph is None:
            return made
        made = OfSignature(made, graph) if graph.subgraph else made
        fit_inputs(made, graph)
        return made

    def kernels(self, cpu_kernels: str) -> str:
        """Return the name of these CPU kernels in this runtime."""
        if self.why_not and cpu_kernels == "reference":
            return self.reference
        if cpu_kernels == "auto":
            # NOTE: tflite-runtime's XNNPACK leaves quantised models to the built-in kernels.
            return "XNNPACK" if self.name == "ai-edge-litert" else "default kernels"
        return {"builtin": "built-in kernels", "reference": "reference kernels"}[cpu_kernels]

    def load_delegate(self, path: str, options: Mapping[str, str]) -> Any:
        """Return the delegate of a shared library.

        Raises: OSError, ValueError, AttributeError, RuntimeError: loading or creating it failed.
        """
        try:
            return self.module.load_delegate(path, dict(options))
        except (OSError, ValueError, AttributeError, RuntimeError) as error:
            _discard_half_made(error)
            raise


def fit_inputs(made: Any, graph: Graph) -> None:
    """Resize an interpreter's inputs to their shapes in the graph.

    Raises: RuntimeError, ValueError: TFLite rejects a shape.
    """
    for tensor, details in zip(graph.inputs, made.get_input_details(), strict=True):
        if tuple(details["shape"]) != tensor.shape:
            made.resize_tensor_input(details["index"], tensor.shape)


def runtime_if_any() -> Runtime:
    """Return the runtime of `find_runtime`, or a placeholder that records why there is none.

    Class Model alone needs none: Alpine and other musl systems have no TFLite.
    """
    try:
        return find_runtime()
    except RuntimeMissing as error:
        return Runtime("none", "", None, str(error))


def find_runtime() -> Runtime:
    """Return the first working runtime, or the one named by LABEL_IMAGE_RUNTIME.

    Raises: RuntimeMissing: none is installed, or an installed one cannot be loaded.
    """
    chosen = os.environ.get(ENVIRONMENT_VARIABLE, "")
    chosen = _SHORT_NAMES.get(chosen, chosen).replace("_", "-")
    if chosen and chosen not in _MODULES:
        raise RuntimeMissing(
            f"{ENVIRONMENT_VARIABLE}={chosen}: there are only {' and '.join(_MODULES)}"
        )
    reasons = []
    for name in [chosen] if chosen else _MODULES:
        try:
            return _load(name)
        except RuntimeMissing as error:
            reasons.append(str(error))
    raise RuntimeMissing("no TFLite runtime: " + "; ".join(reasons))


def _load(name: str) -> Runtime:
    module_name = _MODULES[name]
    try:
        module = importlib.import_module(f"{module_name}.interpreter")
    except ModuleNotFoundError as error:
        if error.name != module_name:
            raise RuntimeMissing(f"{name} lacks a module ({error})") from error
        raise RuntimeMissing(f"{name} is not installed (pip install {name})") from None
    except (ImportError, SystemError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise RuntimeMissing(f"{name} cannot be loaded ({reason})") from error
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:  # a board's image may contain the bare module
        version = str(getattr(module, "__version__", "of unknown version"))
    # NOTE: it imports without error, and breaks when the first interpreter is created.
    if name == "tflite-runtime" and version.startswith("2.14.") and np.__version__[:2] != "1.":
        raise RuntimeMissing(
            f"{name} {version} does not work with numpy {np.__version__} "
            "(pip install 'numpy<2', or pip install ai-edge-litert)"
        )
    return Runtime(name, version, module)


def _discard_half_made(error: BaseException | None) -> None:
    """Collect TFLite's partially constructed Delegate, whose `__del__` would print a traceback."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    try:
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__context__
    finally:
        sys.unraisablehook = hook
